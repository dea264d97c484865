"""Finds stuck agents and notifies their superiors (docs/protocol.md, Stuck agents).

Everything is derived from files, the content of panes from the supervisor's record, so all processes agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import Agent, AgentSession, nearest_superior
from multi_agent_mcp.domain.hosts.dialog import Asked, Dialog
from multi_agent_mcp.domain.overview.stuck import (
    AGENT_STUCK,
    DIALOG,
    LOGIN,
    AgentFacts,
    PaneLook,
    Patience,
    Stuck,
    stuck,
    stuck_notice,
)
from multi_agent_mcp.domain.task import WITH_ASSIGNEE, Task
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.domain.times import format_time, is_recent, json_values, parse_time
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.system.process import is_alive

if TYPE_CHECKING:
    from multi_agent_mcp.domain.hosts.limit import Limit
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.services.notifications.notifications import DerivedNotices
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.tasks.changes import TaskChanges
    from multi_agent_mcp.services.usage.limits import Limits
    from multi_agent_mcp.store.workspace import Workspace
    from multi_agent_mcp.texts import Texts

# The record of the supervisor's looks at agents' panes, for processes that do not look themselves (`watch`, the
# console) and for a restarted supervisor.

LOOK_EVERY = timedelta(seconds=30)
GOOD_FOR = timedelta(seconds=180)
ASKED_FOR = timedelta(seconds=75)
"""How long a recorded question is valid: after two missed looks no supervisor runs, and it may have been answered."""

LookAtPane = Callable[[Agent], tuple[str, str] | None]
"""Returns the host in an agent's pane, if it has a profile, and the state of its screen; else None."""


@dataclass(eq=False)
class PaneLooks:
    """The record `.supervisor/panes.json`, which is derived and may be deleted."""

    workspace: Workspace
    sessions: Sessions
    clock: Callable[[], datetime]

    def recorded(self) -> dict[str, PaneLook]:
        """The recorded looks by agent id, none if they are older than `GOOD_FOR`."""
        return self._last() if self._is_newer_than(GOOD_FOR) else {}

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
class StuckAgents:
    """Examines all agents that are not people; only `tell` writes."""

    workspace: Workspace
    sessions: Sessions
    derived: DerivedNotices
    task_changes: TaskChanges
    panes: PaneLooks
    limits: Limits
    texts: Texts
    patience: Patience
    clock: Callable[[], datetime]

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
            "task_id": found.task_id if task is None else self.texts("stuck.titled", title=one_line(task.title)),
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
        since = ((max([task.updated_at, *self._finished(task.dependencies)]), task.id) for task in waiting)
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
        return any(task.status == "in_progress" for task in self.mine[agent_id]) or self._others_work_for(agent_id)

    def turn_of(self, agent_id: str) -> tuple[str, datetime] | None:
        """The id of the task that the agent has worked on for longest, and since when it is its turn. None while others
        work on tasks from it, whose last change also restarts its turn: it waits to hear of them."""
        working = [task for task in self.mine[agent_id] if task.status == "in_progress"]
        running = [task for task in working if not task.is_examined]  # else it waits for its checks
        if not running or self._others_work_for(agent_id):
            return None
        began_at, task_id = min((task.status_since, task.id) for task in running)
        return task_id, max([began_at, *(task.updated_at for task in self.given[agent_id])])

    def _others_work_for(self, agent_id: str) -> bool:
        return any(task.status in WITH_ASSIGNEE for task in self.given[agent_id])


# Which dialogs were listed to whom a moment ago, so that a person who has just read a question need not repeat its id
# (docs/protocol.md, Answering a dialog).

LISTED_FOR = timedelta(minutes=1)


@dataclass(eq=False)
class ListedDialogs:
    """The records `.listed/{agent_id}.json`, one for each person, which may be deleted."""

    workspace: Workspace
    clock: Callable[[], datetime]

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
