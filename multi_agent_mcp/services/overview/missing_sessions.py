"""The agent sessions that are missing, and the windows that were opened for them (docs/protocol.md, Missing
sessions)."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import DIED, PURPOSES, Agent, AgentSession
from multi_agent_mcp.domain.delivery import FirstPrompt
from multi_agent_mcp.domain.question import owing_agents
from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.domain.times import format_time, is_recent, parse_time
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.services.chat.delegations import Delegations
    from multi_agent_mcp.services.overview.supervision import Supervision
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.tasks.changes import TaskChanges
    from multi_agent_mcp.services.team.agents import Agents


FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=60)
RECENT_SESSIONS = 100
"""How many ended sessions, newest first, are searched for those of a window."""
LIVED_LONG_ENOUGH = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class Window:
    """The window opened for a slot: its pane, when it was opened, and the number of attempts before it that died at
    once. A window that `stays` was opened by `up`: a logout does not close it."""

    pane: Mapping[str, Any]
    opened_at: datetime
    failures: int = 0
    stays: bool = False
    earlier: frozenset[str] = frozenset()
    """The ids of the slot's sessions before the window: times would mislead if the clock is set back."""
    directory: str | None = None
    """The session's directory when this was recorded, which differs from the present one once it was moved."""
    is_down: bool = False
    """Whether `down AGENT` closed the slot: nothing is opened for it until `up`, whatever waits."""
    prompted: bool = False
    """Whether its program was given a first prompt."""
    continues: str | None = None
    """The conversation that its host was to continue."""
    waits: bool = False
    """Whether it is to be opened once fewer agents are at work, or this was to be done."""

    @property
    def intended(self) -> bool:
        """Whether this records only the intent to open the window; only tmux can tell whether it was opened."""
        return bool(self.pane) and "pane_id" not in self.pane

    def may_be_at(self, place: tuple[str, str] | None) -> bool:
        """Whether the window's pane is the one at `place` (its tmux socket and id), or this is not known."""
        if "pane_id" not in self.pane:
            return False
        socket_path, pane_id = os.path.realpath(str(self.pane.get("socket_path"))), self.pane["pane_id"]
        return place is None or (os.path.realpath(place[0]), place[1]) == (socket_path, pane_id)

    def rests(self, now: datetime) -> bool:
        """Whether it is closed, or it is too early for another attempt, after commands that died at once."""
        if self.is_down:
            return True
        doublings: int = 2 ** min(self.failures - 1, 10) if self.failures else 0
        return is_recent(self.opened_at, now, min(FIRST_PAUSE * doublings, LONGEST_PAUSE))


@dataclass(eq=False)
class MissingSessions(Service):
    """Finds missing agent sessions, and records the windows opened for them."""

    agents: Agents
    sessions: Sessions
    task_changes: TaskChanges
    delegations: Delegations
    supervision: Supervision

    def opens_chat(self, agent_id: str) -> bool:
        """Whether a supervisor runs that opens a chat window for an agent to whom a conversation's message came."""
        return self.supervision.is_running() and self.may_open(Slot(agent_id, "chat"))

    def needed(self) -> list[Slot]:
        """The slots with work but neither a live session nor a server, of agents that have a command. A session of
        either purpose can answer questions. Work is also what waits for whoever is free while nobody is."""
        slots: list[Slot] = []
        agents = [agent for agent in self.agents.all().values() if agent.command is not None]
        unfinished = self.task_changes.unfinished() if agents else ()
        owing = owing_agents(self.workspace.questions.open()) if agents else frozenset()
        chosen = self._chosen()
        for agent in agents:
            served = self.sessions.served_purposes(agent.id)
            owes = not served and (agent.id in owing or agent.id in chosen)
            if "task" not in served and (owes or self._has_task_work(agent, unfinished)):
                slots.append(Slot(agent.id, "task"))
            if "chat" not in served and self._has_chat_work(agent):
                slots.append(Slot(agent.id, "chat"))
        return slots

    def _chosen(self) -> set[str]:
        """The agents of this machine that are started for what waits for whoever is free: another one for each."""
        chosen: set[str] = set()
        for sleeping in self.contributions.ask("sleeping") or ():
            able = [agent_id for agent_id in sleeping if agent_id not in chosen and self._may_start(agent_id)]
            windows = {agent_id: self.window(Slot(agent_id, "task")) for agent_id in able}
            chosen.update(sorted(able, key=lambda one: (window := windows[one]) is not None and window.failures)[:1])
        return chosen

    def _may_start(self, agent_id: str) -> bool:
        agent = self.agents.get(agent_id)
        return agent.command is not None and self.workspace.is_here(agent) and not self.is_down(Slot(agent_id, "task"))

    def waiting(self) -> list[str]:
        """The agents of this machine that `needed` slots belong to."""
        needed = dict.fromkeys(slot.agent_id for slot in self.needed())
        return [agent_id for agent_id in needed if self.workspace.is_here(self.agents.get(agent_id))]

    def may_open(self, slot: Slot) -> bool:
        """Whether a supervisor opens a window when there is work for this slot: the agent has a command, which has not
        died at once, and the slot was not closed by `down AGENT`."""
        window = self.window(slot)
        is_fine = window is None or not (window.failures or window.is_down)
        return is_fine and self.agents.get(slot.agent_id).command is not None

    def finished(self, slot: Slot, window: Window) -> bool:
        """Whether sessions of this slot began in this window, all of them have ended, and at least one by logging out:
        the host of a server that merely died may still be working."""
        mine = self._sessions(slot, window.earlier)
        return all(session.ended_at is not None for session in mine) and any(item.state != DIED for item in mine)

    def closes_after_logout(self, agent_id: str, purpose: str, place: tuple[str, str] | None) -> bool:
        """Whether the supervisor opened the pane at `place` (its tmux socket and id) for this session only. A server
        that does not know its pane is taken to be in the slot's window: if it is not, a logout does no harm."""
        window = self.window(Slot(agent_id, purpose))
        return window is not None and not window.stays and window.may_be_at(place)

    def unheard_prompt(self, agent_id: str, purpose: str, place: tuple[str, str]) -> FirstPrompt | None:
        """The first prompt of the host in the pane at `place`, if no session that began there was ever called."""
        slot = Slot(agent_id, purpose)
        window = self.window(slot)
        if window is None or not window.prompted or not window.may_be_at(place):
            return None
        if any(session.called for session in self._sessions(slot, window.earlier)):
            return None
        return FirstPrompt(f"prompt.{purpose}.{format_time(window.opened_at)}", window.opened_at, (purpose,))

    def windows(self) -> dict[Slot, Window]:
        """The recorded windows, by slot."""
        found = {}
        for agent_id in self.agents.registry.all():
            for purpose in PURPOSES:
                window = self.window(Slot(agent_id, purpose))
                if window is not None:
                    found[Slot(agent_id, purpose)] = window
        return found

    def dying(self) -> dict[Slot, int]:
        """How often in a row the command of a slot has died at once, for slots without a running session by now."""
        failed = {slot: window.failures for slot, window in self.windows().items() if window.failures}
        return {slot: count for slot, count in failed.items() if not self._is_served(slot)}

    def _is_served(self, slot: Slot) -> bool:
        return any(session.purpose == slot.purpose for session in self.sessions.running(slot.agent_id))

    def record(
        self,
        slot: Slot,
        pane: Mapping[str, Any],
        failures: int,
        *,
        stays: bool = False,
        prompted: bool = False,
        continues: str | None = None,
    ) -> None:
        """Records a window. A pane with only a `socket_path` records the intent to open a window there, an empty pane a
        failure. What waits does so until its pane is recorded."""
        earlier = frozenset(session.id for session in self._sessions(slot))
        window = Window(
            pane=pane,
            opened_at=self.clock(),
            failures=failures,
            stays=stays,
            earlier=earlier,
            prompted=prompted,
            continues=continues,
            waits=bool(pane) and self.waits(slot),
        )
        self._write(slot, window)

    def record_pane(self, slot: Slot, pane: Mapping[str, Any]) -> None:
        """Records the pane of an intended window; one without a record stays open until `down`."""
        window = self.window(slot) or Window(pane={}, opened_at=self.clock(), stays=True)
        self._write(slot, replace(window, pane=pane, waits=False))

    def record_failure(self, slot: Slot, window: Window) -> None:
        """Keeps only the number of failures of a window that was not opened, or is gone, and whether it waits."""
        if window.waits:
            self.wait(slot)
        elif window.failures:
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
            "directory": os.path.realpath(self.workspace.path),
            "down": window.is_down,
            "prompted": window.prompted,
            "continues": window.continues,
            "waits": window.waits,
        }
        self.workspace.window(slot.agent_id, slot.purpose).write(record)

    def forget(self, slot: Slot) -> None:
        self.workspace.window(slot.agent_id, slot.purpose).remove()

    def put_down(self, agent_id: str) -> None:
        """Records that nothing is to be opened for the agent until `put_up`."""
        for purpose in PURPOSES:
            self._write(Slot(agent_id, purpose), Window(pane={}, opened_at=self.clock(), is_down=True))

    def put_up(self, agent_id: str) -> None:
        for slot in (Slot(agent_id, purpose) for purpose in PURPOSES):
            if self.is_down(slot):
                self.forget(slot)

    def wait(self, slot: Slot) -> None:
        """Records that the slot's window is to be opened once fewer agents are at work."""
        self._write(slot, Window(pane={}, opened_at=self.clock(), waits=True))

    def waits(self, slot: Slot) -> bool:
        window = self.window(slot)
        return window is not None and window.waits

    def is_down(self, slot: Slot) -> bool:
        window = self.window(slot)
        return window is not None and window.is_down

    def has_refused(self, slot: Slot, window: Window) -> bool:
        """Whether the host of a window that is gone did not continue its conversation: it ended without a session."""
        return window.continues is not None and not self._sessions(slot, window.earlier)

    def failures_after(self, slot: Slot, window: Window) -> int:
        """The number of failed attempts in a row, now that this window is gone: 0 if it had a session or lived for
        `LIVED_LONG_ENOUGH`."""
        lived_long = not is_recent(window.opened_at, self.clock(), LIVED_LONG_ENOUGH)
        return 0 if lived_long or self._sessions(slot, window.earlier) else window.failures + 1

    def _sessions(self, slot: Slot, without: frozenset[str] = frozenset()) -> list[AgentSession]:
        """The sessions of this slot, except `without`."""
        sessions = self.workspace.sessions.all(slot.agent_id, limit=RECENT_SESSIONS)
        return [item for item in sessions if item.purpose == slot.purpose and item.id not in without]

    def window(self, slot: Slot) -> Window | None:
        """The recorded window of a slot, or None; None, too, for a damaged record."""
        try:
            record = self.workspace.window(slot.agent_id, slot.purpose).facts()
            opened_at = parse_time(record.get("opened_at"))
            if opened_at is None:
                return None
            directory, continues = record.get("directory"), record.get("continues")
            return Window(
                pane=dict(record["pane"]),
                opened_at=opened_at,
                failures=int(record["failures"]),
                stays=record.get("stays") is True,
                earlier=frozenset(map(str, record.get("earlier_sessions", ()))),
                directory=directory and str(directory),
                is_down=record.get("down") is True,
                prompted=record.get("prompted") is True,
                continues=continues if isinstance(continues, str) else None,
                waits=record.get("waits") is True,
            )
        except (ArithmeticError, ValueError, KeyError, TypeError):
            return None  # derived: a damaged record may be ignored

    def _has_task_work(self, agent: Agent, unfinished: Collection[str]) -> bool:
        return bool(self.task_changes.current(agent.id) or self.task_changes.startable(agent.id, unfinished))

    def _has_chat_work(self, agent: Agent) -> bool:
        unread: list[Message] = [message for _, message in self.workspace.mailbox(agent.id).unread()]
        of_mail = self.delegations.conversations.of_mail
        talks = (talk for message in unread if (talk := of_mail(agent.id, message)) is not None)
        return bool(self.delegations.offered(agent.id)) or any(talk.status != "ended" for talk in talks)
