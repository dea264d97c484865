"""The state of an agent after `up`, and the wait for it: a code and its text (docs/protocol.md, Team in tmux)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from multi_agent_mcp.domain.agent import ON_DEMAND
from multi_agent_mcp.domain.delivery import OFFLINE
from multi_agent_mcp.doorbell.tmux.client import Server
from multi_agent_mcp.doorbell.tmux.profiles import PROMPT, Profile, load_profiles, recognise
from multi_agent_mcp.doorbell.tmux.screens import UNKNOWN, classify, dialog_topic
from multi_agent_mcp.doorbell.tmux.snapshot import PaneSnapshot, take_snapshot
from multi_agent_mcp.doorbell.tmux.team_panes import last_lines
from multi_agent_mcp.host_config import MCP_CONFIG, program_name
from multi_agent_mcp.hosts import host_named
from multi_agent_mcp.texts import Texts
from multi_agent_mcp.windows.agent_command import ANEW, FIRST, Beginning, has_refused
from multi_agent_mcp.wiring import Services

READY, STARTING, RUNNING, OPEN, ELSEWHERE = "ready", "starting", "running", "open", "elsewhere"
ENDED, NO_SERVER, UNKNOWN_SCREEN = "ended", "no_server", "unknown_screen"
NO_COMMAND, NO_PROGRAM, REFUSED, UNCONFIGURED = "no_command", "no_program", "refused", "unconfigured"
DIALOG, LIMITED, UNTYPED, WAITS = "dialog", "limited", "untyped", "waits"
RESUME_ASKED = "dialog:resume"
"""Its host asks how to go on with its conversation."""
OF_THE_HOST = ("hook", "codex_queue")
"""Channels that reach an agent whose pane takes no line."""
FINE = frozenset({READY, LIMITED, OPEN, ELSEWHERE, NO_COMMAND, ON_DEMAND, WAITS})
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


_UNREAD_OUTPUT = "#{&&:#{==:#{pane_mode},view-mode},#{==:#{session_attached},0}}"


def _uncover(socket_path: str, pane_id: str) -> None:
    """Takes away what tmux shows over a pane that nobody looks at: errors and output of programs that a person's
    tmux.conf runs, under which no line could be typed until somebody had looked."""
    Server(socket_path).pane(pane_id).if_true(_UNREAD_OUTPUT, f"send-keys -t {pane_id} -X cancel")


LOOK_AGAIN_SECONDS = 0.3
LASTS_SECONDS = 10.0
"""The time after which an unrecognised screen is reported: a starting host shows many for a moment."""
_UNSETTLED = (STARTING, RUNNING)
Report = Callable[[Sequence[AgentState]], None]


class Readiness:
    """Examines the opened panes repeatedly, without typing anything. `begin_again` is called for a host that has ended
    instead of continuing its conversation, and returns the new state."""

    def __init__(
        self, services: Services, opened: Sequence[AgentState], begin_again: Callable[[AgentState], AgentState]
    ) -> None:
        self.services = services
        self._begin_again = begin_again
        self._profiles = load_profiles(services.root / "hosts")
        self._seen = list(opened)
        self._unknown_since: dict[str, float] = {}

    def wait(self, seconds: float, report: Report) -> list[AgentState]:
        """Returns the states once two consecutive looks find no agent changing, after the given seconds, or on Ctrl-C.
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
        return self._begin_again(seen) if has_refused(command, seen.last_lines) else seen

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
        if snapshot.facts.in_mode:
            _uncover(item.socket_path, item.pane_id)
        state = self._state(item, snapshot, is_served=is_served) if is_agent else OPEN
        if state == READY and (reason := self._untyped(item, snapshot)) is not None:
            facts = {"reason": self.services.people.words_of(reason)}
            return replace(item, state=UNTYPED, facts={**item.facts, **facts}, last_lines=())
        limit = self.services.limited.now(item.agent_id) if state == READY else None
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
