"""Delivery tracking: the files and delivery states of messages and notifications."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.ids import id8, is_name
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import derived_id
from multi_agent_mcp.domain.question import ANSWER, ASKED, OVERDUE
from multi_agent_mcp.domain.times import format_time, now
from multi_agent_mcp.errors import MessageNotFound, StorageError, Unauthorized
from multi_agent_mcp.store.authority import TOO_LARGE

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.session import HandOff
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.store.workspace import Workspace

# Delivery of mail and notifications to agents of other machines (docs/protocol.md, Several machines).


class Parcel(NamedTuple):
    """A message or notification that was just stored: its receiver, id and file."""

    agent_id: str
    id: str
    path: Path


def away_machines(workspace: Workspace) -> frozenset[str]:
    """The machines that have not been heard of for long; none while this one is cut off, and does not know."""
    state = workspace.relay_state.read()
    known = state.get("machines", {}) if state.get("connected") else {}
    return frozenset(name for name, facts in known.items() if not facts.get("up"))


def remote_delivery(workspace: Workspace, stored: Iterable[Parcel]) -> dict[str, Delivery]:
    """The deliveries, by agent id, of items for agents of other machines: stored there, queued here until the hub is
    back, or stored here alone because they are too large. Items for this machine's agents are sent to the hub, too,
    without waiting. Never raises."""
    authority = workspace.authority
    if authority.here is None or not (parcels := list(stored)):
        return {}
    agents = workspace.registry.all()
    homes = {parcel: home for parcel in parcels if (home := workspace.elsewhere(agents.get(parcel.agent_id)))}
    waits = authority.queue([parcel.path for parcel in parcels], wait=bool(homes))
    if waits is not None and homes:
        if waits == TOO_LARGE:  # the relay has noted it
            return {parcel.agent_id: Delivery("stored", waits) for parcel in homes}
        with suppress(StorageError):  # nothing depends on it
            workspace.travel_log.add("queued", now(), [parcel.id for parcel in homes], reason=waits)
        return {parcel.agent_id: Delivery("queued", waits) for parcel in homes}
    away = away_machines(workspace) if homes else frozenset()
    return {
        parcel.agent_id: Delivery("stored", "machine_away" if home in away else "other_machine")
        for parcel, home in homes.items()
    }


@dataclass(eq=False)
class DeliveryTracking:
    """The delivery states of messages and notifications, for their senders and for people."""

    workspace: Workspace
    agents: Agents

    def status(self, sender: Agent, item_id: str) -> dict[str, Any]:
        """The state and the time of each step, per receiver, of a message or broadcast that this agent sent, or of a
        notification that it caused. Raises `MessageNotFound`, or `Unauthorized` for another sender's."""
        copies = [item for _, item in self._found(item_id)]
        if not copies:
            raise MessageNotFound(message_id=item_id)
        mine = [item for item in copies if item.sender_id == sender.id]
        if not mine:
            raise Unauthorized("not_sender", message_id=item_id)
        receivers = dict(zip(map(_receiver, mine), self.progress(mine), strict=True))
        answer: dict[str, Any] = {"message_id": item_id, "receivers": receivers}
        if len(mine) == 1 and mine[0].id == item_id:
            answer |= {"receiver_id": _receiver(mine[0]), **receivers[_receiver(mine[0])]}
        return answer

    def trace(self, item_id: str) -> list[dict[str, Any]]:
        """The path and steps of every copy of a message or broadcast, of a notification, of all notifications about a
        question, or of a hand-off. Empty for an unknown id."""
        found = self._found(item_id) or self._about_question(item_id)
        if item_id.startswith("hnd_"):
            return self._hand_off(item_id)
        return [
            {
                "id": item.id,
                "sender_id": item.sender_id,
                "receiver_id": _receiver(item),
                **_kind(item),
                **self._machines(item, progress["steps"]),
                "path": str(path.relative_to(self.workspace.path)),
                **progress,
            }
            for (path, item), progress in zip(found, self.progress([item for _, item in found]), strict=True)
        ]

    def _machines(self, item: Message | Notification, steps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """The sender's and receiver's machines; empty unless the session is shared. The sender's is known where the
        item arrived; elsewhere it is the sender's present home."""
        if self.workspace.authority.here is None:
            return {}
        known = self.agents.registry.all()
        sender, receiver = known.get(item.sender_id or ""), known.get(_receiver(item))
        came = next((step["machine"] for step in steps if step["state"] == "arrived"), None)
        return {"from_machine": came or (sender and sender.machine), "to_machine": receiver and receiver.machine}

    def _found(self, item_id: str) -> Sequence[tuple[Path, Message | Notification]]:
        return self._copies(item_id) or self._notifications(item_id)

    def _notifications(self, item_id: str) -> list[tuple[Path, Notification]]:
        return [found for agent_id in self.agents.registry.all() for found in self._notices_of(agent_id, item_id)]

    def _about_question(self, question_id: str) -> list[tuple[Path, Notification]]:
        """The notifications about a question, in the order of its life. Their ids follow from its id."""
        return [
            found
            for action in (ASKED, OVERDUE, ANSWER)
            for agent_id in self.agents.registry.all()
            for found in self._notices_of(agent_id, derived_id(action, question_id, agent_id))
        ]

    def _hand_off(self, item_id: str) -> list[dict[str, Any]]:
        """A hand-off: it rings nobody, and whoever goes on with the task is shown it."""
        found = (self._hand_offs_of(agent_id) for agent_id in filter(is_name, self.agents.registry.all()))
        wanted = (kept for kept in chain.from_iterable(found) if kept[1].id == item_id)
        steps_of = delivery_steps(self.workspace)
        return [
            {
                "id": item.id,
                "sender_id": item.agent_id,
                "receiver_id": item.agent_id,
                "kind": item.kind,
                "task_id": item.task_id,
                "path": str(path.relative_to(self.workspace.path)),
                "state": "stored",
                "steps": [{"state": "stored", "at": format_time(item.created_at)}, *steps_of(item.agent_id, item.id)],
            }
            for path, item in wanted
        ]

    def _hand_offs_of(self, agent_id: str) -> Iterator[tuple[Path, HandOff]]:
        known = self.workspace.hand_offs(agent_id)
        for directory in (known.home, *known.archive.months()):
            yield from ((directory.path / name, item) for name, item in directory.entities())

    def _notices_of(self, agent_id: str, item_id: str) -> list[tuple[Path, Notification]]:
        return self.workspace.notices(agent_id).find_all(lambda notice: notice.id == item_id, like=item_id)

    def _copies(self, message_id: str) -> list[tuple[Path, Message]]:
        """The message with this id, or all copies of the broadcast with this id, from every mailbox. Copies share the
        first digits of the broadcast's id; naming it in the metadata alone does not make a copy."""

        def wanted(message: Message) -> bool:
            copied = message.metadata.get("broadcast_id") == message_id and id8(message.id) == id8(message_id)
            return copied or message.id == message_id

        return [
            found
            for agent_id in self.agents.registry.all()
            for found in self.workspace.mailbox(agent_id).find_all(wanted, like=message_id)
        ]

    def progress(self, items: Iterable[Message | Notification]) -> list[dict[str, Any]]:
        """The state that each message or notification has reached, its steps, and why it went no further."""
        steps_of, is_away = delivery_steps(self.workspace), self._is_away()
        return [_progress(item, steps_of(_receiver(item), item.id), is_away) for item in items]

    def _is_away(self) -> Callable[[str], bool]:
        """Whether the home of an agent is away; looked up at most once."""
        away, known = cache(lambda: away_machines(self.workspace)), cache(self.agents.registry.all)
        return lambda agent_id: (agent := known().get(agent_id)) is not None and agent.machine in away()

    def waits(self, item: Message | Notification) -> str | None:
        """The reason why an item for another machine's agent is still queued here; None if it is not queued."""
        (progress,) = self.progress([item])
        return progress.get("reason") if progress["state"] == "queued" else None

    def steps(self, item: Message | Notification) -> Sequence[Mapping[str, Any]]:
        """The log entries about a message or notification, oldest first."""
        return delivery_steps(self.workspace)(_receiver(item), item.id)


def delivery_steps(workspace: Workspace) -> Callable[[str, str], list[Mapping[str, Any]]]:
    """Returns a function from an agent id and an item id to the log entries about the item, oldest first. Each log is
    read at most once."""
    rings_of = cache(lambda agent_id: workspace.delivery_log(agent_id).steps())
    travels = cache(lambda: workspace.travel_log.steps() if workspace.authority.here is not None else {})

    def steps(agent_id: str, item_id: str) -> list[Mapping[str, Any]]:
        return [*sorted(travels().get(item_id, ()), key=_at), *rings_of(agent_id).get(item_id, ())]

    return steps


def _receiver(item: Message | Notification) -> str:
    return item.receiver_id if isinstance(item, Message) else item.target_agent_id


def _kind(item: Message | Notification) -> dict[str, Any]:
    """The fields that describe the item itself. A notification's `reason` is nested, because that of `progress` is why
    its doorbell got no further."""
    if isinstance(item, Message):
        return {"message_type": item.message_type}
    fields = ("type", "action", "task_id", "conversation_id", "message", "reason")
    return {"notification": {name: value for name in fields if (value := getattr(item, name)) is not None}}


def _progress(
    item: Message | Notification, rung: Sequence[Mapping[str, Any]], is_away: Callable[[str], bool]
) -> dict[str, Any]:
    steps: list[Mapping[str, Any]] = [{"state": "stored", "at": format_time(item.created_at)}, *rung]
    if item.read_at is not None:
        steps.append({"state": "read", "at": format_time(item.read_at)})
    state = next(step["state"] for step in reversed(steps) if step["state"] in ("stored", "rung", "submitted", "read"))
    answer: dict[str, Any] = {"state": state, "steps": steps}
    if state == "stored" and (travel := [step for step in steps if step["state"] in ("queued", "on_hub", "refused")]):
        if travel[-1]["state"] == "refused":
            answer["reason"] = travel[-1]["reason"]
        elif all(step["state"] == "queued" for step in travel):
            answer["state"] = "queued"
        else:
            answer["reason"] = "machine_away" if is_away(_receiver(item)) else "other_machine"
    if state != "read" and (reason := steps[-1].get("reason")):
        answer.setdefault("reason", reason)
    return answer


def _at(step: Mapping[str, Any]) -> str:
    return str(step.get("at"))
