"""Operations on delegations and conversations, reports of a chat session to its task session, and what an agent leaves
for going on: hand-offs, and the conversation of its host."""

from __future__ import annotations

from collections.abc import Iterator

from multi_agent_mcp.hooks.answers import Event
from multi_agent_mcp.wiring import Services
from tests.crash.invariants import conversations, mail, notices
from tests.crash.operations.judging import whole
from tests.crash.operations.reports import with_work
from tests.crash.stage import Aftermath, Deed, Facts, Operation


def delegate(deed: Deed) -> None:
    arguments = {"target_agent_id": "worker-b", "purpose": "play", "context": "shiritori"}
    deed.acknowledge(deed.seat("worker-a").call("delegate_to_chat_session", **arguments))


def delegated(after: Aftermath) -> Iterator[str]:
    yield from whole(after, delegation=len(after.services.delegations.offered("worker-a")))


def start(deed: Deed) -> None:
    arguments = {"target_agent_id": "worker-b", "initial_message": "りんご"}
    deed.acknowledge(deed.seat("worker-a", "chat").call("start_conversation", **arguments))


def started(after: Aftermath) -> Iterator[str]:
    messages = [message for message in mail(after.services, "worker-b") if message.content == "りんご"]
    found = conversations(after.services)
    copies = [len(after.services.conversations.messages_of(item.id)) for item in found]
    yield from whole(after, conversation=len(found), mail=len(messages), copy=sum(copies))


def with_a_delegation(services: Services) -> Facts:
    session = services.sessions.open("worker-a", "task")
    worker = services.agents.get("worker-a")
    delegation, _ = services.delegations.delegate(worker, session.record, "worker-b", "play", None)
    session.end()
    return {"delegation_id": delegation.id}


def run(deed: Deed) -> None:
    seat = deed.seat("worker-a", "chat")
    (offered,) = seat.call("get_pending_delegations")["delegations"]
    arguments = {"target_agent_id": "worker-b", "initial_message": "りんご", "delegation_id": offered["delegation_id"]}
    deed.acknowledge(seat.call("start_conversation", **arguments))


def carried_out(after: Aftermath) -> Iterator[str]:
    """Yields a complaint unless the operation was carried out once or is offered again."""
    yield from started(after)
    offers = after.services.delegations.offered("worker-a")
    if len(offers) + len(conversations(after.services)) != 1:
        yield f"{len(offers)} offers and {len(conversations(after.services))} conversations of one delegation"


def with_a_conversation(services: Services) -> Facts:
    worker, other = services.agents.get("worker-a"), services.agents.get("worker-b")
    conversation, _ = services.conversations.begin(worker, other, "りんご")
    return {"conversation_id": conversation.id}


def say(deed: Deed) -> None:
    arguments = {"conversation_id": deed.told["conversation_id"], "content": "ごりら"}
    deed.acknowledge(deed.seat("worker-b", "chat").call("send_message", **arguments))


def said(after: Aftermath) -> Iterator[str]:
    messages = [message for message in mail(after.services, "worker-a") if message.content == "ごりら"]
    spoken = after.services.conversations.messages_of(after.told["conversation_id"])
    copies = [message for message in spoken if message.content == "ごりら"]
    active = after.services.conversations.get(after.told["conversation_id"]).status == "active"
    yield from whole(after, mail=len(messages), copy=len(copies), active=int(active))


def end(deed: Deed) -> None:
    arguments = {"conversation_id": deed.told["conversation_id"], "final_message": "さようなら"}
    deed.acknowledge(deed.seat("worker-a", "chat").call("end_conversation", **arguments))


def ended(after: Aftermath) -> Iterator[str]:
    messages = [message for message in mail(after.services, "worker-b") if message.content == "さようなら"]
    over = after.services.conversations.get(after.told["conversation_id"]).status == "ended"
    yield from whole(after, final_words=len(messages), ended=int(over))


def end_silently(deed: Deed) -> None:
    deed.acknowledge(
        deed.seat("worker-a", "chat").call("end_conversation", conversation_id=deed.told["conversation_id"])
    )


def ended_silently(after: Aftermath) -> Iterator[str]:
    messages = [message for message in mail(after.services, "worker-b") if message.message_type == "system"]
    over = after.services.conversations.get(after.told["conversation_id"]).status == "ended"
    yield from whole(after, notice=len(messages), ended=int(over))


def notify(deed: Deed) -> None:
    arguments = {"conversation_id": deed.told["conversation_id"], "message": "look", "priority": "high"}
    deed.acknowledge(deed.seat("worker-a", "chat").call("notify_task_session", **arguments))


def notified(after: Aftermath) -> Iterator[str]:
    yield from whole(after, notice=sum(notice.message == "look" for notice in notices(after.services, "worker-a")))


CHAT = (("worker-a", "chat"),)


def with_a_hand_off(services: Services) -> Facts:
    """Work about which its agent has left a hand-off."""
    told = with_work(services)
    services.hand_offs.write(services.agents.get("worker-a"), "the walls stand", str(told["task_id"]), None)
    return told


def hand_off(deed: Deed) -> None:
    deed.acknowledge(deed.seat("worker-a").call("hand_off", content="the roof is on", task_id=deed.told["task_id"]))


def handed_off(after: Aftermath) -> Iterator[str]:
    """Yields a complaint, too, if the earlier hand-off is lost, or the last one is not the one that counts."""
    contents = [kept.hand_off.content for kept in after.services.hand_offs.all("worker-a")]
    yield from whole(after, hand_off=contents.count("the roof is on"))
    if contents.count("the walls stand") != 1:
        yield f"the earlier hand-off is there {contents.count('the walls stand')} times"
    current = after.services.hand_offs.about(after.told["task_id"])
    if current is None or current.hand_off.content != contents[0]:
        yield "another hand-off than the last one counts"


def converse(deed: Deed) -> None:
    seat = deed.seat("worker-a")
    deed.services.hooks.answer("worker-a", "task", Event("SessionStart", "c-1", "claude", source="startup"))
    deed.acknowledge(seat.call("get_unread_count"))


def recorded(after: Aftermath) -> Iterator[str]:
    found = [session.host_session for session in after.services.sessions.all(ended=True)]
    yield from whole(after, conversation=found.count("c-1"))


OPERATIONS = (
    Operation("delegate_to_chat_session", delegate, delegated, with_work, (("worker-a", "task"),)),
    Operation("start_conversation", start, started, seats=CHAT),
    Operation("start_delegated_conversation", run, carried_out, with_a_delegation, CHAT),
    Operation("conversation_message", say, said, with_a_conversation, (("worker-b", "chat"),)),
    Operation("end_conversation", end, ended, with_a_conversation, CHAT),
    Operation("end_conversation_silently", end_silently, ended_silently, with_a_conversation, CHAT),
    Operation("notify_task_session", notify, notified, with_a_conversation, CHAT),
    Operation("hand_off", hand_off, handed_off, with_a_hand_off, (("worker-a", "task"),)),
    Operation("host_conversation", converse, recorded, with_work, (("worker-a", "task"),)),
)
