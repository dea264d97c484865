"""Tools for identity, messages and notifications (docs/protocol.md, Identity, Sending, Reading, Notifications)."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from pydantic import Field

from multi_agent_mcp.domain.agent import ANY_TASK, Agent, AgentType, Role
from multi_agent_mcp.domain.entity import agent_id as parse_agent_id
from multi_agent_mcp.domain.message import MessagePriority, MessageType
from multi_agent_mcp.domain.task import INTERRUPT_ACTIONS
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import Refusal, Unauthorized
from multi_agent_mcp.server.binding import Binding
from multi_agent_mcp.server.calls import LEADERS, UNLISTED, Answer, Call, Limit, Tool, written
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft, require_text, require_words

CALLS_SECONDS = 0.5
STOPPING = frozenset(INTERRUPT_ACTIONS.values())
"""The actions of the interrupts that `report_completed` answers."""


def authenticate(binding: Binding, agent_id: str, passkey: str) -> Answer:
    """Bind this server to an agent. Needed once, before any other tool."""
    session = binding.authenticate(agent_id, passkey)
    record = session.record
    return {
        "session_token": session.token,
        "agent_id": record.agent_id,
        "role": binding.agent().role,
        "purpose": record.purpose,
        "task_id": record.task_id,
        "expires_at": format_time(record.expires_at),
    }


def logout(call: Call) -> Answer:
    """End this session; only where an instruction says so."""
    # Earlier calls get their answers first; a host that reads none does not read this one either.
    call.confirmation.wait_for_earlier(CALLS_SECONDS)
    call.session.refuse_leases()
    call.confirmation.wait_for_answers()
    kind = _after_logout(call)
    call.binding.logout()
    return {"message": call.services.texts(f"logout.{kind}")}


def _after_logout(call: Call) -> str:
    """What follows a logout, as the key of a text: `closes`, `more` (work waits, which nobody would be rung about who
    has read of it), `stays` or `done`."""
    if call.closes_after_logout:
        return "closes"
    if not call.binding.stays_after_logout:
        return "done"
    turn = call.services.chat_action if call.purpose == "chat" else call.services.next_action
    return "more" if turn.has_more(call.me, call.session) else "stays"


def register_agent_to_ipc(
    call: Call,
    agent_id: str,
    role: Role = "worker",
    type: AgentType = "ai",
    parent_id: str | None = None,
    name: str | None = None,
) -> Answer:
    """Let an agent get mail before it starts."""
    newcomer = Agent(id=parse_agent_id(agent_id), role=role, type=type, parent_id=parent_id, name=name or "")
    agent, created = call.services.agents.register(newcomer, by=call.me)
    return {"agent_id": agent.id, "created": created}


def list_agents(call: Call, after: str | None = None) -> Answer:
    """The agents you can write to, and whether they run."""
    limits, known = call.services.limited.all(), call.services.agents.all()
    ids = list(known)
    rest = ids if after is None else ids[ids.index(call.services.agents.get(after).id) + 1 :]
    agents = [
        {
            "id": agent.id,
            "role": agent.role,
            "type": agent.type,
            "parent_id": agent.parent_id,
            "status": agent.status,
            "alive": call.services.sessions.alive(agent.id),
            **({"limited_until": limits[agent.id].until_said} if agent.id in limits else {}),
        }
        for agent in map(known.__getitem__, rest)
    ]
    return call.page({}, "agents", agents, lambda last: written("list_agents", after=last["id"]), more=False)


# Tools for messages and notifications (docs/protocol.md, Sending, Reading, Notifications).

OWNER = frozenset({"owner"})


def send_message(
    call: Call,
    content: str,
    receiver_id: str | None = None,
    message_type: MessageType | None = None,
    subject: str | None = None,
    priority: MessagePriority = "normal",
    metadata: dict[str, Any] | None = None,
    conversation_id: str | None = None,
    idempotency_key: str | None = None,
) -> Answer:
    """Send a message to an agent, to everybody (no receiver_id), or into a conversation.
    An idempotency_key sends nothing twice."""
    require_words("content", content)
    draft = Draft(
        content=content,
        receiver_id=receiver_id,
        message_type=message_type,
        subject=subject or "",
        priority=priority,
        metadata=metadata or {},
        idempotency_key=idempotency_key,
    )
    if conversation_id is not None:
        sent = call.services.conversations.say(call.me, conversation_id, draft)
    else:
        sent = call.services.messages.send(call.me, draft)
    return sent.as_answer()


def read_messages(
    call: Call,
    agent_id: str | None = None,
    unread_only: bool = True,
    mark_as_read: bool = True,
    message_type: Annotated[MessageType, UNLISTED] | None = None,
    limit: Limit = 50,
    before: str | None = None,
    message_id: str | None = None,
    offset: Annotated[int, Field(ge=0)] = 0,
) -> Answer:
    """Read your unread mail, urgent first, then oldest. Call it when an [IPC] line appears.
    unread_only=false: history, newest first; before=<message id> continues.
    message_id and offset (characters) continue a long message."""
    _require_own(call, agent_id)
    for name, value in (("before", before), ("message_id", message_id)):
        if value is not None:
            require_text(name, value)
    query = Query(
        unread_only=unread_only,
        mark_as_read=mark_as_read,
        message_type=message_type,
        limit=limit,
        before=before,
        message_id=message_id,
        offset=offset,
    )
    answer = call.services.reading.read(call.me, query, call.confirmation.lease)
    call.unread = answer["unread_remaining"]
    if call.purpose == "chat" and any(message["metadata"].get("ended") for message in answer["messages"]):
        answer["instruction"] = call.after_talk()
    return answer


def get_unread_count(call: Call, agent_id: str | None = None) -> Answer:
    """Count your unread messages."""
    _require_own(call, agent_id)
    call.unread = call.services.reading.count(call.me)
    return {"agent_id": call.me.id, "unread_count": call.unread}


def get_message_status(call: Call, message_id: str) -> Answer:
    """What became of a message you sent or a notification you caused."""
    require_text("message_id", message_id)
    return call.services.tracking.status(call.me, message_id)


def unlock_owner_wait(call: Call, reason: str | None = None) -> Answer:
    """Emergency only: stop waiting for the Admin's answer."""
    return call.services.owner_waits.unlock(call.me, call.me, reason)


def _require_own(call: Call, agent_id: str | None) -> None:
    if agent_id is not None and parse_agent_id(agent_id) != call.me.id:
        raise Unauthorized("not_own_mailbox", agent_id=agent_id)


def get_notifications(call: Call, mark_as_read: bool = True) -> Answer:
    """Read your notifications, newest first, and do what their instructions say."""
    answer: Answer = {}
    more = call.services.texts("more.notifications")
    with suppress(Refusal):  # a failing disk hides nothing that is there
        if call.still is None:
            call.pending()  # what follows from files is written first, or this answer would announce what it lacks

    def fits(notices: list[dict[str, Any]]) -> int:
        answer.update(call.fitting({}, "notifications", notices, more))
        return len(answer["notifications"])

    read = call.services.notifications.read(
        call.me.id, call.purpose, mark_as_read=mark_as_read, fits=fits, lease=call.confirmation.lease
    )
    if mark_as_read:
        stops = (item for item in reversed(read) if item["type"] == "interrupt" and item["action"] in STOPPING)
        call.session.told_to_stop([item["task_id"] or ANY_TASK for item in stops])
    return answer


IDENTITY = (
    Tool(authenticate, "Authenticate", roles=frozenset()),
    Tool(logout, "Log out"),
    Tool(register_agent_to_ipc, "Register agent", roles=LEADERS),
    Tool(list_agents, "List agents", read_only=True),
)
MAIL = (
    Tool(send_message, "Send message", always_load=True),
    Tool(read_messages, "Read mail", always_load=True),
    Tool(get_unread_count, "Count unread mail", read_only=True),
    Tool(get_message_status, "Message status", read_only=True),
    Tool(unlock_owner_wait, "Stop waiting", roles=OWNER),
    Tool(get_notifications, "Notifications", always_load=True),
)
