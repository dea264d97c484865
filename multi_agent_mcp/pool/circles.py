"""Circles of waiting that lead through leases and tasks: agents that, as far as the files say, wait for each other
(docs/protocol.md, Whoever is free). Those of questions alone are `services.questions`'s."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from multi_agent_mcp.domain.notification import CIRCLE, Notification, derived_id
from multi_agent_mcp.domain.question import cycles, parked_by
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.pool.feature import WATCHES
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.pool.leases import Leases
    from multi_agent_mcp.services.questions import QuestionEffects
    from multi_agent_mcp.texts import Texts

QUESTION, LEASE, TASK, STATE = "question", "lease", "task", "state"
WORKED_FOR = frozenset({"idle", "done", "merged"})
"""The states that an agent reaches by its own work; `blocked` and `available` come from elsewhere."""


class Wait(NamedTuple):
    """One agent waits for another one: for the answer to a question, a lease that it has, a task that it does. `name`
    is the question, the lease or the task; `id` is the same for the same wait."""

    id: str
    asker_id: str
    to_id: str
    kind: str
    name: str
    since: datetime
    pid: int | None = None
    """The process of the command by which it waits for a state."""

    @property
    def way_out(self) -> str | None:
        """The command by which a person ends this wait, if there is one."""
        if self.kind == STATE:
            return f'multi-agent-mcp send {self.asker_id} "…"' if self.pid is None else f"kill {self.pid}"
        return {QUESTION: f"multi-agent-mcp answer {self.name}", LEASE: "multi-agent-mcp leases"}.get(self.kind)


class Circle(NamedTuple):
    """Agents that wait for each other, each for the next."""

    waits: tuple[Wait, ...]

    @property
    def agent_ids(self) -> list[str]:
        return [wait.asker_id for wait in self.waits]

    @property
    def since(self) -> datetime:
        return max(wait.since for wait in self.waits)

    @property
    def way_out(self) -> str:
        """The command by which a person breaks it; tasks alone make no circle, so one wait has one."""
        ordered = sorted(self.waits, key=lambda wait: ((QUESTION, LEASE, STATE, TASK).index(wait.kind), wait.asker_id))
        return next(filter(None, (wait.way_out for wait in ordered)))

    def words(self, texts: Texts) -> str:
        """Each wait, in order."""
        return "; ".join(texts(f"circle.{one.kind}", **{**one._asdict(), "since": ""}) for one in self.waits)


@dataclass(eq=False)
class Circles(Service):
    """The circles of one session."""

    leases: Leases
    question_effects: QuestionEffects

    def look(self, *_: Any) -> list[Circle]:
        """Notifies the agents of each circle, and those above them, once; returns the circles. Never raises: the next
        look does it."""
        with suppress(Refusal):
            circles = self.found()
            for circle in circles:
                self._tell(circle)
            return circles
        return []

    def found(self) -> list[Circle]:
        """The circles that there are now. Tasks alone make none: one of them can always be begun. Who waits to be
        notified goes on to answer questions, so those two make none together."""
        leases, questions = list(self._of_leases()), list(self._of_questions())
        watches = list(self._of_watches())
        if not (leases or questions or watches):
            return []
        blocking = [*leases, *(wait for wait, is_command in watches if is_command), *self._of_tasks()]
        notified = [wait for wait, is_command in watches if not is_command]
        found = [*cycles([*questions, *blocking]), *(cycles([*blocking, *notified]) if notified else ())]
        circles = {frozenset(wait.id for wait in one): one for one in found if any(it.kind != QUESTION for it in one)}
        return [Circle(one) for one in circles.values()]

    def _of_watches(self) -> Iterator[tuple[Wait, bool]]:
        """An agent waits by `notify_when`, or by a command, for the agent named or the one that does the task."""
        for watch in self.workspace.collection(WATCHES).open():
            task = self.workspace.tasks.find(watch.target) if watch.target.startswith("tsk_") else None
            to_id = watch.target if task is None else task.assignee_id
            is_over = watch.has_died or (task is not None and task.final)
            if watch.state in WORKED_FOR and to_id not in (None, watch.agent_id) and not is_over:
                wait = Wait(watch.id, watch.agent_id, to_id, STATE, watch.target, watch.created_at, pid=watch.pid)
                yield wait, watch.pid is not None

    def _of_leases(self) -> Iterator[Wait]:
        """A command's agent waits for those that have the lease."""
        known = self.leases.all()
        for one in known:
            if one.held_at is None and one.agent_id is not None:
                for holder in known:
                    if holder.name == one.name and holder.held_at and holder.agent_id not in (None, one.agent_id):
                        key, since = f"{one.ticket} {holder.ticket}", one.began or self.clock()
                        yield Wait(key, one.agent_id, str(holder.agent_id), LEASE, one.name, since)

    def _of_questions(self) -> Iterator[Wait]:
        """An agent that has parked its task waits for the answer."""
        for one in self.workspace.questions.open():
            task = self.workspace.tasks.find(one.task_id) if one.park and one.task_id else None
            if task is not None and parked_by(task) == one.id:
                yield Wait(one.id, one.asker_id, one.to_id, QUESTION, one.id, one.created_at)

    def _of_tasks(self) -> Iterator[Wait]:
        """An agent that can begin none of its tasks waits for those that do what they depend on."""
        known = {task.id: task for task in self.workspace.tasks.open()}
        by_agent: dict[str, list[Task]] = {}
        for task in known.values():
            if task.assignee_id is not None and task.status in ("todo", "in_progress"):
                by_agent.setdefault(task.assignee_id, []).append(task)
        for agent_id, tasks in by_agent.items():
            awaited = [[known[key] for key in task.dependencies if key in known] for task in tasks]
            if all(awaited) and not any(task.status == "in_progress" for task in tasks):
                for other in {one.id: one for each in awaited for one in each}.values():
                    if other.assignee_id not in (None, agent_id):
                        key, since = f"{agent_id} {other.id}", other.status_since
                        yield Wait(key, agent_id, str(other.assignee_id), TASK, other.id, since)

    def _tell(self, circle: Circle) -> None:
        cause = sorted(wait.id for wait in circle.waits)
        for agent_id in self.question_effects.concerned(circle.agent_ids):
            notice = Notification(
                id=derived_id(CIRCLE, agent_id, *cause),
                target_agent_id=agent_id,
                type="status_change",
                action=CIRCLE,
                created_at=circle.since,
                reason=circle.words(self.texts),
            )
            self.question_effects.derived.writer.put_new(notice, f"notice.{CIRCLE}")
