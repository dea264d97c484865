"""Notifies who asked once an agent or a task has reached a state (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.entity import EPOCH, Identified, age, entity_id, new_id
from multi_agent_mcp.domain.notification import Notification, derived_id
from multi_agent_mcp.errors import MessageNotFound, Refusal, Unauthorized
from multi_agent_mcp.pool.feature import WATCHES
from multi_agent_mcp.services.validation import require_choice
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.partition import WHOLE, Layout
from multi_agent_mcp.system.file_events import Changes, TreeWatch

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.pool.free import Free
    from multi_agent_mcp.services.tasks.changes import TaskChanges
    from multi_agent_mcp.store.collection import Collection

STATE_REACHED = "state_reached"
"""The action of the notification."""
NEVER = "never"
"""The state with which a watch is withdrawn."""
OF_AGENTS, OF_TASKS = ("idle", "available"), ("done", "blocked", "merged")
AGAIN_SECONDS = 5.0
"""How often a command that waits for a state looks at what changes no file: a limit that is over, a person's merge."""


@dataclass(frozen=True, kw_only=True)
class StateWatch(Identified):
    """A watch of an agent or task for the agent `agent_id`, open until `ended_at`; `ended` says as what."""

    id: str
    agent_id: str = ""
    target: str = ""
    state: str = ""
    created_at: datetime = EPOCH
    ended_at: datetime | None = None
    ended: str | None = None

    def end(self, at: datetime, why: str) -> StateWatch:
        """The watch after its end; the first end counts."""
        return self if self.ended_at else replace(self, ended_at=at, ended=why)


def watches() -> Layout[StateWatch]:
    """How watches are kept."""
    return Layout(
        entity_type=StateWatch,
        partition=lambda _: WHOLE,
        missing=lambda watch_id: MessageNotFound("watch_not_found", watch_id=watch_id),
        flat=True,
        over=lambda watch: "" if watch.ended_at is None else watch.ended or "met",
        order=age,
        prefix="wch",
    )


@dataclass(eq=False)
class Watches(Service):
    """The watches of one session."""

    free: Free
    task_changes: TaskChanges

    @cached_property
    def known(self) -> Collection[StateWatch]:
        found: Collection[StateWatch] = self.workspace.collection(WATCHES)
        return found

    def watch(self, agent: Agent, target: str, state: str) -> StateWatch:
        """Watches an agent or task; one that is in the state already is told at once. With the id of a watch and
        `never` it is withdrawn. Raises as `require`."""
        if target.startswith("wch_"):
            require_choice("state", state, (NEVER,))
            return self.withdraw(agent, target)
        self.require(target, state)
        made = StateWatch(id=new_id("wch"), agent_id=agent.id, target=target, state=state, created_at=self.clock())
        self.known.add(made)
        self.look()
        return made

    def withdraw(self, agent: Agent, watch_id: str) -> StateWatch:
        """Ends one of the agent's watches: it is not notified any more. Raises `MessageNotFound`, `Unauthorized`."""
        found = self.known.get(entity_id("wch", watch_id))
        if found.agent_id != agent.id:
            raise Unauthorized("not_your_watch", watch_id=found.id)
        return self.known.update(found.id, lambda watch: watch.end(self.clock(), "withdrawn"))

    def require(self, target: str, state: str) -> None:
        """Raises unless the target is an agent or a task that can be in this state."""
        if target.startswith("tsk_"):
            self.task_changes.get(target)
            require_choice("state", state, OF_TASKS)
        else:
            self.free.agents.get(target)
            require_choice("state", state, OF_AGENTS)

    def look(self, *_: Any) -> None:
        """Notifies whoever watches for what is so now. Never raises: the next look tries again."""
        for watch in self.known.open():
            with suppress(Refusal):
                if (reached := self.reached(watch.target, watch.state)) is not None:
                    self._tell(watch, reached)

    def reached(self, target: str, state: str) -> str | None:
        """What was waited for, or what ended the waiting otherwise: a task that is over, an agent that is not in the
        team any more; None while neither is so."""
        if state in OF_AGENTS:
            agent = self.free.agents.all().get(target)
            if agent is None:
                return "removed"
            is_so = self.free.limited.of(target) is None if state == "available" else self.free.is_free(agent)
            return state if is_so else None
        task = self.workspace.tasks.find(target)
        if task is None:
            return "removed"
        if state == "merged" and task.status == "done":
            delivered: Mapping[str, Any] = self.contributions.ask("delivered", target) or {}
            return state if delivered.get("merged") else None
        return task.status if task.status == state or task.final else None

    def await_state(self, target: str, state: str) -> str:
        """Waits until that is reached, and returns it. Raises as `require`."""
        self.require(target, state)
        changes = Changes()
        with TreeWatch(self.workspace.path, lambda _: changes.notify()):
            while True:
                seen = changes.count
                if (reached := self.reached(target, state)) is not None:
                    return reached
                changes.wait(seen, AGAIN_SECONDS)

    def await_idle(self, agent_id: str) -> None:
        self.await_state(agent_id, "idle")

    # The notification comes first, under an id of the watch: killed between both, the next look writes the same one.
    def _tell(self, watch: StateWatch, reached: str) -> None:
        notice = Notification(
            id=derived_id(STATE_REACHED, watch.id),
            target_agent_id=watch.agent_id,
            target_purpose=None,
            type="status_change",
            action=STATE_REACHED,
            task_id=watch.target if watch.state in OF_TASKS else None,
            created_at=self.clock(),
            reason=self.texts("watch.reached", target=watch.target, state=reached),
        )
        if watch.ended_at is None and self.known.get(watch.id).ended_at is None:
            self.free.derived_notices.writer.put_new(notice, f"notice.{STATE_REACHED}")
            self.known.update(watch.id, lambda found: found.end(self.clock(), "met"))
