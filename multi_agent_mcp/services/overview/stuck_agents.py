"""Stuck agents, of whom their superiors are notified (docs/protocol.md, Stuck agents). Everything is derived from
files, the content of panes from the supervisor's record, so all processes agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.agent import Agent, AgentSession, nearest_superior
from multi_agent_mcp.domain.stuck import AGENT_STUCK, AgentFacts, PaneLook, Patience, Stuck, stuck, stuck_notice
from multi_agent_mcp.domain.text import quoted
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.session import Service
from multi_agent_mcp.system.process import is_alive

if TYPE_CHECKING:
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.overview.pane_looks import PaneLooks
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.tasks.changes import TaskChanges


@dataclass(eq=False)
class StuckAgents(Service):
    """Examines all agents that are not people; only `tell` writes."""

    sessions: Sessions
    derived: DerivedNotices
    task_changes: TaskChanges
    panes: PaneLooks

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
        """Notifies the superior of each stuck agent, once, and ends notifications that no longer apply. Returns the
        new ones. Raises `StorageError`."""
        new = [notice for notice in self._notices() if self.derived.writer.put_new(notice, "notice.agent_stuck")]
        for notice in new:
            self.derived.offer_again(notice.sender_id or "")
        for agent_id in self.workspace.registry.active():
            if any(notice.action == AGENT_STUCK for _, notice in self.workspace.notices(agent_id).unread()):
                self.derived.end(agent_id)
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
        if facts.pane is None:
            return words
        return words + self.texts("stuck.screen", screen=self.texts.word("screen", facts.pane.state))

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
        if self.contributions.ask("is_excused", agent_id, self.patience.silence):
            return True
        if found.cause == "silent":
            return agent_id in heard()
        return found.cause == "unanswered" and not self._was_rung(agent_id, found)

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
    """The open tasks by agent: assigned to it (`mine`), and `given` by it to others."""

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
