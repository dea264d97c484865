"""Opens and closes the windows of a team, waits for its agents, and shows them in a terminal."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from multi_agent_mcp.config import child_environment, expanded, python, read_environment
from multi_agent_mcp.domain.agent import ON_DEMAND, PURPOSES, Agent, AgentSession
from multi_agent_mcp.domain.delivery import OFFLINE
from multi_agent_mcp.domain.dialog import Dialog
from multi_agent_mcp.doorbell.tmux.client import Answer, Server, own_pane, pane_place, require_tmux, withheld
from multi_agent_mcp.doorbell.tmux.profiles import PROMPT, Profile, load_profiles, recognise
from multi_agent_mcp.doorbell.tmux.screens import UNKNOWN, classify, dialog_topic
from multi_agent_mcp.doorbell.tmux.snapshot import PaneSnapshot, probe, take_snapshot
from multi_agent_mcp.doorbell.tmux.team_panes import USABLE, OwnPane, is_compound, last_lines
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.host_config import MCP_CONFIG, program_name, program_of
from multi_agent_mcp.hosts import host_named
from multi_agent_mcp.hosts import hosts as known_hosts
from multi_agent_mcp.services.overview.supervision import OWNER, SUPERVISOR, Slot
from multi_agent_mcp.system.host_versions import Newer, newer_hosts
from multi_agent_mcp.system.process import directory_of, is_below
from multi_agent_mcp.texts import Texts
from multi_agent_mcp.windows.agent_command import (
    ANEW,
    FIRST,
    LOOK_SECONDS,
    PARTING_SECONDS,
    Beginning,
    beginning_of,
    command_of,
    end_left_over,
    has_refused,
    in_a_terminal,
    left_out,
    refuse,
    set_aside,
)
from multi_agent_mcp.windows.shells import SH
from multi_agent_mcp.windows.window_registry import TeamWindows
from multi_agent_mcp.wiring import Services

# The state of an agent after `up`: a code and its text (docs/protocol.md, Team in tmux).

READY, STARTING, RUNNING, OPEN, ELSEWHERE = "ready", "starting", "running", "open", "elsewhere"
ENDED, NO_SERVER, UNKNOWN_SCREEN = "ended", "no_server", "unknown_screen"
NO_COMMAND, NO_PROGRAM, REFUSED, UNCONFIGURED = "no_command", "no_program", "refused", "unconfigured"
DIALOG, LIMITED, UNTYPED = "dialog", "limited", "untyped"
RESUME_ASKED = "dialog:resume"
"""Its host asks how to go on with its conversation."""
OF_THE_HOST = ("hook", "codex_queue")
"""Channels that reach an agent whose pane takes no line."""
FINE = frozenset({READY, LIMITED, OPEN, ELSEWHERE, NO_COMMAND, ON_DEMAND})
"""States that need no action."""


@dataclass(frozen=True)
class AgentState:
    """The state of an agent, or of one of the team's other windows. `state` is a code; that of a dialog has its topic
    (`dialog:trust`). `facts` are the values in its text, `last_lines` the last lines of an ended program, `earlier` the
    agent's sessions that ran before its window was opened, `beginning` how its host was started now, `left_out` what it
    was started without."""

    agent_id: str
    state: str
    socket_path: str | None = None
    pane_id: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    last_lines: tuple[str, ...] = ()
    earlier: frozenset[str] = frozenset()
    beginning: Beginning = ANEW
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_fine(self) -> bool:
        return self.state in FINE

    @property
    def is_of_host(self) -> bool:
        """Whether a known host was started now."""
        return self.beginning.continues or self.beginning.why is not None

    @property
    def asks(self) -> bool:
        """Whether a dialog in the pane waits for a human."""
        return self.state.partition(":")[0] == DIALOG

    def note(self, texts: Texts) -> str:
        """Returns the text of the state, and how the host began; a topic of a dialog without a text (from a user's own
        profile) gets the general one."""
        key = f"up.{self.state}"
        note = texts(key if key in texts else f"up.{DIALOG}", **self.facts)
        for key, host in self.left_out.items():
            note = texts(key, note=note, host=host, prompt=PROMPT)
        if "outside" in self.facts:
            return texts("up.outside", note=note, **self.facts)
        if self.beginning.continues and self.state == ENDED:
            return texts("up.not_continued", note=note, agent_id=self.agent_id)
        if self.beginning.continues:
            return note if self.state == RESUME_ASKED else texts("up.continued", note=note)
        why = self.beginning.why
        return note if why in (None, FIRST) else texts("up.fresh", note=note, reason=texts(f"fresh.{why}"))

    def as_answer(self, texts: Texts) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("agent_id", "state", "socket_path", "pane_id")}
        begun = {"continued": self.beginning.continues, "fresh": self.beginning.why is not None}
        why = {"why": self.beginning.why, "host_session": self.beginning.conversation}
        limit = {"limited_until": self.facts.get("until")} if self.state == LIMITED else {}
        return told | begun | why | limit | {"note": self.note(texts), "last_lines": list(self.last_lines)}


# Checks before `up` opens windows: tmux, the agents' programs, and variables that would not reach them.

_ACCOUNTS = ".*_(API_KEY|AUTH_TOKEN|ACCESS_TOKEN|BASE_URL)|(https?|HTTPS?|no|NO|all|ALL)_(proxy|PROXY)"
"""Variables of any host that choose the account a program uses, and the way to reach it."""
_FOR_THE_SHELL = re.compile(r"[$`*?\[]")


@dataclass(frozen=True)
class Preflight:
    """The results of the checks. `withheld` are the names of variables that would not reach the agents, never their
    values; there are none if no tmux server runs yet."""

    version: str
    socket_path: str
    was_running: bool
    withheld: tuple[str, ...]
    newer: tuple[Newer, ...] = ()
    """The hosts that are newer than their profiles, and were not told of before."""

    @property
    def remedy(self) -> str:
        """The shell commands that set the variables in the tmux server, from this terminal's environment."""
        tmux = f"tmux -S {shlex.quote(self.socket_path)} set-environment -g"
        return "; ".join(f'{tmux} {name} "${name}"' for name in self.withheld)


def preflight(windows: TeamWindows, agents: Iterable[Agent]) -> Preflight:
    """Checks tmux, the team's open windows and the variables. Raises `InvalidArguments` without a usable tmux, and
    while windows of a deleted session are open here."""
    version = require_tmux(windows.socket_path)
    windows.look()
    windows.require_no_former()
    agents = list(agents)
    missing = withheld(windows.socket_path, _account_variables(windows.services, agents))
    newer = _untold(windows.services, newer_hosts(agent.command for agent in agents))
    return Preflight(version, windows.socket_path, missing is not None, tuple(sorted(missing or ())), newer)


def _untold(services: Services, newer: Iterable[Newer]) -> tuple[Newer, ...]:
    """Returns the hosts of which this version has not been told before, and records them."""
    record = services.workspace.told_versions.read()
    told = record if isinstance(record, dict) else {}
    untold = tuple(host for host in newer if told.get(host.host) != host.version)
    if untold:
        services.workspace.told_versions.write({**told, **{host.host: host.version for host in untold}})
    return untold


def missing_program(command: str, shell: str = SH) -> str | None:
    """Returns the program of a simple command if it cannot be found, else None. A new window has our PATH and
    directory."""
    if is_compound(command) or shell != SH:
        return None  # it may begin with a word of the shell
    try:
        shlex.split(command)
    except ValueError:
        return None  # the shell will report the error
    program = program_of(command)
    if not program or _FOR_THE_SHELL.search(program):
        return None
    return None if shutil.which(expanded(program)) else program


def _account_variables(services: Services, agents: Iterable[Agent]) -> Mapping[str, str]:
    profiles = load_profiles(services.root / "hosts")
    hosts = [profiles.started_by(program_name(agent.command)) for agent in agents if agent.command]
    patterns = {_ACCOUNTS, *(text for host in hosts if host is not None for text in host.environment)}
    wanted = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    inherited = {name for host in known_hosts().values() for name in host.inherited}
    given = child_environment().items()
    return {name: value for name, value in given if value and wanted.fullmatch(name) and name not in inherited}


LOOK_AGAIN_SECONDS = 0.3
LASTS_SECONDS = 10.0
"""The time after which an unrecognised screen is reported: a starting host shows many for a moment."""
_UNSETTLED = (STARTING, RUNNING)

Report = Callable[[Sequence[AgentState]], None]


class Readiness:
    """Examines the opened panes repeatedly, without typing anything. `begin_anew` is called for a host that has ended
    instead of continuing its conversation, and returns the new state."""

    def __init__(
        self, services: Services, opened: Sequence[AgentState], begin_anew: Callable[[AgentState], AgentState]
    ) -> None:
        self.services = services
        self._begin_anew = begin_anew
        self._profiles = load_profiles(services.root / "hosts")
        self._seen = list(opened)
        self._unknown_since: dict[str, float] = {}

    def wait(self, seconds: float, report: Report) -> list[AgentState]:
        """Returns the states once two consecutive looks find all agents settled, after the given seconds, or on Ctrl-C.
        Agents that are then still starting have `no_server` or `unknown_screen`. `report` gets the states of each
        look."""
        end = time.monotonic() + seconds
        try:
            while True:
                before, self._seen = self._seen, [self._examined(item) for item in self._seen]
                report(self._seen)
                is_settled = before == self._seen and all(item.state not in _UNSETTLED for item in before)
                if is_settled or time.monotonic() >= end:
                    break
                time.sleep(LOOK_AGAIN_SECONDS)
        except KeyboardInterrupt:
            pass
        return list(map(self._at_the_end, self._seen))

    def _examined(self, item: AgentState) -> AgentState:
        seen = self._look(item)
        if seen.state != ENDED or item.state == ENDED or not item.beginning.continues:
            return seen
        command = self.services.agents.get(item.agent_id).command
        return self._begin_anew(seen) if has_refused(command, seen.last_lines) else seen

    def _look(self, item: AgentState) -> AgentState:
        if item.pane_id is None or item.socket_path is None:
            return item
        snapshot = take_snapshot(Server(item.socket_path).pane(item.pane_id))
        if snapshot == "tmux_timeout":
            return item
        is_agent = item.agent_id in self.services.agents.all()
        is_served = is_agent and self._is_served(item)
        if isinstance(snapshot, str):
            return replace(item, state=READY if is_served else ENDED, last_lines=())
        if snapshot.facts.dead and not is_served:
            return replace(item, state=ENDED, last_lines=last_lines(item.socket_path, item.pane_id))
        state = self._state(item, snapshot, is_served=is_served) if is_agent else OPEN
        if state == READY and (reason := self._untyped(item, snapshot)) is not None:
            facts = {"reason": self.services.people.words_of(reason)}
            return replace(item, state=UNTYPED, facts={**item.facts, **facts}, last_lines=())
        limit = self.services.limits.now(item.agent_id) if state == READY else None
        if limit is not None:
            return replace(item, state=LIMITED, facts={"until": limit.until_said}, last_lines=())
        return replace(item, state=state, last_lines=())

    def _untyped(self, item: AgentState, snapshot: PaneSnapshot) -> str | None:
        """Why nothing can be typed into the pane of an agent that works, or None: the pane takes no keys, or no profile
        describes what runs there and no other channel reaches it while it is idle."""
        agent = self.services.agents.get(item.agent_id)
        if (reason := snapshot.facts.refusal(agent)) is not None:
            return reason
        profile = recognise(agent, snapshot.facts.pane_pid, self._profiles)
        others = (report for report in self.services.channels(agent) if report.name in OF_THE_HOST)
        return None if isinstance(profile, Profile) or any(one.reason is None for one in others) else profile

    def _state(self, item: AgentState, snapshot: PaneSnapshot, *, is_served: bool) -> str:
        """Returns the state of an agent whose program runs. A dialog takes precedence over a live server, which some
        hosts start behind it: the agent does nothing until it is answered."""
        shown = self._shown(item, snapshot)
        if shown == "login":
            return f"{DIALOG}:login"
        if shown is not None and shown.startswith(DIALOG):
            return shown
        if shown == OFFLINE:
            return OFFLINE
        if shown == UNKNOWN:
            since = self._unknown_since.setdefault(item.agent_id, time.monotonic())
            return UNKNOWN_SCREEN if time.monotonic() - since >= LASTS_SECONDS else STARTING
        self._unknown_since.pop(item.agent_id, None)
        return READY if is_served else STARTING

    def _shown(self, item: AgentState, snapshot: PaneSnapshot) -> str | None:
        """Returns the state of a known host's screen, with the topic of a dialog; None without a profile for its
        screen, or if it is still blank."""
        agent = self.services.agents.get(item.agent_id)
        profile = recognise(agent, snapshot.facts.pane_pid, self._profiles)
        screen = snapshot.screen
        if not isinstance(profile, Profile) or profile.composer is None or not any(map(str.strip, screen.rows)):
            return None
        state = classify(profile, screen).state
        topic = dialog_topic(profile, screen) if state == DIALOG else None
        return state if topic is None else f"{DIALOG}:{topic}"

    def _is_served(self, item: AgentState) -> bool:
        sessions = self.services.sessions
        if any(session.id not in item.earlier for session in sessions.running(item.agent_id)):
            return True
        return not item.earlier and sessions.alive(item.agent_id)  # it has logged out, and waits for its next call

    def _at_the_end(self, item: AgentState) -> AgentState:
        if item.state not in _UNSETTLED:
            return item
        if item.agent_id in self._unknown_since:
            return replace(item, state=UNKNOWN_SCREEN)
        command = self.services.agents.get(item.agent_id).command or ""
        host = host_named(program_name(command))
        if host is None or MCP_CONFIG in command:
            return replace(item, state=NO_SERVER)
        return replace(item, state=UNCONFIGURED, facts={"agent_id": item.agent_id, "host": host.name})


# The way from a terminal to a team's windows: attaching to its tmux server, or switching a client of it.


@dataclass(frozen=True)
class Attachment:
    """A session or pane of a tmux server, as tmux names a target, to be shown in this terminal."""

    socket_path: str
    target: str

    @property
    def is_here(self) -> bool:
        """Whether this terminal is a pane of that server."""
        here = own_pane()
        return here is not None and here.socket_path == self.socket_path

    @property
    def command(self) -> str:
        """The command that shows it. Inside that tmux server it switches the client; inside another one it unsets TMUX,
        as tmux refuses to attach within tmux."""
        outside = [] if self.is_here or read_environment().pane is None else ["env", "-u", "TMUX"]
        # quoted explicitly: zsh expands a bare `=name` to the path of a program
        target = shlex.quote(self.target).strip("'")
        return f"{shlex.join([*outside, *self._words])} -t '{target}'"

    def show(self) -> None:
        """Shows it in this terminal, which is a pane of that server or outside tmux, where tmux replaces this process.
        Raises `InvalidArguments` if tmux refuses to switch."""
        if not self.is_here:
            words = [*self._words, "-t", self.target]
            os.execvpe("tmux", words, child_environment())  # noqa: S606 - tmux needs this terminal, and no shell
        switched = self.switch()
        if switched.failure:
            raise InvalidArguments("tmux", reason=" ".join(switched.stderr))

    def switch(self) -> Answer:
        """Shows it in the terminal of the tmux client that shows this pane."""
        return Server(self.socket_path).cmd("switch-client", "-t", self.target)

    @property
    def _words(self) -> list[str]:
        return ["tmux", "-S", self.socket_path, "switch-client" if self.is_here else "attach"]


def team_attachment(windows: TeamWindows) -> Attachment | None:
    """Returns the way to the team's tmux session; None without windows."""
    return Attachment(windows.socket_path, f"={windows.tmux_session}") if windows.has_windows else None


def find_attachment(windows: TeamWindows, agent_id: str | None) -> Attachment:
    """Returns the way to the team, or to an agent's window: that of its task session, else of its chat session, else
    one whose program has ended. Raises `InvalidArguments` if there is none, or without a usable tmux."""
    require_tmux(windows.socket_path)
    windows.look()
    if agent_id is None:
        if (team := team_attachment(windows)) is None:
            raise InvalidArguments("attach_no_team")
        return team
    labels = [Slot(agent_id, purpose).label for purpose in PURPOSES]
    panes = [pane for pane in windows.found if pane.label in labels]
    for pane in sorted(panes, key=lambda pane: (pane.dead, labels.index(pane.label))):
        if (place := pane_place(pane.socket_path, pane.pane_id)) is not None:
            return Attachment(pane.socket_path, f"={place['session_name']}:.{pane.pane_id}")
    raise InvalidArguments("attach_no_window", agent_id=agent_id)


def open_agent(windows: TeamWindows, agent: Agent, *, is_named: bool = True, fresh: bool = False) -> AgentState:
    """Opens the window of an agent with a command if it is missing, and registers its pane. An agent that is started on
    demand has to be `is_named`; `fresh`: its host begins a new conversation. A failure is a state. Raises
    `InvalidArguments` if tmux is missing or does not answer."""
    with _open_windows(windows):
        return _open(windows, agent, is_named=is_named, fresh=fresh)


def open_own_windows(windows: TeamWindows, *, supervisor: bool, owner: bool) -> list[AgentState]:
    """Opens the team's own windows: the supervisor's, and the Owner's view unless an agent is the Owner."""
    with _open_windows(windows):
        states = [_open_supervisor(windows)] if supervisor else []
        agents = windows.services.agents.at_home().values()
        if owner and not any(agent.role == "owner" and agent.command for agent in agents):
            states.append(_open_own(windows, OWNER, "watch", remains=False))
        return states


@contextmanager
def _open_windows(windows: TeamWindows) -> Iterator[None]:
    """Holds the windows' lock. Raises `InvalidArguments` if tmux does not answer."""
    with windows.locked():
        if windows.moved:
            windows.services.supervision.end()  # that of the former directory, which ends with its window
            windows.moved.clear()
        yield


def begin_anew(windows: TeamWindows, state: AgentState) -> AgentState:
    """Starts a host anew that has ended instead of continuing its conversation, and records that it was refused."""
    agent = windows.services.agents.get(state.agent_id)
    with windows.locked():
        refuse(windows.services, state.beginning.conversation or "")
        return _open(windows, agent, is_named=True, fresh=False)


def restart_agent(windows: TeamWindows, agent: Agent, *, fresh: bool = False) -> AgentState:
    """Runs an agent's command anew in its window, or opens one, and closes its chat window, which the supervisor opens
    again. Raises `InvalidArguments`, with nothing ended, if the command cannot be started, if the agent runs in a pane
    that is not the team's, or as `open_agent`."""
    services = windows.services
    with windows.locked():
        pane = windows.living.get(Slot(agent.id, "task"))
        ending = () if pane is None else (pane.pane_pid,)
        beginning = beginning_of(services, agent, "task", fresh=fresh, ending=ending)
        shell = windows.shell_of(Slot(agent.id, "task"))
        command = command_of(services, agent, "task", beginning, shell)
        if command is None:
            raise InvalidArguments("restart_no_command", agent_id=agent.id)
        if (program := missing_program(command, shell)) is not None:
            raise InvalidArguments("restart_no_program", agent_id=agent.id, program=program)
        windows.require_reached(Slot(agent.id, "task"))
        if pane is None and _is_elsewhere(windows, agent):
            raise InvalidArguments("restart_elsewhere", agent_id=agent.id, pane=agent.pane_id)
        if pane is None and (pid := _left_in_a_terminal(services, agent.id)) is not None:
            raise InvalidArguments("restart_terminal", agent_id=agent.id, pid=pid)
        services.missing_sessions.put_up(agent.id)
        if fresh:
            set_aside(services, agent, "task")
        if chat := windows.living.get(Slot(agent.id, "chat")):
            windows.close(chat)
        if pane is None:
            return _start(windows, agent, command, beginning)
        return _restart(windows, agent, pane, command, beginning)


def close_team(windows: TeamWindows) -> list[str]:
    """Ends supervision and closes every window of the team; returns their names. `windows.strange` are left open.
    Raises `InvalidArguments` if tmux does not answer, or is missing while a window is recorded."""
    with _for_closing(windows):
        windows.services.supervision.end()  # ends a supervisor outside our panes, too
        closed = _close(windows, windows.found) + windows.end_lost() + windows.close_former()
        windows.services.pane_looks.forget()
        return closed


def close_agents(windows: TeamWindows, agent_ids: Collection[str]) -> list[str]:
    """Closes these agents' windows, and has the supervisor open none for them until `up` or `restart`; else as
    `close_team`."""
    with _for_closing(windows):
        for agent_id in agent_ids:
            windows.records.put_down(agent_id)  # first: closing a pane may end this process
        slots = [Slot(agent_id, purpose) for agent_id in agent_ids for purpose in PURPOSES]
        closed = _close(windows, [pane for pane in windows.found if Slot.of(pane.label) in slots])
        return closed + windows.end_lost(agent_ids)


@contextmanager
def _for_closing(windows: TeamWindows) -> Iterator[None]:
    if windows.is_any_recorded:
        require_tmux(windows.socket_path)
    with windows.locked():
        yield


def _close(windows: TeamWindows, panes: Iterable[OwnPane]) -> list[str]:
    """Closes the panes; returns the names of their windows, and of those that were closed as the session had moved."""
    panes = sorted(panes, key=_is_here)
    closed = [slot.window_name for slot in (*windows.moved, *(Slot.of(pane.label) for pane in panes))]
    served = _served_in(windows, panes)
    for pane in panes:
        windows.close(pane)
    _end_what_outlives(windows.services, served)
    return closed


def _served_in(windows: TeamWindows, panes: Collection[OwnPane]) -> list[AgentSession]:
    """Returns the agent sessions whose servers run in these panes."""
    pids = [pane.pane_pid for pane in panes if not pane.dead]
    sessions = windows.services.sessions
    running = (session for session in sessions.all(ended=False) if sessions.is_here(session))
    return [session for session in running if sessions.is_running(session) and is_below(session.pid, pids)]


def _end_what_outlives(services: Services, served: Iterable[AgentSession]) -> None:
    """Ends hosts that go on without their window, which some do (docs/hosts.md), after a moment in which they may end
    by themselves."""
    until = time.monotonic() + PARTING_SECONDS
    for session in served:
        while services.sessions.is_running(session) and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        if services.sessions.is_running(session):
            end_left_over(services, session.agent_id, session.purpose)


def _open(windows: TeamWindows, agent: Agent, *, is_named: bool, fresh: bool) -> AgentState:
    try:
        windows.records.put_up(agent.id)
        if agent.command is None:
            return AgentState(agent.id, NO_COMMAND)
        if agent.extra.get("spawn") == ON_DEMAND and not is_named:
            return AgentState(agent.id, ON_DEMAND)
        if (found := _found(windows, agent)) is not None:
            return found
        windows.require_reached(Slot(agent.id, "task"))
        if (pid := _left_in_a_terminal(windows.services, agent.id)) is not None:
            return AgentState(agent.id, ELSEWHERE, facts={"pid": pid})
        if fresh:
            set_aside(windows.services, agent, "task")
        beginning = beginning_of(windows.services, agent, "task", fresh=fresh)
        shell = windows.shell_of(Slot(agent.id, "task"))
        command = command_of(windows.services, agent, "task", beginning, shell) or ""
        return _start(windows, agent, command, beginning)
    except Refusal as refusal:
        return AgentState(agent.id, REFUSED, facts={"reason": windows.services.texts.sentence(refusal)})


def _left_in_a_terminal(services: Services, agent_id: str) -> int | None:
    """As `in_a_terminal`, once what has outlived its window was ended."""
    end_left_over(services, agent_id, "task")
    return in_a_terminal(services, agent_id, "task")


def _found(windows: TeamWindows, agent: Agent) -> AgentState | None:
    """Returns the state of an agent that already runs in a pane; None if it does not."""
    is_reachable = _is_reachable(agent)
    if pane := windows.living.get(slot := Slot(agent.id, "task")):
        windows.close_kept(slot)  # the supervisor has started it again
        if not is_reachable:
            _register(windows, agent, pane)
        facts = _outside(windows.services, agent.id, pane.pane_pid)
        return AgentState(agent.id, RUNNING, pane.socket_path, pane.pane_id, facts)
    facts = _outside(windows.services, agent.id, agent.pane_pid)
    return AgentState(agent.id, RUNNING, agent.socket_path, agent.pane_id, facts) if is_reachable else None


def _outside(services: Services, agent_id: str, pane_pid: int | None) -> dict[str, str]:
    """What `up` says of an agent that goes on outside of the worktree that it has by now."""
    worktree, there = services.workplaces.of(agent_id), pane_pid and directory_of(pane_pid)
    if worktree is None or not there or Path(there).is_relative_to(os.path.realpath(worktree.path)):
        return {}
    return {"outside": there, "agent_id": agent_id}


def _start(windows: TeamWindows, agent: Agent, command: str, beginning: Beginning) -> AgentState:
    if (program := missing_program(command, windows.shell_of(Slot(agent.id, "task")))) is not None:
        return AgentState(agent.id, NO_PROGRAM, facts={"program": program})
    earlier = frozenset(session.id for session in windows.services.sessions.running(agent.id))
    pane = windows.open(Slot(agent.id, "task"), command, stays=True, remains=True, continues=beginning.conversation)
    if pane is not None:
        _register(windows, agent, pane)
    lacking = left_out(windows.services, agent)
    return replace(_opened(agent.id, pane, STARTING, earlier), beginning=beginning, left_out=lacking)


def _restart(windows: TeamWindows, agent: Agent, pane: OwnPane, command: str, beginning: Beginning) -> AgentState:
    earlier = frozenset(session.id for session in windows.services.sessions.running(agent.id))
    windows.close_kept(Slot(agent.id, "task"))
    if beginning.continues:
        windows.end_program(pane)  # of two processes in one conversation, what one writes is lost
    fresh = windows.restart(pane, command, continues=beginning.conversation)
    if fresh is not None:
        _register(windows, agent, fresh)
    lacking = left_out(windows.services, agent)
    return replace(_opened(agent.id, fresh, STARTING, earlier), beginning=beginning, left_out=lacking)


def _is_reachable(agent: Agent) -> bool:
    return agent.pane_id is not None and probe(agent) in USABLE


def _is_elsewhere(windows: TeamWindows, agent: Agent) -> bool:
    """Returns whether the agent's program runs in a pane that the team did not open."""
    own = {(pane.socket_path, pane.pane_id) for pane in windows.found}
    return (agent.socket_path, agent.pane_id) not in own and _is_reachable(agent)


def _opened(name: str, pane: OwnPane | None, state: str, earlier: frozenset[str] = frozenset()) -> AgentState:
    if pane is None:
        return AgentState(name, ENDED)
    if not pane.dead:
        return AgentState(name, state, pane.socket_path, pane.pane_id, earlier=earlier)
    lines = last_lines(pane.socket_path, pane.pane_id)
    return AgentState(name, ENDED, pane.socket_path, pane.pane_id, last_lines=lines, earlier=earlier)


def register_missing(windows: TeamWindows, agent: Agent, pane: OwnPane) -> None:
    """Registers the pane unless the agent's program still runs in the registered one."""
    if agent.pane_id is None or probe(agent) not in USABLE:
        _register(windows, agent, pane)


def _register(windows: TeamWindows, agent: Agent, pane: OwnPane) -> None:
    """Registers the pane as the one in which the agent's doorbell rings."""
    place = pane_place(pane.socket_path, pane.pane_id)
    if place is not None:
        # No `pane_program`: the pane may still run a launcher (`env`, pyenv, `sh -c`).
        windows.services.agents.change(agent.id, **place | {"pane_program": None})


def _open_supervisor(windows: TeamWindows) -> AgentState:
    pid = windows.services.supervision.running()
    if pid and SUPERVISOR not in windows.living:
        return AgentState(f"({SUPERVISOR.window_name})", ELSEWHERE, facts={"pid": pid})
    return _open_own(windows, SUPERVISOR, "supervise", remains=True)


def _open_own(windows: TeamWindows, slot: Slot, command: str, *, remains: bool) -> AgentState:
    """Opens a window that runs one of our own commands, unless it is open."""
    call = shlex.join([*python(), command])
    name = f"({slot.window_name})"
    try:
        windows.require_reached(slot)
        pane = windows.living.get(slot) or windows.open(slot, call, stays=True, remains=remains)
    except InvalidArguments as refusal:
        return AgentState(name, REFUSED, facts={"reason": windows.services.texts.sentence(refusal)})
    return _opened(name, pane, OPEN)


def _is_here(pane: OwnPane) -> bool:
    """Returns whether this process runs in the pane, which is then closed last."""
    return is_below(os.getpid(), [pane.pane_pid])


AT_ONCE = max(2, os.cpu_count() or 1)
"""The number of hosts that may start at a time."""
PACE_SECONDS = 10.0
"""How long the next ones wait for those at most."""


class Startup:
    """One run of `up`: starts the team, or the agents named by `only`. The constructor raises `AgentNotFound` for an
    unknown agent and `InvalidArguments` without a usable tmux, before anything is opened."""

    def __init__(self, windows: TeamWindows, only: Collection[str] = ()) -> None:
        self.windows = windows
        self.only = only
        self.states: list[AgentState] = []
        agents = windows.services.agents
        self._wanted = [agents.here(agent_id) for agent_id in only] or [*agents.at_home().values()]
        self.preflight = preflight(windows, self._wanted)
        self._has_waited = False

    def open(self, *, supervisor: bool, owner: bool, fresh: bool = False, report: Report = lambda _: None) -> None:
        """Opens missing windows; those of supervisor and owner only with the whole team. `fresh`: no conversation is
        continued. No more than `AT_ONCE` hosts start at a time: they take seconds of a processor each."""
        whole = not self.only
        starting: list[AgentState] = []
        for agent in self._wanted:
            state = self._prepared(agent) or open_agent(self.windows, agent, is_named=not whole, fresh=fresh)
            self.states.append(state)
            if state.state == STARTING and state.is_of_host:
                starting.append(state)
            if len(starting) >= AT_ONCE and agent is not self._wanted[-1]:
                self._readiness(starting).wait(PACE_SECONDS, report)
                starting.clear()
        if whole:
            self.states += open_own_windows(self.windows, supervisor=supervisor, owner=owner)

    def restart(self, *, fresh: bool = False) -> None:
        """Restarts the agents named by `only`; see `restart_agent`."""
        agents = [self.windows.services.agents.get(one) for one in self.only]
        self.states = [self._prepared(agent) or restart_agent(self.windows, agent, fresh=fresh) for agent in agents]

    def _prepared(self, agent: Agent) -> AgentState | None:
        """Makes the worktree of an agent that is to work in one and has none; returns the state of one for which that
        failed. It may take long, so no lock is held."""
        services = self.windows.services
        try:
            if agent.command is not None and services.workplaces.wants(agent):
                services.workplaces.ensure(agent)
        except Refusal as refusal:
            return AgentState(agent.id, REFUSED, facts={"reason": services.texts.sentence(refusal)})
        return None

    def wait(self, seconds: float, report: Report) -> None:
        """Waits until all agents are ready or ask for something; see `Readiness.wait`."""
        self.states = self._readiness(self.states).wait(seconds, report)
        self._has_waited = True

    def _readiness(self, states: Sequence[AgentState]) -> Readiness:
        return Readiness(self.windows.services, states, lambda state: begin_anew(self.windows, state))

    @property
    def is_fine(self) -> bool:
        """Whether no agent is missing; before `wait`, agents that are starting count as present."""
        unknown = () if self._has_waited else (STARTING, RUNNING)
        return all(state.is_fine or state.state in unknown for state in self.states)

    def asked(self) -> tuple[dict[str, Dialog], dict[str, Dialog]]:
        """The questions that agents' hosts ask and profiles describe, by agent id; and those that none describes."""
        services = self.windows.services
        asking = [services.agents.get(state.agent_id) for state in self.states if state.asks]
        found = {agent.id: services.panes.dialog(agent) for agent in asking}
        described = {agent_id: dialog for agent_id, dialog in found.items() if dialog is not None}
        return described, services.panes.undescribed(agent for agent in asking if agent.id not in described)

    @property
    def attach_command(self) -> str | None:
        """The command that shows the team in this terminal; None without windows."""
        team = team_attachment(self.windows)
        return None if team is None else team.command

    def show(self) -> None:
        """Shows the team in this terminal if that is on the team's tmux server: the first agent that asks for
        something, else the session. If an agent could not be started and none asks, the list stays visible instead."""
        asking = next((state.pane_id for state in self.states if state.asks), None)
        team = team_attachment(self.windows)
        if team is not None and team.is_here and (asking or self.is_fine):
            replace(team, target=asking or team.target).switch()

    def as_answer(self) -> dict[str, Any]:
        """Returns the result for JSON."""
        texts, checked = self.windows.services.people, self.preflight
        return {
            "ready": self.is_fine,
            "agents": [state.as_answer(texts) for state in self.states],
            "tmux_session": self.windows.tmux_session,
            "attach": self.attach_command,
            "tmux": {
                "version": checked.version,
                "socket_path": self.windows.socket_path,
                "was_running": checked.was_running,
                "withheld": list(checked.withheld),
            },
            "newer_hosts": [host._asdict() for host in checked.newer],
        }
