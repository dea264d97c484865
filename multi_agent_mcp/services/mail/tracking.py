"""Delivery tracking: where a message lies and the delivery states it went through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.ids import id8
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import MessageNotFound, Unauthorized
from multi_agent_mcp.services.team.agents import Agents
from multi_agent_mcp.store.workspace import Workspace


@dataclass(eq=False)
class DeliveryTracking:
    """The delivery states of messages, for their senders and for people."""

    workspace: Workspace
    agents: Agents

    def status(self, sender: Agent, message_id: str) -> dict[str, Any]:
        """State and time of each step, per receiver, of a message (or broadcast) this agent sent."""
        copies = [message for _, message in self._copies(message_id)]
        if not copies:
            raise MessageNotFound(message_id=message_id)
        mine = [message for message in copies if message.sender_id == sender.id]
        if not mine:
            raise Unauthorized("not_sender", message_id=message_id)
        receivers = {message.receiver_id: _progress(message, self.steps(message)) for message in mine}
        answer: dict[str, Any] = {"message_id": message_id, "receivers": receivers}
        if len(mine) == 1 and mine[0].id == message_id:
            answer |= {"receiver_id": mine[0].receiver_id, **receivers[mine[0].receiver_id]}
        return answer

    def trace(self, message_id: str) -> list[dict[str, Any]]:
        """Every copy of a message or broadcast: where it lies and each step it took. Empty for an unknown id."""
        return [
            {
                "id": message.id,
                "sender_id": message.sender_id,
                "receiver_id": message.receiver_id,
                "message_type": message.message_type,
                "path": str(path.relative_to(self.workspace.path)),
                **_progress(message, self.steps(message)),
            }
            for path, message in self._copies(message_id)
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

    def progress(self, messages: Iterable[Message]) -> list[dict[str, Any]]:
        """The state each message has reached, its steps, and the reason why it went no further; each receiver's
        delivery log is read once."""
        steps_to = cache(lambda agent_id: self.workspace.delivery_log(agent_id).steps())
        return [_progress(message, steps_to(message.receiver_id).get(message.id, [])) for message in messages]

    def steps(self, message: Message) -> Sequence[Mapping[str, Any]]:
        """What the delivery log says about a message, oldest first."""
        return self.workspace.delivery_log(message.receiver_id).steps().get(message.id, [])


def _progress(message: Message, rung: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    steps: list[Mapping[str, Any]] = [{"state": "stored", "at": format_time(message.created_at)}, *rung]
    if message.read_at is not None:
        steps.append({"state": "read", "at": format_time(message.read_at)})
    reached = [step for step in steps if step["state"] != "deferred"]
    answer: dict[str, Any] = {"state": reached[-1]["state"], "steps": steps}
    if reached[-1]["state"] != "read" and (reason := steps[-1].get("reason")):
        answer["reason"] = reason
    return answer
