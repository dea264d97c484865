"""Who rings, and when (docs/protocol.md, When to ring).

The recipient's own server holds the lock `serving-{agent}-{purpose}` for as long as it lives and rings its own pane,
also for files that were written by hand. A sender that finds these locks free rings itself. Whoever rings holds the
lock `doorbell-{agent}` and looks again whether there is anything to ring about, so a message is rung once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from filelock import FileLock, Timeout

from multi_agent_mcp.config import Settings
from multi_agent_mcp.domain.agent import PURPOSES, Agent
from multi_agent_mcp.domain.delivery import Delivery, Due, Ring, UnreadMessage, due
from multi_agent_mcp.domain.message import Message, reading_order
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.notify.channel import LINE_GONE, Finisher, Notifier
from multi_agent_mcp.notify.line import doorbell_line
from multi_agent_mcp.store.files.locks import SERVING
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.disk import storage_errors
from multi_agent_mcp.texts import Texts

BROADCAST_THREADS = 8
PROBE_SECONDS = 0.02  # longer than a sender takes to ask whether somebody serves
BEYOND_TIME = frozenset({"no_pane", "no_desktop", "not_human", "no_tmux", "no_doorbell"})
"""Reasons that waiting does not mend, only another record in `agents.json`."""


class Doorbell:
    """Rings the agents of one session and keeps the diary that `trace` and `get_message_status` read."""

    def __init__(
        self,
        workspace: Workspace,
        notifier: Notifier,
        settings: Settings,
        texts: Texts,
        clock: Callable[[], datetime],
    ) -> None:
        self.workspace = workspace
        self.notifier = notifier
        self.texts = texts
        self.clock = clock
        self.pause = timedelta(seconds=settings.limits.doorbell_pause_seconds)
        self.longest_pause = timedelta(seconds=settings.limits.doorbell_pause_max_seconds)
        self._unreachable: dict[str, tuple[Agent, Delivery]] = {}

    def announce(self, messages: Sequence[Message]) -> dict[str, Delivery]:
        """Rings for messages that were just stored, unless the recipient's own server does. Never raises."""
        if len(messages) <= 1:
            return {message.receiver_id: self._announce(message) for message in messages}
        with ThreadPoolExecutor(min(len(messages), BROADCAST_THREADS)) as pool:
            return dict(
                zip([message.receiver_id for message in messages], pool.map(self._announce, messages), strict=True)
            )

    def steps(self, message: Message) -> list[Mapping[str, Any]]:
        """What the diary says about a message, oldest first."""
        return self.diary(message.receiver_id).get(message.id, [])

    def diary(self, agent_id: str) -> Mapping[str, list[Mapping[str, Any]]]:
        """What was written down about each message to an agent, oldest first."""
        return self.workspace.delivery_log(agent_id).steps()

    def serve(self, agent_id: str, purpose: str) -> FileLock | None:
        """Takes the lock that says "this agent's server of this purpose rings"; None when another one has it."""
        lock = self.workspace.locks.lock(_serving(agent_id, purpose))
        with storage_errors(self.workspace.locks.path):
            try:
                lock.acquire(timeout=PROBE_SECONDS)
            except Timeout:
                return None
        return lock

    def is_served(self, agent_id: str) -> bool:
        """Whether a living server of the agent rings for it."""
        return is_served(self.workspace, agent_id)

    def ring(
        self, agent_id: str, purpose: str | None = None, place: Mapping[str, Any] | None = None
    ) -> tuple[Delivery | None, Due]:
        """Rings if there is anything to ring about. Returns what came of it (None: nothing was due) and what is to be
        done next.

        A server says its purpose and its own pane: while a task and a chat session of an agent both live, each rings
        for its own messages in its own pane. A sender rings for everything, in the registered pane.

        The mailbox is looked through only when a ring may be due, so that a thousand senders do not read a thousand
        messages each.
        """
        agent = replace(self.workspace.registry.get(agent_id), **(place or {}))
        if (refused := self._out_of_reach(agent)) is not None:
            return refused, Due()
        with self.workspace.locks.held(f"doorbell-{agent_id}"):
            last = self._last_ring(agent)
            if (resting := self._resting(agent_id, last)) is not None:
                return None, Due(after=resting)
            unread = self._unread(agent_id)
            waiting = self._meant_for(agent_id, purpose, unread)
            decision = due(waiting, last, self.clock(), self.pause, self.longest_pause)
            if not decision.messages:
                if not unread and (quiet := getattr(self.notifier, "quiet", None)) is not None:
                    quiet(agent)  # what a rung has left on show is taken back
                return None, decision
            began = self.clock()
            delivery = self.notifier.ring(agent, doorbell_line(self.texts, decision.messages))
            self._write_down(agent, decision, delivery, began)
            if delivery.reason in BEYOND_TIME:
                self._unreachable[agent_id] = agent, delivery
            return delivery, decision

    def finish(
        self, agent_id: str, purpose: str | None = None, place: Mapping[str, Any] | None = None
    ) -> Delivery | None:
        """Enters a line that an earlier ring left in the composer, also when its mail was read meanwhile: it would be
        merged with the human's next words. `stored` with the reason: not now, come back; None: there is none (any
        more). Raises like `ring`."""
        if not isinstance(self.notifier, Finisher):
            return None
        agent = replace(self.workspace.registry.get(agent_id), **(place or {}))
        with self.workspace.locks.held(f"doorbell-{agent_id}"):
            began, last = self.clock(), self._last_ring(agent)
            delivery = self.notifier.finish(agent)
            if delivery.reason == LINE_GONE:
                return None
            if waiting := self._meant_for(agent_id, purpose, self._unread(agent_id)):
                self._write_down(agent, Due(tuple(waiting), last.attempt if last else 1), delivery, began)
            return delivery

    def _unread(self, agent_id: str) -> list[UnreadMessage]:
        mailbox = self.workspace.mailbox(agent_id)
        with self.workspace.locks.held(mailbox.lock):  # not amid a reading, with half of it marked read
            heads = sorted((head for _, head in mailbox.unread()), key=reading_order)
        return [UnreadMessage(head.id, head.sender_id, head.message_type) for head in heads]

    def _meant_for(self, agent_id: str, purpose: str | None, waiting: list[UnreadMessage]) -> list[UnreadMessage]:
        """Leaves out what the agent's other living session is to be rung about."""
        other = {"task": "chat", "chat": "task"}.get(purpose or "")
        if other is None or not self.workspace.locks.is_held(_serving(agent_id, other)):
            return waiting
        return [message for message in waiting if message.purpose == purpose]

    def _out_of_reach(self, agent: Agent) -> Delivery | None:
        """What came of an earlier attempt, when only another record of the agent would change that."""
        tried, delivery = self._unreachable.get(agent.id, (None, None))
        return delivery if tried == agent else None

    def _resting(self, agent_id: str, last: Ring | None) -> timedelta | None:
        """How long the doorbell still rests, because a message it was last rung about is surely unread; see `due`."""
        if last is None:
            return None
        remaining = last.rests_for(self.clock(), self.pause, self.longest_pause)
        if remaining and self.workspace.mailbox(agent_id).any_unread(last.message_ids):
            return remaining
        return None

    def _announce(self, message: Message) -> Delivery:
        try:
            if self.is_served(message.receiver_id):
                return Delivery("stored", "recipient_server_rings")
            if (refused := self._out_of_reach(self.workspace.registry.get(message.receiver_id))) is not None:
                self._note_deferral(message.receiver_id, [message.id], refused.reason)
                return refused
            delivery, decision = self.ring(message.receiver_id)
        except Refusal as refusal:
            return Delivery("stored", refusal.code)
        if delivery is None:
            return Delivery("stored", "doorbell_outstanding")
        rung = any(waiting.id == message.id for waiting in decision.messages)
        return delivery if rung else Delivery("stored", "doorbell_outstanding")

    def _last_ring(self, agent: Agent) -> Ring | None:
        """The newest doorbell that got across in this pane."""
        for entry in self.workspace.doorbells(agent.id).newest_first(without=b'"deferred"'):
            here = entry.get("pane") == agent.pane_id
            if here and entry.get("state") in ("rung", "submitted") and (ring := Ring.of(entry)) is not None:
                return ring
        return None

    def _write_down(self, agent: Agent, decision: Due, delivery: Delivery, began: datetime) -> None:
        diary = self.workspace.doorbells(agent.id)
        about = [message.id for message in decision.messages]
        if delivery.state == "stored":
            if news := diary.without_deferral(about, delivery.reason):
                self._note_deferral(agent.id, news, delivery.reason)
            return
        facts = {"pane": agent.pane_id, "attempt": decision.attempt, "messages": about}
        diary.append(state="rung", at=format_time(began), reason=delivery.reason, **facts)
        if delivery.state == "submitted":
            entered = began + delivery.entered_after if delivery.entered_after else self.clock()
            diary.append(state="submitted", at=format_time(entered), **facts)

    def _note_deferral(self, agent_id: str, about: Sequence[str], reason: str | None) -> None:
        diary = self.workspace.doorbells(agent_id)
        diary.append(state="deferred", at=format_time(self.clock()), reason=reason, messages=list(about))


def is_served(workspace: Workspace, agent_id: str) -> bool:
    """Whether a server of the agent lives, and so its host."""
    return any(workspace.locks.is_held(_serving(agent_id, purpose)) for purpose in PURPOSES)


def _serving(agent_id: str, purpose: str) -> str:
    return f"{SERVING}-{agent_id}-{purpose}"
