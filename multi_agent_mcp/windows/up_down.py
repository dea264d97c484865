"""Opens and closes the windows of a team."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.agent import ON_DEMAND, PURPOSES, Agent
from multi_agent_mcp.domain.dialog import Dialog
from multi_agent_mcp.domain.slot import OWNER, SUPERVISOR, Slot
from multi_agent_mcp.doorbell.tmux.client import pane_place, require_tmux
from multi_agent_mcp.doorbell.tmux.team_panes import OwnPane, last_lines
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.programs import python
from multi_agent_mcp.system.process import directory_of, host_of, is_alive, is_below, started_at
from multi_agent_mcp.windows.agent_command import (
    LOOK_SECONDS,
    PARTING_SECONDS,
    RECENT_SESSIONS,
    Beginning,
    beginning_of,
    command_of,
    end_all,
    end_left_over,
    in_a_terminal,
    left_out,
    refuse,
    set_aside,
)
from multi_agent_mcp.windows.attachment import team_attachment
from multi_agent_mcp.windows.places import has_place
from multi_agent_mcp.windows.preflight import missing_program, preflight
from multi_agent_mcp.windows.readiness import (
    ELSEWHERE,
    ENDED,
    NO_COMMAND,
    NO_PROGRAM,
    OPEN,
    REFUSED,
    RUNNING,
    STARTING,
    WAITS,
    AgentState,
    Readiness,
    Report,
)
from multi_agent_mcp.windows.window_registry import TeamWindows, is_reachable
from multi_agent_mcp.wiring import Services


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


def begin_again(windows: TeamWindows, state: AgentState) -> AgentState:
    """Starts a host again that has ended instead of continuing its conversation, and records that it was refused."""
    agent = windows.services.agents.get(state.agent_id)
    with windows.locked():
        refuse(windows.services, state.beginning.conversation or "")
        return _open(windows, agent, is_named=True, fresh=False)


def open_waiting(windows: TeamWindows, agent: Agent) -> AgentState:
    """Opens the window of an agent that waited for a place, as `up` would have. What fails is not tried again."""
    state = _open(windows, agent, is_named=True, fresh=False)
    if state.state != WAITS and windows.records.waits(slot := Slot(agent.id, "task")):
        windows.records.forget(slot)
    return state


def restart_agent(windows: TeamWindows, agent: Agent, *, fresh: bool = False) -> AgentState:
    """Runs an agent's command again in its window, or opens one, and closes its chat window, which the supervisor opens
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
        if pane is None and windows.is_in_other_pane(agent):
            raise InvalidArguments("restart_elsewhere", agent_id=agent.id, pane=agent.pane_id)
        if pane is None and (pid := _left_in_a_terminal(services, agent.id)) is not None:
            raise InvalidArguments("restart_terminal", agent_id=agent.id, pid=pid)
        services.missing_sessions.put_up(agent.id)
        if fresh:
            set_aside(services, agent, "task")
        if chat := windows.living.get(Slot(agent.id, "chat")):
            close_panes(windows, [chat])
        if pane is None:
            return _start(windows, agent, command, beginning)
        return _restart(windows, agent, pane, command, beginning)


def close_team(windows: TeamWindows) -> list[str]:
    """Ends supervision and closes every window of the team; returns their names. `windows.strange` are left open.
    Raises `InvalidArguments` if tmux does not answer, or is missing while a window is recorded."""
    with _for_closing(windows):
        windows.services.supervision.end()  # ends a supervisor outside our panes, too
        for slot in filter(windows.records.waits, windows.records.windows()):
            windows.records.forget(slot)
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
    """Closes the panes; returns the names of their windows, and of those that were closed as the session had moved. A
    slot may have two: one whose program has ended is kept beside that which the supervisor has opened."""
    panes = sorted(panes, key=_is_here)
    slots = dict.fromkeys((*windows.moved, *(Slot.of(pane.label) for pane in panes)))
    close_panes(windows, panes)
    return [slot.window_name for slot in slots]


def close_panes(windows: TeamWindows, panes: Collection[OwnPane]) -> None:
    """Closes the panes, and ends the agents' hosts in them that go on without one, and their servers, which keep the
    agent's doorbell to themselves: some do (docs/hosts.md)."""
    served = _served_in(windows, panes)
    for pane in panes:
        windows.close(pane)
    _end_what_outlives(served)


def _served_in(windows: TeamWindows, panes: Collection[OwnPane]) -> dict[int, str | None]:
    """Returns the agents' servers that run in these panes, logged out or not, and their hosts, each with its start."""
    pids, sessions = [pane.pane_pid for pane in panes if not pane.dead], windows.services.sessions
    agent_ids = {Slot.of(pane.label).agent_id for pane in panes}.intersection(windows.services.agents.registry.all())
    known = [session for session in sessions.all(ended=False) if sessions.is_here(session)]
    for agent_id in agent_ids:
        over = windows.services.workspace.sessions.closed(agent_id, limit=RECENT_SESSIONS)
        known += [session for session in over if sessions.is_here(session)]
    servers = {session.pid for session in known if is_alive(session.pid, session.pid_started_at)}
    return {pid: started_at(pid) for server in servers for pid in (host_of(server), server) if is_below(pid, pids)}


def _end_what_outlives(served: Mapping[int, str | None]) -> None:
    """Ends those of these processes that still run after a moment in which they may end by themselves."""
    until = time.monotonic() + PARTING_SECONDS
    while (left := [pid for pid, start in served.items() if is_alive(pid, start)]) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
    end_all(left)


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
    has_place_to_ring = is_reachable(agent)
    if pane := windows.living.get(slot := Slot(agent.id, "task")):
        windows.close_kept(slot)  # the supervisor has started it again
        if not has_place_to_ring:
            _register(windows, agent, pane)
        facts = _outside(windows.services, agent.id, pane.pane_pid)
        return AgentState(agent.id, RUNNING, pane.socket_path, pane.pane_id, facts)
    facts = _outside(windows.services, agent.id, agent.pane_pid)
    return AgentState(agent.id, RUNNING, agent.socket_path, agent.pane_id, facts) if has_place_to_ring else None


def _outside(services: Services, agent_id: str, pane_pid: int | None) -> dict[str, str]:
    """What `up` says of an agent that goes on outside of the worktree that it has by now."""
    worktree, there = services.workplaces.of(agent_id), pane_pid and directory_of(pane_pid)
    if worktree is None or not there or Path(there).is_relative_to(os.path.realpath(worktree.path)):
        return {}
    return {"outside": there, "agent_id": agent_id}


def _start(windows: TeamWindows, agent: Agent, command: str, beginning: Beginning) -> AgentState:
    if (program := missing_program(command, windows.shell_of(Slot(agent.id, "task")))) is not None:
        return AgentState(agent.id, NO_PROGRAM, facts={"program": program})
    if not has_place(windows, agent):
        windows.records.wait(Slot(agent.id, "task"))
        return AgentState(agent.id, WAITS, facts={"most": windows.services.session.settings.at_most})
    earlier = frozenset(session.id for session in windows.services.sessions.running(agent.id))
    pane = windows.open(Slot(agent.id, "task"), command, stays=True, remains=True, continues=beginning.conversation)
    if pane is not None:
        _register(windows, agent, pane)
    lacking = left_out(windows.services, agent)
    return replace(_opened(agent.id, pane, STARTING, earlier), beginning=beginning, left_out=lacking)


def _restart(windows: TeamWindows, agent: Agent, pane: OwnPane, command: str, beginning: Beginning) -> AgentState:
    earlier = frozenset(session.id for session in windows.services.sessions.running(agent.id))
    windows.close_kept(Slot(agent.id, "task"))
    served = _served_in(windows, [pane])
    if beginning.continues:
        windows.end_program(pane)  # of two processes in one conversation, what one writes is lost
        _end_what_outlives(served)
    fresh = windows.restart(pane, command, continues=beginning.conversation)
    _end_what_outlives(served)
    if fresh is not None:
        _register(windows, agent, fresh)
    lacking = left_out(windows.services, agent)
    return replace(_opened(agent.id, fresh, STARTING, earlier), beginning=beginning, left_out=lacking)


def _opened(name: str, pane: OwnPane | None, state: str, earlier: frozenset[str] = frozenset()) -> AgentState:
    if pane is None:
        return AgentState(name, ENDED)
    if not pane.dead:
        return AgentState(name, state, pane.socket_path, pane.pane_id, earlier=earlier)
    lines = last_lines(pane.socket_path, pane.pane_id)
    return AgentState(name, ENDED, pane.socket_path, pane.pane_id, last_lines=lines, earlier=earlier)


def register_missing(windows: TeamWindows, agent: Agent, pane: OwnPane) -> None:
    """Registers the pane unless the agent's program still runs in the registered one."""
    if not is_reachable(agent):
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
        return Readiness(self.windows.services, states, lambda state: begin_again(self.windows, state))

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
