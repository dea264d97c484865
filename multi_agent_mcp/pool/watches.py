"""Notifies who asked once an agent or a task has reached a state (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from multi_agent_mcp.domain.agent import WHOEVER
from multi_agent_mcp.domain.entity import EPOCH, Identified, age, entity_id, new_id
from multi_agent_mcp.domain.notification import Notification, derived_id
from multi_agent_mcp.domain.times import in_zone
from multi_agent_mcp.errors import InvalidArguments, MessageNotFound, Refusal, Unauthorized
from multi_agent_mcp.pool.feature import WATCHES
from multi_agent_mcp.services.validation import require_choice
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.partition import WHOLE, Layout
from multi_agent_mcp.system.file_events import Changes, TreeWatch
from multi_agent_mcp.system.process import is_alive, own_start

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.pool.circles import Circle, Circles
    from multi_agent_mcp.pool.free import Free
    from multi_agent_mcp.services.tasks.changes import TaskChanges
    from multi_agent_mcp.services.team.workplaces import Workplaces
    from multi_agent_mcp.store.collection import Collection

R = TypeVar("R")
Told = Callable[[str], None]
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
    pid: int | None = None
    """The process of a command that waits for it; nobody is notified then."""
    pid_started_at: str | None = None

    @property
    def has_died(self) -> bool:
        return self.pid is not None and not is_alive(self.pid, self.pid_started_at)

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
    workplaces: Workplaces

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
        made = self._made(agent.id, target, state)
        self.look()
        self._circles(agent.id)
        return made

    def _made(self, agent_id: str, target: str, state: str, **command: Any) -> StateWatch:
        facts: dict[str, Any] = {"id": new_id("wch"), "created_at": self.clock(), **command}
        made = StateWatch(**facts, agent_id=agent_id, target=target, state=state)
        self.known.add(made)
        return made

    def _circles(self, agent_id: str) -> list[Circle]:
        """The circles of waiting in which the agent is, after those concerned were notified."""
        circles: Circles = self.contributions.service("circles")
        return [circle for circle in circles.look() if agent_id in circle.agent_ids]

    def withdraw(self, agent: Agent, watch_id: str) -> StateWatch:
        """Ends one of the agent's watches: it is not notified any more. Raises `MessageNotFound`, `Unauthorized`."""
        found = self.known.get(entity_id("wch", watch_id))
        if found.agent_id != agent.id:
            raise Unauthorized("not_your_watch", watch_id=found.id)
        return self.known.update(found.id, lambda watch: watch.end(self.clock(), "withdrawn"))

    def require(self, target: str, state: str) -> None:
        """Raises unless the target is an agent or a task that can be in this state."""
        if target.startswith("tsk_"):
            task = self.task_changes.get(target)
            require_choice("state", state, self.session.features.offered("state", OF_TASKS))
            is_over_otherwise = task.final and task.status != "done"  # which is said
            if state == "merged" and not is_over_otherwise and not self._may_deliver(task):
                raise InvalidArguments("nothing_to_merge", task_id=task.id)
        else:
            self.free.agents.get(target)
            require_choice("state", state, OF_AGENTS)

    def _may_deliver(self, task: Task) -> bool:
        """Whether the task has delivered commits from a worktree, or its agent, or for a task that nobody has any
        agent, has a worktree for that."""
        if task.final:
            return bool((self.contributions.ask("delivered", task.id) or {}).get("ahead"))
        agents = self.free.agents.all()
        able = agents.values() if task.assignee_id is None else filter(None, [agents.get(task.assignee_id)])
        return any(self.workplaces.of(one.id) is not None or self.workplaces.wants(one) for one in able)

    def look(self, *_: Any) -> None:
        """Notifies whoever watches for what is so now. Never raises: the next look tries again."""
        for watch in self.known.open():
            with suppress(Refusal):
                if watch.has_died:
                    self.known.update(watch.id, lambda found: found.end(self.clock(), "withdrawn"))
                elif watch.pid is None and (reached := self.reached(watch.target, watch.state)) is not None:
                    self._tell(watch, reached)

    def reached(self, target: str, state: str) -> str | None:
        """What was waited for, or what ended the waiting otherwise: a task that is over, an agent that is not in the
        team any more; None while neither is so."""
        if state in OF_AGENTS:
            agent = self.free.agents.all().get(target)
            if agent is None:
                return "removed"
            is_so = self.free.limited.now(target) is None if state == "available" else self.free.is_free(agent)
            return state if is_so else None
        task = self.workspace.tasks.find(target)
        if task is None:
            return "removed"
        if state == "merged" and task.status == "done":
            delivered: Mapping[str, Any] = self.contributions.ask("delivered", target) or {}
            if delivered.get("ahead"):
                return state if delivered.get("merged") else None
        return task.status if task.status == state or task.final else None

    def held_up(self, text: str, target: str, state: str) -> str | None:
        """What is waited for, in the words of the text `text`, and what keeps the agent from it for now: that it is
        limited or paused, or does not run; None if nothing does, or it is reached."""
        if self.reached(target, state) is not None:
            return None
        task = self.workspace.tasks.find(target) if state in OF_TASKS else None
        why = " ".join(self._obstacles(target if task is None else task.assignee_id, state))
        return self.texts(text, target=target, state=state, why=why) if why else None

    def _obstacles(self, agent_id: str | None, state: str) -> Iterator[str]:
        agent = self.free.agents.all().get(agent_id or "")
        if agent is None:
            return
        if (limited := self.free.limited.now(agent.id)) is not None:
            yield limited.words
        if state == "available":
            return
        if (pause := self.free.derived_notices.pause_of(agent.id)) is not None:
            yield self.texts("watch.paused", agent_id=agent.id, since=self._said(pause.created_at))
        if not self.free.is_awake(agent):
            last = self.free.sessions.last_activity(agent.id)
            key, facts = ("watch.never_ran", {}) if last is None else ("watch.asleep", {"since": self._said(last)})
            yield self.texts(key, agent_id=agent.id, **facts)

    def _said(self, at: datetime) -> str:
        return f"{in_zone(at, self.session.zone):%Y-%m-%d %H:%M %Z}"

    def await_state(self, target: str, state: str, agent_id: str | None, told: Told) -> str:
        """Waits until that is reached, and returns it; `told` is called with a sentence about what holds it up, and
        about each circle of which an agent that waits is part. Raises as `require`, and `InvalidArguments` for an
        agent that would wait for its own work."""
        self.require(target, state)
        if agent_id is not None and self.reached(target, state) is None:
            self._require_other(agent_id, target, state)
        if (held_up := self.held_up("watch.waiting", target, state)) is not None:
            told(held_up)
        if agent_id is None or self.reached(target, state) is not None:
            return self._await(lambda: self.reached(target, state))
        kept = self._made(agent_id, target, state, pid=os.getpid(), pid_started_at=own_start())
        try:
            for circle in self._circles(agent_id):
                told(self.session.people("lease.circle", circle=circle.words(self.session.people)))
            return self._await(lambda: self.reached(target, state))
        finally:
            self.known.update(kept.id, lambda watch: watch.end(self.clock(), "met"))

    def _require_other(self, agent_id: str, target: str, state: str) -> None:
        """Raises for an agent's command that would wait until its own agent has done what it waits with."""
        task = self.workspace.tasks.find(target) if state in OF_TASKS else None
        own = state == "idle" and target == agent_id
        if own or (task is not None and task.assignee_id == agent_id and not task.final):
            raise InvalidArguments("waits_for_itself", target=target, state=state)

    def _await(self, reached: Callable[[], R | None]) -> R:
        changes = Changes()
        with TreeWatch(self.workspace.path, lambda _: changes.notify()):
            while True:
                seen = changes.count
                if (found := reached()) is not None:
                    return found
                changes.wait(seen, AGAIN_SECONDS)

    def await_idle(self, sender: Agent, receiver: str, told: Told) -> None:
        """Waits until the receiver is idle, of `@role` or `@any` one of those; `told` as for `await_state`. Raises
        `AgentNotFound`, and `InvalidArguments` for the sender itself."""
        if receiver == sender.id:
            raise InvalidArguments("to_oneself")
        if not receiver.startswith(WHOEVER):
            self.await_state(receiver, "idle", None, told)
            return
        self.free.meant(sender.id, receiver)
        self._await(lambda: self.free.first(sender.id, receiver, lambda _: True))

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
