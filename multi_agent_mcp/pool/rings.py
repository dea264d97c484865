"""Rings one idle worker for a task that can be claimed, and the next one if nobody takes it (docs/protocol.md, Whoever
is free)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.notification import TASK_CLAIMABLE, Notification, derived_id
from multi_agent_mcp.domain.task import UNASSIGNED, Task
from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.pool.offers import LOCK
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.records import Record

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.pool.claims import Claims
    from multi_agent_mcp.pool.free import Free
    from multi_agent_mcp.pool.offers import Offers

PATIENCE = timedelta(minutes=2)
"""How long a worker that was rung has a task to itself."""
Rung = dict[str, dict[str, str]]
"""When which workers were rung for a task, by its id."""


@dataclass(eq=False)
class ClaimRings(Service):
    """Who was rung for which task that can be claimed."""

    claims: Claims
    free: Free
    offers: Offers

    def look(self, tasks: Sequence[Task] = ()) -> None:
        """Rings for what can be claimed; not those who have just changed these tasks, as an answer tells them. The
        machine of a task's creator does it. Never raises: the next look tries again."""
        with suppress(Refusal):
            if not self.workspace.tasks.open(UNASSIGNED):
                return
            busy = {task.assignee_id for task in tasks}
            idle = [agent for agent in self._idle() if agent.id not in busy]
            with self.workspace.locks.held(LOCK):
                before, now = self._read(), self.clock()
                chosen = list(self._chosen(idle, before, now)) if idle else []
            for agent, task in chosen:
                self.free.derived_notices.writer.put_new(_notice(task, agent.id, now), f"notice.{TASK_CLAIMABLE}")

    def _idle(self) -> Iterator[Agent]:
        """The workers that could begin a task, and are not told of one yet."""
        for agent in self.claims.agents.all().values():
            if agent.role == "worker" and not self._has_work(agent) and self.free.is_free(agent):
                told = self.free.derived_notices.waiting(agent.id)
                if not any(notice.action == TASK_CLAIMABLE for notice in told):
                    yield agent

    def _has_work(self, agent: Agent) -> bool:
        waits = any(task.status == "todo" for task in self.workspace.tasks.open(agent.id))
        return waits and bool(self.claims.task_changes.startable(agent.id))

    def _chosen(self, idle: Sequence[Agent], before: Rung, now: datetime) -> Iterator[tuple[Agent, Task]]:
        """For each idle worker the first task that it could claim, for which it was not rung, and for which nobody else
        was a moment ago; notes them."""
        offered = {offer.about for offer in self.offers.open.open()}
        kept = {task.id: before.get(task.id, {}) for task in self.workspace.tasks.open(UNASSIGNED)}
        agents = self.workspace.registry.all()
        for agent in idle:
            for task in self.claims.claimable(agent):
                rung, creator = kept.get(task.id, {}), agents.get(task.created_by)
                last = max(filter(None, map(parse_time, rung.values())), default=None)
                is_ours = creator is not None and self.workspace.is_here(creator) and task.id not in offered
                is_its_turn = last is None or not timedelta(0) <= now - last < PATIENCE  # the clock may be set back
                if is_ours and agent.id not in rung and is_its_turn:
                    kept[task.id] = {**rung, agent.id: format_time(now)}
                    yield agent, task
                    break
        if kept != before:
            self._record.write({key: value for key, value in kept.items() if value}, durable=False)

    def _read(self) -> Rung:
        return {key: value for key, value in self._record.facts().items() if isinstance(value, dict)}

    @property
    def _record(self) -> Record:
        return Record(self.workspace.files, self.workspace.path / ".supervisor" / "claims.json")


def _notice(task: Task, agent_id: str, at: datetime) -> Notification:
    facts: dict[str, Any] = {"target_purpose": "task", "type": "status_change", "sender_id": task.created_by}
    notice_id = derived_id(TASK_CLAIMABLE, task.id, agent_id, at)
    return Notification(
        id=notice_id, target_agent_id=agent_id, action=TASK_CLAIMABLE, task_id=task.id, created_at=at, **facts
    )
