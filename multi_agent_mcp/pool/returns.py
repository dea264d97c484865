"""Work comes back: a task whose agent is gone for too long is in `todo` again, for somebody else
(docs/protocol.md, Whoever is free)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.agent import Agent, nearest_superior
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.notification import Notification, derived_id
from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.domain.times import duration_words
from multi_agent_mcp.errors import InvalidStatusTransition, Refusal
from multi_agent_mcp.services.tasks.changes import TaskChange
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.pool.awake import AwakeTime, Uptimes
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run
    from multi_agent_mcp.services.overview.missing_sessions import MissingSessions
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.sessions.session_records import HandOffs
    from multi_agent_mcp.services.team.workplaces import Workplaces

WORK_RETURNED = "work_returned"
"""The action of the notifications that a task came back, to a superior and to the agent that had it."""
SYSTEM = "system"
LOOK_EVERY = 10.0
"""In seconds."""
LOOKED_AT = 20
"""How many ended sessions of an agent are looked at for the last end: their order is by a clock that may be set."""


@dataclass(frozen=True, kw_only=True)
class ReturnTask(TaskChange):
    """A task comes back from an agent that is gone; `superior_id` is told, if there is one."""

    KIND = "return_task"

    agent_id: str
    superior_id: str | None


@dataclass(eq=False)
class Returns(Service):
    """Takes tasks in progress from agents that have had no server for `limits.return_minutes`."""

    awake: AwakeTime
    sessions: Sessions
    derived_notices: DerivedNotices
    missing_sessions: MissingSessions
    hand_offs: HandOffs
    workplaces: Workplaces
    operations: Operations
    _looked_at: float | None = field(default=None, init=False)

    def look(self) -> None:
        """Takes back what has to be, every few seconds. Never raises: the next look tries again."""
        patience = self.session.settings.limits.return_minutes * 60
        if not patience:
            return
        with suppress(Refusal):
            times = self.awake.look()
            if self._looked_at is not None and 0 <= times.now - self._looked_at < min(LOOK_EVERY, patience / 4):
                return
            self._looked_at = times.now
            for task in [task for task in self.workspace.tasks.open() if _is_in_hand(task)]:
                agent = self.workspace.registry.active().get(str(task.assignee_id))
                if agent is not None and self._has_left(agent):
                    self.sessions.recover(agent.id)  # so that a session that was killed has an end
                    if self._is_away(agent, task, patience, times):
                        self._take_back(agent, task)

    def _has_left(self, agent: Agent) -> bool:
        """Whether an agent of this machine has no server, although `down` has not closed its windows."""
        if agent.may_be_human or not self.workspace.is_here(agent) or self.sessions.alive(agent.id):
            return False
        return not self.missing_sessions.is_down(Slot(agent.id, "task"))

    def _is_away(self, agent: Agent, task: Task, patience: float, times: Uptimes) -> bool:
        """Whether the agent, which had a server, has had none for so many seconds, counting only time in which others
        of the team had one."""
        ended = [at for one in self.workspace.sessions.closed(agent.id, limit=LOOKED_AT) if (at := one.ended_at)]
        if not ended:
            return False
        since = max(map(times.of, (*ended, task.status_since)))
        begin = min(*ended, self.clock() - timedelta(seconds=times.now - since))
        return times.now - since >= patience and self._time_of_others(agent.id, since, times, begin) >= patience

    def _time_of_others(self, agent_id: str, since: float, times: Uptimes, begin: datetime) -> float:
        """For how many seconds since then anybody else of the team had a server, by the sessions that run or have ended
        after `begin`."""
        of = times.of
        running = [(of(one.created_at), times.now) for one in self.sessions.everywhere() if one.agent_id != agent_id]
        known = (one for one in self.workspace.sessions.closed(since=begin) if one.agent_id != agent_id)
        ended = ((of(one.created_at), of(one.ended_at)) for one in known if one.ended_at is not None)
        return covered([*running, *ended], since)

    def _take_back(self, agent: Agent, task: Task) -> None:
        superior = nearest_superior(agent.id, self.workspace.registry.all())
        change = Change(by=SYSTEM, at=self.clock(), reason=self._reason(agent, task))
        told = superior.id if superior is not None else None
        with suppress(InvalidStatusTransition):  # another process was faster
            self.operations.run(ReturnTask(task_id=task.id, change=change, agent_id=agent.id, superior_id=told))

    def _reason(self, agent: Agent, task: Task) -> str:
        """Why it came back, and where the work done on it is."""
        words = duration_words(timedelta(minutes=self.session.settings.limits.return_minutes), self.session.people)
        said = [self.texts("returned.reason", agent_id=agent.id, length=words)]
        if (kept := self.hand_offs.about(task.id)) is not None:
            said.append(self.texts("returned.hand_off", path=str(kept.path.absolute())))
        if (place := self.workplaces.of(agent.id)) is not None:
            said.append(self.texts("returned.worktree", path=place.path, branch=place.branch))
        return " ".join(said)

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {ReturnTask: self.apply}

    def apply(self, operation: ReturnTask, run: Run) -> Task:
        """Puts the task back, and notifies both. Raises `InvalidStatusTransition` if it is not in its agent's hands."""
        change = operation.change.within(run.intent_id)

        def give_back(found: Task) -> Task:
            if found.has_taken(run.intent_id):
                return found
            if not _is_in_hand(found) or found.assignee_id != operation.agent_id:
                raise InvalidStatusTransition("not_claimable", task_id=found.id, status=found.status)
            return found.assigned(None, change)

        task = self.workspace.tasks.update(operation.task_id, give_back)
        for target, text in ((operation.superior_id, "notice.work_returned"), (operation.agent_id, "notice.work_gone")):
            if target is not None:
                self.derived_notices.writer.put_new(_notice(task, target, change, run.intent_id), text)
        self.derived_notices.follow_up(task)
        self.derived_notices.end(operation.agent_id)
        return task


def _is_in_hand(task: Task) -> bool:
    return task.is_worked_on and not task.is_examined and task.assignee_id is not None


def _notice(task: Task, target_id: str, change: Change, intent_id: str) -> Notification:
    return Notification(
        id=derived_id(WORK_RETURNED, intent_id, target_id),
        target_agent_id=target_id,
        target_purpose="task",
        type="status_change",
        action=WORK_RETURNED,
        task_id=task.id,
        created_at=change.at,
        reason=change.reason,
    )


def covered(spans: Iterable[tuple[float, float]], since: float) -> float:
    """How much of the time since then is within one of the spans."""
    total, reached = 0.0, since
    for begin, end in sorted(spans):
        begin = max(begin, reached)
        if end > begin:
            total, reached = total + (end - begin), end
    return total
