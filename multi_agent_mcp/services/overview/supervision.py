"""What the supervisor looks after: the missing agent sessions, for which it opens windows, and stuck agents
(docs/protocol.md, Missing sessions, Stuck agents).

All state is in files: the opened windows in `.supervisor/`, the need for sessions in tasks, delegations and mail. So a
supervisor can be killed and another one started at any time."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import DIED, PURPOSES, Agent, AgentSession, nearest_superior
from multi_agent_mcp.domain.delivery import FirstPrompt
from multi_agent_mcp.domain.dialog import Asked, Dialog
from multi_agent_mcp.domain.question import owing_agents
from multi_agent_mcp.domain.stuck import (
    AGENT_STUCK,
    DIALOG,
    LOGIN,
    PANE_PATIENCE,
    AgentFacts,
    PaneLook,
    Patience,
    Stuck,
    stuck,
    stuck_notice,
)
from multi_agent_mcp.domain.text import quoted
from multi_agent_mcp.domain.times import format_time, is_recent, json_values, parse_time
from multi_agent_mcp.errors import AlreadyExists, StorageError
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.store.locks import WINDOWS
from multi_agent_mcp.system.process import is_alive, own_start

if TYPE_CHECKING:
    from multi_agent_mcp.domain.limit import Limit
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.chat import Delegations
    from multi_agent_mcp.services.notifications.notifications import DerivedNotices
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.tasks.changes import TaskChanges
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.services.usage.limits import UsageLimits

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=60)
RECENT_SESSIONS = 100
"""How many ended sessions, newest first, are searched for those of a window."""
LIVED_LONG_ENOUGH = timedelta(seconds=30)


@dataclass(frozen=True)
class Slot:
    """The place of one agent session: an agent and a purpose."""

    agent_id: str
    purpose: str

    @property
    def label(self) -> str:
        """The slot as text, parsed by `of`; ids contain no dots."""
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
"""The team's windows that are no agent's session: the supervisor's and the Owner's view."""


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
        either purpose can answer questions."""
        slots: list[Slot] = []
        agents = [agent for agent in self.agents.all().values() if agent.command is not None]
        unfinished = self.task_changes.unfinished() if agents else ()
        owing = owing_agents(self.workspace.questions.open()) if agents else frozenset()
        for agent in agents:
            served = self.sessions.served_purposes(agent.id)
            owes = not served and agent.id in owing
            if "task" not in served and (owes or self._has_task_work(agent, unfinished)):
                slots.append(Slot(agent.id, "task"))
            if "chat" not in served and self._has_chat_work(agent):
                slots.append(Slot(agent.id, "chat"))
        return slots

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
        failure."""
        earlier = frozenset(session.id for session in self._sessions(slot))
        window = Window(
            pane=pane,
            opened_at=self.clock(),
            failures=failures,
            stays=stays,
            earlier=earlier,
            prompted=prompted,
            continues=continues,
        )
        self._write(slot, window)

    def record_pane(self, slot: Slot, pane: Mapping[str, Any]) -> None:
        """Records the pane of an intended window; one without a record stays open until `down`."""
        self._write(slot, replace(self.window(slot) or Window(pane={}, opened_at=self.clock(), stays=True), pane=pane))

    def record_failure(self, slot: Slot, window: Window) -> None:
        """Keeps only the number of failures of a window that was not opened, or is gone."""
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
            "directory": os.path.realpath(self.workspace.path),
            "down": window.is_down,
            "prompted": window.prompted,
            "continues": window.continues,
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
        known = self.workspace.sessions
        sessions = [*known.open(slot.agent_id), *known.closed(slot.agent_id, limit=RECENT_SESSIONS)]
        return [item for item in sessions if item.purpose == slot.purpose and item.id not in without]

    def window(self, slot: Slot) -> Window | None:
        """The recorded window of a slot, or None; None, too, for a damaged record."""
        try:
            record = self.workspace.window(slot.agent_id, slot.purpose).read()
            opened_at = parse_time(record["opened_at"])
            if opened_at is None:
                return None
            earlier = frozenset(map(str, record.get("earlier_sessions", ())))
            stays, is_down = record.get("stays") is True, record.get("down") is True
            pane, directory = dict(record["pane"]), record.get("directory")
            known = directory and str(directory)
            prompted, continues = record.get("prompted") is True, record.get("continues")
            continues = continues if isinstance(continues, str) else None
            failures = int(record["failures"])
            return Window(
                pane=pane,
                opened_at=opened_at,
                failures=failures,
                stays=stays,
                earlier=earlier,
                directory=known,
                is_down=is_down,
                prompted=prompted,
                continues=continues,
            )
        except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError):
            return None  # derived: a damaged record may be ignored

    def _has_task_work(self, agent: Agent, unfinished: Collection[str]) -> bool:
        return bool(self.task_changes.current(agent.id) or self.task_changes.startable(agent.id, unfinished))

    def _has_chat_work(self, agent: Agent) -> bool:
        unread: list[Message] = [message for _, message in self.workspace.mailbox(agent.id).unread()]
        of_mail = self.delegations.conversations.of_mail
        talks = (talk for message in unread if (talk := of_mail(agent.id, message)) is not None)
        return bool(self.delegations.offered(agent.id)) or any(talk.status != "ended" for talk in talks)


# The lock of the process that supervises a session: one at a time, and none after `down`.


class Supervision(Service):
    """The record of the process that supervises, valid while that process lives."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._locks = session.workspace.locks
        self._record = session.workspace.supervision

    def locked(self) -> AbstractContextManager[None]:
        """The lock for examining the team's windows and opening or closing some."""
        return self._locks.held(WINDOWS)

    def begin(self) -> None:
        """Makes this process the supervisor. Raises `AlreadyExists` if there is another one."""
        with self.locked():
            if pid := self.running():
                raise AlreadyExists("supervisor_runs", pid=pid)
            self._record.write({"pid": os.getpid(), "pid_started_at": own_start()})

    def is_running(self) -> bool:
        """Whether a process supervises."""
        return self.running() is not None

    def running(self) -> int | None:
        """The id of the process that supervises, or None."""
        try:
            record = self._record.read()
            pid, start = int(record["pid"]), record["pid_started_at"]
        except (ArithmeticError, ValueError, KeyError, TypeError):
            return None
        return pid if is_alive(pid, start) else None

    @property
    def has_died(self) -> bool:
        """Whether the process that supervised has ended, but not by `down`."""
        return self._record.read() is not None and self.running() is None

    def end(self) -> None:
        """Removes the record; a running supervisor ends at its next look. The caller holds the lock."""
        self._record.remove()


# Stuck agents, of whom their superiors are notified. Everything is derived from files, the content of panes from the
# supervisor's record, so all processes agree.

# The record of the supervisor's looks at agents' panes, for processes that do not look themselves (`watch`, the
# console) and for a restarted supervisor.

LOOK_EVERY = timedelta(seconds=30)
GOOD_FOR = timedelta(seconds=180)
ASKED_FOR = timedelta(seconds=75)
"""How long a recorded question is valid: after two missed looks no supervisor runs, and it may have been answered."""

LookAtPane = Callable[[Agent], tuple[str, str] | None]
"""Returns the host in an agent's pane, if it has a profile, and the state of its screen; else None."""


@dataclass(eq=False)
class PaneLooks(Service):
    """The record `.supervisor/panes.json`, which is derived and may be deleted."""

    sessions: Sessions

    def recorded(self) -> dict[str, PaneLook]:
        """The recorded looks by agent id, none if they are older than `GOOD_FOR`."""
        return self._last() if self._is_newer_than(GOOD_FOR) else {}

    def is_offline(self, agent_id: str) -> bool:
        """Whether the agent's host was last seen to have been without its model for longer than may pass."""
        look = self.recorded().get(agent_id)
        return look is not None and look.is_offline and self.clock() - look.since >= PANE_PATIENCE

    def now(self, look_at: LookAtPane) -> dict[str, PaneLook]:
        """Looks at the panes of all agents that are not people. Writes nothing."""
        before = self._last()
        looks: dict[str, PaneLook] = {}
        for agent in self.workspace.registry.active().values():
            seen = look_at(agent) if agent.pane_id is not None and not agent.may_be_human else None
            if seen is not None:
                looks[agent.id] = self._continued(agent.id, *seen, before.get(agent.id))
        return looks

    def refresh(
        self,
        look_at: LookAtPane,
        dialog: Callable[[Agent], Dialog | None] = lambda _: None,
        every: timedelta = LOOK_EVERY,
    ) -> None:
        """Looks again and writes the record, unless it is newer than `every`; `dialog` reads a pane's dialog."""
        if not self._is_newer_than(every):
            looks = self.now(look_at)
            panes = {agent_id: asdict(look, dict_factory=json_values) for agent_id, look in looks.items()}
            asked = [asdict(item, dict_factory=json_values) for item in self._asking(looks, dialog)]
            record = {"at": format_time(self.clock()), "panes": panes, "asked": asked}
            self.workspace.pane_looks.write(record, durable=False)

    def asked(self) -> tuple[Asked, ...]:
        """The agents last seen waiting for a human, none if the record is older than `ASKED_FOR`."""
        return tuple(self._last_asked()) if self._is_newer_than(ASKED_FOR) else ()

    def forget(self) -> None:
        """Removes the record, because the panes are closed. Raises `StorageError`."""
        self.workspace.pane_looks.remove()

    def _asking(self, looks: Mapping[str, PaneLook], dialog: Callable[[Agent], Dialog | None]) -> Iterator[Asked]:
        """The agents whose panes wait for a human. A question seen before keeps its time."""
        last = self._last_asked() if self._is_newer_than(GOOD_FOR) else ()
        before = {(item.agent_id, item.topic, item.dialog_id): item for item in last}
        agents = self.workspace.registry.active()
        for agent_id, look in looks.items():
            if look.state in (DIALOG, LOGIN):
                shown = dialog(agents[agent_id]) if look.asks else None
                topic = LOGIN if look.asks_for_login else shown.topic if shown is not None else None
                known = agent_id, topic, shown.id if shown is not None else None
                yield before.get(known) or Asked(agent_id, topic, self.clock(), known[2])

    def _last_asked(self) -> Iterator[Asked]:
        found = self._read().get("asked")
        for facts in found if isinstance(found, list) else ():
            with suppress(ValueError, LookupError, TypeError, AttributeError):  # a damaged record
                yield Asked.parse(facts)

    def _continued(self, agent_id: str, host: str, state: str, before: PaneLook | None) -> PaneLook:
        """The new look, which keeps the time of the one before if it is like it."""
        look = PaneLook(host, state, self.sessions.alive(agent_id), self.clock())
        return replace(look, since=before.since) if before is not None and look.is_like(before) else look

    def _last(self) -> dict[str, PaneLook]:
        panes = self._read().get("panes")
        looks = {agent_id: _look(pane) for agent_id, pane in (panes.items() if isinstance(panes, dict) else ())}
        return {agent_id: look for agent_id, look in looks.items() if look is not None}

    def _is_newer_than(self, length: timedelta) -> bool:
        at = parse_time(self._read().get("at"))
        return at is not None and is_recent(at, self.clock(), length)

    def _read(self) -> Mapping[str, Any]:
        record = self.workspace.pane_looks.read()
        return record if isinstance(record, dict) else {}


def _look(record: Any) -> PaneLook | None:
    """Parses a recorded look; None if it is damaged."""
    if not isinstance(record, dict) or (since := parse_time(record.get("since"))) is None:
        return None
    return PaneLook(str(record.get("host")), str(record.get("state")), record.get("served") is True, since)


@dataclass(eq=False)
class StuckAgents(Service):
    """Examines all agents that are not people; only `tell` writes."""

    sessions: Sessions
    derived: DerivedNotices
    task_changes: TaskChanges
    panes: PaneLooks
    limits: UsageLimits

    @cached_property
    def patience(self) -> Patience:
        """How long an agent may be silent before it is stuck."""
        return Patience(timedelta(minutes=self.session.settings.limits.stuck_minutes))

    def find(
        self,
        looks: Mapping[str, PaneLook] | None = None,
        patience: Patience | None = None,
        *,
        only: str | None = None,
    ) -> dict[str, Stuck]:
        """The stuck agents, by id, or `only` the one of this id. `looks` are the looks at their panes; None: those
        recorded by the supervisor."""
        seen = self.panes.recorded() if looks is None else looks
        now = self.clock()
        agents = (
            agent
            for agent in self.workspace.registry.active().values()
            if not agent.may_be_human and only in (None, agent.id)
        )
        with self.workspace.tasks.read_once():  # else each agent's look at the tasks would be one at 200 directories
            work = _Work(self.workspace.tasks.open())
            facts = {agent.id: self._facts(agent, work, seen.get(agent.id)) for agent in agents}
            found = {agent_id: stuck(known, now, patience or self.patience) for agent_id, known in facts.items()}
            heard = cache(self._lately_heard)
            return {
                agent_id: what
                for agent_id, what in found.items()
                if what is not None and not self._is_excused(agent_id, what, heard)
            }

    def tell(self) -> list[Notification]:
        """Notifies the superior of each stuck agent, once, and settles notifications that no longer apply. Returns the
        new ones. Raises `StorageError`."""
        new = [notice for notice in self._notices() if self.derived.writer.put_new(notice, "notice.agent_stuck")]
        for notice in new:
            self.derived.offer_again(notice.sender_id or "")
        for agent_id in self.workspace.registry.active():
            if any(notice.action == AGENT_STUCK for _, notice in self.workspace.notices(agent_id).unread()):
                self.derived.settle(agent_id)
        return new

    def sentence(self, found: Stuck, *, titled: bool = False) -> str:
        """The sentence that describes why an agent is stuck. `titled`: for people, with the task's title for its id."""
        facts = found.facts
        task = self.workspace.tasks.find(found.task_id) if titled and found.task_id is not None else None
        values = {
            "task_id": found.task_id if task is None else self.texts("stuck.titled", title=quoted(task.title)),
            "length": self._length(self.clock() - found.since),
            "host": facts.pane.host if facts.pane else "-",
        }
        words = self.texts(f"stuck.{found.kind}", **values)
        return words if facts.pane is None else words + self.texts("stuck.screen", screen=facts.pane.state)

    def _length(self, length: timedelta) -> str:
        """A length in the largest unit of which it has one, as the column beside the sentence says it."""
        minutes = int(length.total_seconds() // 60)
        unit, of = ("d", 1440) if minutes >= 1440 else ("h", 60) if minutes >= 60 else ("min", 1)
        return self.texts(f"stuck.{unit}", number=minutes // of)

    def _notices(self) -> Iterator[Notification]:
        for agent_id, found in self.find().items():
            superior = nearest_superior(agent_id, self.workspace.registry.all())
            if superior is not None:
                yield stuck_notice(agent_id, found, superior.id, self.sentence(found))

    def _facts(self, agent: Agent, work: _Work, pane: PaneLook | None) -> AgentFacts:
        running = self.sessions.running(agent.id)
        task_id, task_since = work.turn_of(agent.id) or (None, None)
        untaken_id, untaken_since = self._untaken_by(agent.id, work) or (None, None)
        return AgentFacts(
            alive=self.sessions.alive(agent.id),
            left=pane is not None and self._has_left(agent.id),
            active_at=self._active_at(agent.id),
            task_id=task_id,
            task_since=task_since,
            untaken_id=untaken_id,
            untaken_since=untaken_since,
            unread_since=min(self._readable(agent.id, running).values(), default=None),
            pane=pane,
        )

    def _untaken_by(self, agent_id: str, work: _Work) -> tuple[str, datetime] | None:
        """The id of the task that the agent could have begun for longest, and since when. None while it works on one,
        or others on tasks from it."""
        has_some = any(task.status == "todo" for task in work.mine[agent_id])
        waiting = (
            self.task_changes.startable(agent_id, work.unfinished) if has_some and not work.occupies(agent_id) else ()
        )
        since = ((max([task.changed_at, *self._finished(task.dependencies)]), task.id) for task in waiting)
        first = min(since, default=None)
        return None if first is None else (first[1], first[0])

    def _finished(self, task_ids: Iterable[str]) -> Iterator[datetime]:
        """When these tasks were finished."""
        found = map(self.workspace.tasks.find, task_ids)
        return (task.completed_at for task in found if task is not None and task.completed_at is not None)

    def _active_at(self, agent_id: str) -> datetime | None:
        """The time of the agent's last call, or of a later pause or resumption."""
        told = self.derived.interrupts.newest_of_pausing(agent_id)
        moments = (self.sessions.last_activity(agent_id), told.created_at if told is not None else None)
        return max(filter(None, moments), default=None)

    def _has_left(self, agent_id: str) -> bool:
        last = self.workspace.sessions.closed(agent_id, limit=1)
        return any(is_alive(session.pid, session.pid_started_at) for session in last)

    def _readable(self, agent_id: str, running: Iterable[AgentSession]) -> dict[str, datetime]:
        """The creation times, by id, of the unread items that the agent can read in a running session, or in one that
        its server opens with its next call (if there is neither, in a task session)."""
        purposes = {session.purpose for session in running} | self.workspace.served_purposes(agent_id) or {"task"}
        notices = [
            notice for notice in self.derived.waiting(agent_id) if notice.rings and any(map(notice.meant_for, purposes))
        ]
        mail = [message for _, message in self.workspace.mailbox(agent_id).unread()]
        return {item.id: item.created_at for item in (*notices, *mail)}

    def _is_excused(self, agent_id: str, found: Stuck, heard: Callable[[], Collection[str]]) -> bool:
        """Whether an agent that seems stuck is not: somebody has interrupted or paused it, or it could not know that it
        is its turn. Too costly to check for every agent."""
        interrupted = any(notice.interrupts for notice in self.derived.waiting(agent_id))
        if interrupted or self.derived.pause_of(agent_id) is not None:
            return True
        if (limit := self.limits.of(agent_id)) is not None and not self._has_had_its_time(limit):
            return True
        if found.cause == "silent":
            return agent_id in heard()
        return found.cause == "unanswered" and not self._was_rung(agent_id, found)

    def _has_had_its_time(self, limit: Limit) -> bool:
        """Whether an agent has been silent for too long since its usage limit was reset."""
        now = self.clock()
        if limit.lasts(now):
            return False
        since = max(filter(None, (limit.until, limit.rung_at, limit.next_ring)), default=now)
        return now - since >= self.patience.silence

    def _lately_heard(self) -> Collection[str]:
        """The agents of whose tasks that they have given to others one was finished within the patience for silence: it
        was the others' turn. Once for all agents: it looks into every directory of tasks."""
        earliest = self.clock() - self.patience.silence
        finished = (task for task in self.workspace.tasks.closed(since=earliest) if task.updated_at > earliest)
        return {task.created_by for task in finished if task.given_away_by(task.created_by)}

    def _was_rung(self, agent_id: str, found: Stuck) -> bool:
        """Whether the agent was rung long enough ago, whatever times the unread files claim. For an agent without a
        server failed attempts do not count."""
        steps = self.workspace.delivery_log(agent_id).steps()
        readable = self._readable(agent_id, self.sessions.running(agent_id))
        tried = [
            parse_time(step.get("at"))
            for item_id in readable
            for step in steps.get(item_id, ())
            if found.facts.alive or step.get("state") != "deferred"
        ]
        return any(at is not None and self.clock() - at >= self.patience.silence for at in tried)


class _Work:
    """The open tasks by agent: those that are `mine`, and those that an agent has `given` to others."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.mine: defaultdict[str | None, list[Task]] = defaultdict(list)
        self.given: defaultdict[str, list[Task]] = defaultdict(list)
        self.unfinished: set[str] = set()
        """The ids of the tasks that others may wait for."""
        for task in tasks:
            self.mine[task.assignee_id].append(task)
            if task.given_away_by(task.created_by):
                self.given[task.created_by].append(task)
            if task.status != "done":
                self.unfinished.add(task.id)

    def occupies(self, agent_id: str) -> bool:
        """Whether the agent has a task in progress, or others have tasks from it."""
        return any(task.is_worked_on for task in self.mine[agent_id]) or self._others_work_for(agent_id)

    def turn_of(self, agent_id: str) -> tuple[str, datetime] | None:
        """The id of the task that the agent has worked on for longest, and since when it is its turn. None while others
        work on tasks from it, whose last change also restarts its turn: it waits to hear of them."""
        working = [task for task in self.mine[agent_id] if task.is_worked_on]
        running = [task for task in working if not task.is_examined]  # else it waits for its checks
        if not running or self._others_work_for(agent_id):
            return None
        began_at, task_id = min((task.status_since, task.id) for task in running)
        return task_id, max([began_at, *(task.updated_at for task in self.given[agent_id])])

    def _others_work_for(self, agent_id: str) -> bool:
        return any(task.status == "todo" or task.is_worked_on for task in self.given[agent_id])


# Which dialogs were listed to whom a moment ago, so that a person who has just read a question need not repeat its id
# (docs/protocol.md, Answering a dialog).

LISTED_FOR = timedelta(minutes=1)


@dataclass(eq=False)
class ListedDialogs(Service):
    """The records `.listed/{agent_id}.json`, one for each person, which may be deleted."""

    def note(self, person_id: str, dialogs: Mapping[str, Dialog]) -> None:
        """Records that these dialogs, by agent id, are now listed to the person. Best effort: what is not recorded is
        asked for once more."""
        if dialogs:
            at = format_time(self.clock())
            new = {agent_id: {"id": dialog.id, "at": at} for agent_id, dialog in dialogs.items()}
            with suppress(StorageError):
                self.workspace.listed_dialogs(person_id).write({**self._read(person_id), **new}, durable=False)

    def of(self, person_id: str, agent_id: str) -> str | None:
        """The id of the agent's dialog that was last listed to the person; None if that is longer ago than
        `LISTED_FOR`."""
        record = self._read(person_id).get(agent_id)
        if not isinstance(record, dict) or (at := parse_time(record.get("at"))) is None:
            return None
        return str(record.get("id")) if is_recent(at, self.clock(), LISTED_FOR) else None

    def _read(self, person_id: str) -> Mapping[str, object]:
        record = self.workspace.listed_dialogs(person_id).read()
        return record if isinstance(record, dict) else {}
