"""Delivery tracking: where a message or notification lies and the delivery states it went through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.ids import id8
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import MessageNotFound, Unauthorized
from multi_agent_mcp.services.team.agents import Agents
from multi_agent_mcp.store.workspace import Workspace


@dataclass(eq=False)
class DeliveryTracking:
    """The delivery states of messages and notifications, for their senders and for people."""

    workspace: Workspace
    agents: Agents

    def status(self, sender: Agent, item_id: str) -> dict[str, Any]:
        """State and time of each step, per receiver, of a message (or broadcast) this agent sent, or of a notification
        it caused."""
        copies = [item for _, item in self._found(item_id)]
        if not copies:
            raise MessageNotFound(message_id=item_id)
        mine = [item for item in copies if item.sender_id == sender.id]
        if not mine:
            raise Unauthorized("not_sender", message_id=item_id)
        receivers = {_receiver(item): _progress(item, self.steps(item)) for item in mine}
        answer: dict[str, Any] = {"message_id": item_id, "receivers": receivers}
        if len(mine) == 1 and mine[0].id == item_id:
            answer |= {"receiver_id": _receiver(mine[0]), **receivers[_receiver(mine[0])]}
        return answer

    def trace(self, item_id: str) -> list[dict[str, Any]]:
        """Every copy of a message or broadcast, or a notification: where it lies and each step it took. Empty for an
        unknown id."""
        return [
            {
                "id": item.id,
                "sender_id": item.sender_id,
                "receiver_id": _receiver(item),
                **_kind(item),
                "path": str(path.relative_to(self.workspace.path)),
                **_progress(item, self.steps(item)),
            }
            for path, item in self._found(item_id)
        ]

    def _found(self, item_id: str) -> Sequence[tuple[Path, Message | Notification]]:
        return self._copies(item_id) or self._notifications(item_id)

    def _notifications(self, item_id: str) -> list[tuple[Path, Notification]]:
        return [
            found
            for agent_id in self.agents.registry.all()
            for found in self.workspace.notices(agent_id).find_all(lambda notice: notice.id == item_id, like=item_id)
        ]

    def _copies(self, message_id: str) -> list[tuple[Path, Message]]:
        """The message with this id, or all copies of the broadcast with this id, from every mailbox. The copies share
        its first digits: what merely names it in its metadata is none."""

        def wanted(message: Message) -> bool:
            copied = message.metadata.get("broadcast_id") == message_id and id8(message.id) == id8(message_id)
            return copied or message.id == message_id

        return [
            found
            for agent_id in self.agents.registry.all()
            for found in self.workspace.mailbox(agent_id).find_all(wanted, like=message_id)
        ]

    def progress(self, items: Iterable[Message | Notification]) -> list[dict[str, Any]]:
        """The state each message or notification has reached, its steps, and the reason why it went no further; each
        receiver's delivery log is read once."""
        steps_to = cache(lambda agent_id: self.workspace.delivery_log(agent_id).steps())
        return [_progress(item, steps_to(_receiver(item)).get(item.id, [])) for item in items]

    def steps(self, item: Message | Notification) -> Sequence[Mapping[str, Any]]:
        """What the delivery log says about a message or notification, oldest first."""
        return self.workspace.delivery_log(_receiver(item)).steps().get(item.id, [])


def _receiver(item: Message | Notification) -> str:
    return item.receiver_id if isinstance(item, Message) else item.target_agent_id


def _kind(item: Message | Notification) -> dict[str, Any]:
    """What it is. The `reason` of a notification is not the one for which a doorbell got no further."""
    if isinstance(item, Message):
        return {"message_type": item.message_type}
    fields = ("type", "action", "task_id", "conversation_id", "message", "reason")
    return {"notification": {name: value for name in fields if (value := getattr(item, name)) is not None}}


def _progress(item: Message | Notification, rung: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    steps: list[Mapping[str, Any]] = [{"state": "stored", "at": format_time(item.created_at)}, *rung]
    if item.read_at is not None:
        steps.append({"state": "read", "at": format_time(item.read_at)})
    reached = [step for step in steps if step["state"] != "deferred"]
    answer: dict[str, Any] = {"state": reached[-1]["state"], "steps": steps}
    if reached[-1]["state"] != "read" and (reason := steps[-1].get("reason")):
        answer["reason"] = reason
    return answer
