"""`conversations`, `conversation start`, `say`, `end` and `sessions`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from multi_agent_mcp.cli.context import (
    Id,
    SessionContext,
    delivery_lines,
    indented,
    session_command,
    text_of,
    unverified,
)
from multi_agent_mcp.cli.rendering import column_table, local_times, local_words, status_words, words_of_code
from multi_agent_mcp.domain.entity import as_json
from multi_agent_mcp.domain.text import display_id, one_line
from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.services.validation import Draft, require_words

if TYPE_CHECKING:
    from datetime import datetime

    from multi_agent_mcp.domain.message import Conversation
    from multi_agent_mcp.texts import Texts

Record = dict[str, Any]

CONVERSATION = click.argument(
    "conversation_id", metavar="CONVERSATION", type=Id("cnv"), help="Its id; `conversations` lists them."
)
TEXT = click.argument("text", help="What you say; `-` reads standard input.")


@click.group()
def conversation() -> None:
    """Conversations: start one, say something in it, end it."""


@click.command()
@click.argument(
    "conversation_id", metavar="ID", required=False, type=Id("cnv"), help="If omitted, list the conversations."
)
@session_command()
def conversations(context: SessionContext, conversation_id: str | None) -> None:
    """List conversations, or print one with its messages."""
    service = context.services.conversations
    if conversation_id is not None:
        found = service.get(conversation_id)
        messages = service.messages_of(found.id)
        answer = {"conversation": as_json(found), "messages": [as_json(message) for message in messages]}
        spoken = [service.spoken(found, message) for message in messages]
        context.answer(answer, _conversation_lines(found, spoken, context.texts))
        return
    records = [{**as_json(item), "message_count": len(service.messages_of(item.id))} for item in service.all()]
    texts, now = context.texts, context.services.clock()
    columns: dict[str, Callable[[Record], object]] = {
        "conversation": itemgetter("id"),
        "status": lambda item: status_words(item["status"], texts),
        "between": lambda item: f"{display_id(item['initiator_id'])} ↔ {display_id(item['target_agent_id'])}",
        "messages": itemgetter("message_count"),
        "task": lambda item: item["task_id"] or "-",
        "started": lambda item: _moment(item["started_at"], now, texts),
        "purpose": lambda item: item["purpose"] or "",
    }
    lines = column_table(texts, records, columns) if records else [texts("conversation.none")]
    context.answer({"conversations": records}, lines)


def _moment(at: str, now: datetime, texts: Texts) -> str:
    moment = parse_time(at)
    return at if moment is None else local_words(moment, now, texts)


@conversation.command()
@click.argument("agent", help="Whom to talk to.")
@TEXT
@click.option("--purpose", help="What it is about.")
@click.option("--task", metavar="TASK_ID", type=Id("tsk"), help="The task it belongs to.")
@session_command(acting=True)
def start(context: SessionContext, agent: str, text: str, purpose: str | None, task: str | None) -> None:
    """Start a conversation with an agent and ring it."""
    conversation, sent = context.services.human_conversations.start(context.me, agent, text_of(text), purpose, task)
    facts = {"conversation_id": conversation.id, "status": conversation.status, "task_id": conversation.task_id}
    context.answer({**facts, **sent.as_answer()}, [conversation.id, *delivery_lines(sent, context.texts)])


@conversation.command()
@CONVERSATION
@TEXT
@session_command(acting=True)
def say(context: SessionContext, conversation_id: str, text: str) -> None:
    """Say something in a conversation of yours."""
    sent = context.services.conversations.say(context.me, conversation_id, Draft(content=text_of(text)))
    context.answer({"conversation_id": conversation_id, **sent.as_answer()}, delivery_lines(sent, context.texts))


@conversation.command()
@CONVERSATION
@click.argument("text", required=False, help="Final message; `-` reads standard input.")
@session_command(acting=True)
def end(context: SessionContext, conversation_id: str, text: str | None) -> None:
    """End a conversation of yours; the other side is told."""
    words = None if text is None else text_of(text)
    if words is not None:
        require_words("TEXT", words)
    ended = context.services.conversations.end(context.me, conversation_id, words)
    told = context.texts("conversation.ended", conversation_id=ended.id)
    context.answer({"conversation_id": ended.id, "status": ended.status}, [told])


@click.command()
@click.option("--all", "everything", is_flag=True, help="Include ended ones.")
@session_command()
def sessions(context: SessionContext, everything: bool) -> None:
    """List agent sessions: who runs, for what, since when."""
    is_running, known_until = context.services.sessions.is_running, context.services.machines.known_until()
    found = context.services.sessions.all(ended=everything)
    records = [{**as_json(item), "alive": is_running(item)} for item in found]
    for record in records:
        del record["token_hash"]
        if record["ended_at"] is None and (machine := record.get("machine")) in known_until:
            until = known_until[machine]
            record |= {"alive": None, "last_known_at": format_time(until) if until else None}
    columns: dict[str, Callable[[Record], object]] = {
        "session": itemgetter("id"),
        "agent": itemgetter("agent_id"),
        "purpose": lambda item: words_of_code("purpose", item["purpose"], context.texts),
        "state": lambda item: _state(item, context.texts),
        "task": lambda item: item["task_id"] or "-",
        "pid": itemgetter("pid"),
        "since": lambda item: _moment(item["created_at"], context.services.clock(), context.texts),
    }
    context.answer({"sessions": records}, column_table(context.texts, records, columns))


def _state(session: Record, texts: Texts) -> str:
    """Returns the state to show: `died` if the process is gone, or the last known state if the machine is away."""
    state: str = session["state"]
    if "last_known_at" in session:
        return texts("sessions.last_known", state=state, at=session["last_known_at"] or "-")
    return status_words(state if session["ended_at"] or session["alive"] else "died", texts)


def _conversation_lines(conversation: Conversation, messages: Iterable[dict[str, Any]], texts: Texts) -> Iterator[str]:
    parties = f"{display_id(conversation.initiator_id)} ↔ {display_id(conversation.target_agent_id)}"
    status = status_words(conversation.status, texts)
    yield one_line(f"{conversation.id}  {parties}  {status}  {conversation.purpose or ''}")
    for message in messages:
        yield from spoken_lines(message, texts)


def spoken_lines(message: dict[str, Any], texts: Texts) -> Iterator[str]:
    """Yields a message of a conversation: when, by whom, what."""
    first, *more = message["content"].split("\n")
    at = local_times(message["created_at"], texts)
    yield f"{at}  {display_id(message['sender_id'])}{unverified(message, texts)}: {first}"
    yield from indented("\n".join(more)) if more else ()
