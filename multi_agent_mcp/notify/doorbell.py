"""Who rings, and when (PANES.md, "Who rings").

The recipient's own server holds the lock `serving-{agent}` for as long as it lives and rings its own pane, also for
files that were written by hand. A sender that finds that lock free rings itself. Whoever rings holds the lock
`doorbell-{agent}` and looks again whether there is anything to ring about, so a message is rung once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

from filelock import FileLock, Timeout

from multi_agent_mcp.config import Settings
from multi_agent_mcp.domain.delivery import Delivery, Due, Ring, Waiting, due
from multi_agent_mcp.domain.message import Message, reading_order
from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.notify.base import Notifier
from multi_agent_mcp.notify.lines import doorbell_line
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts

BROADCAST_THREADS = 8


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
        mine = [
            entry
            for entry in self.workspace.doorbells(message.receiver_id).newest_first()
            if message.id in entry.get("messages", ())
        ]
        return [
            {key: entry[key] for key in ("state", "at", "reason") if entry.get(key) is not None}
            for entry in reversed(mine)
        ]

    def serve(self, agent_id: str) -> FileLock | None:
        """Takes the lock that says "this agent's server rings"; None when another server of the agent has it."""
        lock = self.workspace.files.lock(f"serving-{agent_id}")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return None
        return lock

    def is_served(self, agent_id: str) -> bool:
        """Whether a living server of the agent rings for it."""
        probe = self.serve(agent_id)
        if probe is not None:
            probe.release()
        return probe is None

    def ring(self, agent_id: str) -> tuple[Delivery | None, Due]:
        """Rings if there is anything to ring about. Returns what came of it (None: nothing was due) and what is to be
        done next."""
        with self.workspace.files.locked(f"doorbell-{agent_id}"):
            unread = sorted((head for _, head in self.workspace.mailbox(agent_id).unread()), key=reading_order)
            waiting = [Waiting(head.id, head.sender_id, head.message_type) for head in unread]
            last = self._last_ring(agent_id)
            decision = due(waiting, last, self.clock(), self.pause, self.longest_pause)
            if not decision.messages:
                return None, decision
            agent = self.workspace.registry.get(agent_id)
            began = self.clock()
            delivery = self.notifier.ring(agent, doorbell_line(self.texts, decision.messages))
            self._write_down(agent_id, decision, delivery, began)
            return delivery, decision

    def _announce(self, message: Message) -> Delivery:
        try:
            if self.is_served(message.receiver_id):
                return Delivery("stored", "recipient_server_rings")
            delivery, decision = self.ring(message.receiver_id)
        except Refusal as refusal:
            return Delivery("stored", refusal.code)
        if delivery is None:
            return Delivery("stored", "doorbell_outstanding")
        rung = any(waiting.id == message.id for waiting in decision.messages)
        return delivery if rung else Delivery("stored", "doorbell_outstanding")

    def _last_ring(self, agent_id: str) -> Ring | None:
        """The newest doorbell that got across."""
        for entry in self.workspace.doorbells(agent_id).newest_first():
            at = parse_time(entry.get("at"))
            if entry.get("state") in ("rung", "submitted") and at is not None:
                return Ring(at, frozenset(entry.get("messages", ())), int(entry.get("attempt", 1)))
        return None

    def _write_down(self, agent_id: str, decision: Due, delivery: Delivery, began: datetime) -> None:
        diary = self.workspace.doorbells(agent_id)
        about = [message.id for message in decision.messages]
        if delivery.state == "stored":
            diary.append(state="deferred", at=format_time(self.clock()), reason=delivery.reason, messages=about)
            return
        diary.append(
            state="rung", at=format_time(began), reason=delivery.reason, attempt=decision.attempt, messages=about
        )
        if delivery.state == "submitted":
            entered = began + delivery.entered_after if delivery.entered_after else self.clock()
            diary.append(state="submitted", at=format_time(entered), attempt=decision.attempt, messages=about)
