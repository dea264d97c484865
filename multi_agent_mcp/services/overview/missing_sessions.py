"""Which agent sessions are missing: what the supervisor opens windows for (docs/protocol.md, Missing sessions).

Everything is derived from files: what was opened from `.supervisor/`, what is missing from tasks, delegations and mail.
So a supervisor can be killed and another one started at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from multi_agent_mcp.domain.agent import PURPOSES, Agent
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.session import DIED, AgentSession
from multi_agent_mcp.domain.times import format_time, is_recent, parse_time
from multi_agent_mcp.services.chat.delegations import Delegations
from multi_agent_mcp.services.sessions.agent_sessions import Sessions
from multi_agent_mcp.services.tasks.changes import TaskChanges
from multi_agent_mcp.services.team.agents import Agents
from multi_agent_mcp.store.workspace import Workspace

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=60)
RECENT_SESSIONS = 100
"""A window's session is among so many that have ended last, or still lives."""
LIVED_LONG_ENOUGH = timedelta(seconds=30)


@dataclass(frozen=True)
class Slot:
    """Where one agent session belongs: an agent and a purpose."""

    agent_id: str
    purpose: str

    @property
    def label(self) -> str:
        """Ids hold no dots."""
        return f"{self.agent_id}.{self.purpose}"

    @classmethod
    def of(cls, label: str) -> Slot:
        agent_id, _, purpose = label.rpartition(".")
        return cls(agent_id, purpose)

    @property
    def window_name(self) -> str:
        return f"{self.agent_id}-chat" if self.purpose == "chat" else self.agent_id


SUPERVISOR, OWNER = Slot("supervisor", "-"), Slot("owner", "-")
OWN_SLOTS = (SUPERVISOR, OWNER)
"""Windows of the team that are no agent's session: the supervisor's, and what the Owner looks at."""


@dataclass(frozen=True)
class Window:
    """What was opened for a slot: the pane, when, and how many attempts died at once before it. A window that `stays`
    was opened by `up`: a logout does not close it."""

    pane: Mapping[str, Any]
    opened_at: datetime
    failures: int = 0
    stays: bool = False
    earlier: frozenset[str] = frozenset()
    """The slot's sessions until then. Times would not say which came later, should the clock be set back."""

    @property
    def intended(self) -> bool:
        """It was about to be opened; whether it was, only tmux can tell."""
        return bool(self.pane) and "pane_id" not in self.pane

    def rests(self, now: datetime) -> bool:
        """Whether it is too early for another attempt after commands that died at once."""
        doublings: int = 2 ** min(self.failures - 1, 10) if self.failures else 0
        return is_recent(self.opened_at, now, min(FIRST_PAUSE * doublings, LONGEST_PAUSE))


@dataclass(eq=False)
class MissingSessions:
    """Knows which agent sessions are missing, and remembers the windows opened for them."""

    workspace: Workspace
    agents: Agents
    sessions: Sessions
    task_changes: TaskChanges
    delegations: Delegations
    clock: Callable[[], datetime]

    def needed(self) -> list[Slot]:
        """Slots with work and without a living session, of agents that have a command."""
        slots = []
        for agent in self.agents.all().values():
            if agent.command is None:
                continue
            living = {session.purpose for session in self.sessions.live(agent.id)}
            if "task" not in living and self._has_task_work(agent):
                slots.append(Slot(agent.id, "task"))
            if "chat" not in living and self._has_chat_work(agent):
                slots.append(Slot(agent.id, "chat"))
        return slots

    def finished(self, slot: Slot, window: Window) -> bool:
        """Whether a session of this slot began in this window and has logged out since, with none living now. The host
        of a server that has died may be at work still."""
        mine = self._sessions(slot, window.earlier)
        return all(session.ended_at is not None for session in mine) and any(item.state != DIED for item in mine)

    def windows(self) -> dict[Slot, Window]:
        """What was opened and not closed yet."""
        found = {}
        for agent_id in self.agents.registry.all():
            for purpose in PURPOSES:
                window = self.window(Slot(agent_id, purpose))
                if window is not None:
                    found[Slot(agent_id, purpose)] = window
        return found

    def record(self, slot: Slot, pane: Mapping[str, Any], failures: int, *, stays: bool = False) -> None:
        """Remembers a window; written whole before anything else is decided. With a pane of nothing but a
        `socket_path` it is the intent to open one there, without one a failure."""
        earlier = frozenset(session.id for session in self._sessions(slot))
        self._write(slot, Window(pane, self.clock(), failures, stays, earlier))

    def record_pane(self, slot: Slot, pane: Mapping[str, Any]) -> None:
        """Remembers the pane of a window that was intended; an unknown one stays until `down`."""
        self._write(slot, replace(self.window(slot) or Window({}, self.clock(), stays=True), pane=pane))

    def record_failure(self, slot: Slot, window: Window) -> None:
        """Keeps nothing but the failures of a window that was not opened, or is gone."""
        if window.failures:
            self.record(slot, {}, window.failures)
        else:
            self.forget(slot)

    def _write(self, slot: Slot, window: Window) -> None:
        record = {
            "opened_at": format_time(window.opened_at),
            "failures": window.failures,
            "stays": window.stays,
            "pane": dict(window.pane),
            "earlier_sessions": sorted(window.earlier),
        }
        self.workspace.window(slot.agent_id, slot.purpose).write(record)

    def forget(self, slot: Slot) -> None:
        self.workspace.window(slot.agent_id, slot.purpose).remove()

    def failures_after(self, slot: Slot, window: Window) -> int:
        """How many attempts in a row died, now that this window is gone: one that had a session, or that lived for a
        while, was none."""
        lived_long = not is_recent(window.opened_at, self.clock(), LIVED_LONG_ENOUGH)
        return 0 if lived_long or self._sessions(slot, window.earlier) else window.failures + 1

    def _sessions(self, slot: Slot, without: frozenset[str] = frozenset()) -> list[AgentSession]:
        """The sessions of this slot, except `without`."""
        known = self.workspace.sessions
        sessions = [*known.open(slot.agent_id), *known.closed(slot.agent_id, limit=RECENT_SESSIONS)]
        return [item for item in sessions if item.purpose == slot.purpose and item.id not in without]

    def window(self, slot: Slot) -> Window | None:
        """What was opened for a slot; None also for a damaged record."""
        try:
            record = self.workspace.window(slot.agent_id, slot.purpose).read()
            opened_at = parse_time(record["opened_at"])
            if opened_at is None:
                return None
            earlier = frozenset(map(str, record.get("earlier_sessions", ())))
            stays = record.get("stays") is True
            return Window(dict(record["pane"]), opened_at, int(record["failures"]), stays, earlier)
        except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError):
            return None  # derived; a damaged record is as good as none

    def _has_task_work(self, agent: Agent) -> bool:
        return bool(self.task_changes.current(agent.id) or self.task_changes.startable(agent.id))

    def _has_chat_work(self, agent: Agent) -> bool:
        unread: list[Message] = [message for _, message in self.workspace.mailbox(agent.id).unread()]
        return bool(self.delegations.offered(agent.id)) or any(
            self.delegations.conversations.of_mail(agent.id, message) for message in unread
        )
