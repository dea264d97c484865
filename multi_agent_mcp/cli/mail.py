"""The commands for the human's own mail (`send`, `reply`, `read`, `unread`, `trace`), conversations and sessions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import click

from multi_agent_mcp.cli.context import (
    Id,
    OptionOf,
    SessionContext,
    delivery_lines,
    excerpt,
    indented,
    placed,
    print_error,
    print_line,
    session_command,
    text_of,
    unverified,
)
from multi_agent_mcp.cli.next_step import next_line
from multi_agent_mcp.cli.rendering import (
    ago,
    column_table,
    is_terminal,
    local_time,
    local_times,
    local_words,
    short_id,
    status_words,
    titled_table,
    words_of_code,
)
from multi_agent_mcp.domain.entity import as_json
from multi_agent_mcp.domain.message import MESSAGE_PRIORITIES, MESSAGE_TYPES, Conversation, Message
from multi_agent_mcp.domain.text import display_id, one_line
from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.errors import MessageNotFound, Refusal, StorageError
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.services.turn.reading import ReadBatch, Reading

EVERYBODY = "all"


@click.command()
@click.argument(
    "receiver",
    help="An agent's id, `all` for a broadcast, or whoever is free: `@worker` or another role, `@any` (below you).",
)
@click.argument("content", required=False, help="The message; `-` reads standard input.")
@click.option(
    "--type",
    metavar="TYPE",
    type=click.Choice(MESSAGE_TYPES),
    help=f"One of {', '.join(MESSAGE_TYPES)} (default: request; to all: broadcast).",
)
@click.option("--subject", default="", show_default=False, help="A subject line.")
@click.option("--priority", default="normal", type=click.Choice(MESSAGE_PRIORITIES), help="How urgent it is.")
@click.option("--idempotency-key", help="Repeating it sends nothing twice.")
@click.option(
    "--conversation", metavar="ID", type=Id("cnv"), help="Say it in this conversation; RECEIVER may be omitted."
)
@click.option(
    "--when-idle", cls=OptionOf, feature="free", is_flag=True, help="Wait until the receiver is idle, then send it."
)
@session_command(acting=True)
def send(
    context: SessionContext,
    receiver: str,
    content: str | None,
    type: str | None,
    subject: str,
    priority: str,
    idempotency_key: str | None,
    conversation: str | None,
    when_idle: bool,
) -> None:
    """Send a message and ring its receiver.

    Example: `multi-agent-mcp send admin "Build the login page."`
    """
    from multi_agent_mcp.services.validation import (  # here and below: `unread` and `read` send nothing
        Draft,
        require_words,
    )

    to, words = (receiver, content) if content is not None else (None, receiver)
    if to is None and conversation is None:
        context.wrong_use("missing_parameter", name="CONTENT")
    to_everybody = conversation is None and to == EVERYBODY and EVERYBODY not in context.services.agents.all()
    content = text_of(words)
    require_words("content", content)
    draft = Draft(
        content=content,
        receiver_id=None if to_everybody else to,
        message_type=type,
        subject=subject,
        priority=priority,
        idempotency_key=idempotency_key,
    )
    services = context.services
    if when_idle:
        if to is None or to_everybody:
            context.wrong_use("when_idle_for_one")
        services.contributions.ask("await_idle", context.me, to, print_error)
    if conversation is not None:
        sent = services.conversations.say(context.me, conversation, draft)
    else:
        sent = services.messages.send(context.me, draft)
    context.answer(sent.as_answer(), [*delivery_lines(context, sent), *_first_hint(context)])


def _first_hint(context: SessionContext) -> Iterator[str]:
    """Yields where answers come, for a person to whom nobody has ever written."""
    me = context.me
    if me.type == "human" and not context.services.messages.has_come_to(me.id):
        yield context.texts("sent.first")


@click.command()
@click.argument("message_id", help="A message to you.")
@click.argument("text", help="The answer; `-` reads standard input.")
@session_command(acting=True)
def reply(context: SessionContext, message_id: str, text: str) -> None:
    """Answer a message, which counts as read then: in its conversation if it has one, else as mail to its sender.

    Example: `multi-agent-mcp reply 1a2b3c4d "Postgres."`
    """
    services, me = context.services, context.me
    sent, conversation = services.human_conversations.reply(me, message_id, text_of(text))
    services.reading.answered(me, services.human_conversations.message_to(me, message_id))
    where = conversation.id if conversation is not None else None
    context.answer({**sent.as_answer(), "conversation_id": where}, delivery_lines(context, sent))


@click.command()
@click.argument("agent", required=False, help="Whose mail (default: yours).")
@click.option("--all", "everything", is_flag=True, help="Include mail that has already been read, newest first.")
@click.option("--peek", is_flag=True, help="Look without marking anything read.")
@click.option("--limit", default=50, type=click.IntRange(1), help="How many messages at most.")
@click.option("--before", metavar="MESSAGE_ID", type=Id("msg"), help="With --all: continue before this one.")
@session_command(acting=True)
def read(
    context: SessionContext, agent: str | None, everything: bool, peek: bool, limit: int, before: str | None
) -> None:
    """Print unread mail and mark it read. Mail of another agent is gone for that agent then: use --peek to look.

    Example: `multi-agent-mcp read --peek`
    """
    from multi_agent_mcp.services.turn.reading import Query

    me = context.agent(agent)
    if not peek:
        context.services.agents.require_here(me)
    with suppress(StorageError) if peek else nullcontext():  # a tree that cannot be written can still be read
        context.services.sessions.recover(me.id)
    query = Query(
        unread_only=not everything,
        mark_as_read=not peek,
        limit=limit,
        before=before,
        whole=True,
        polling=False,
    )
    reading = replace(context.services, session=replace(context.services.session, texts=context.texts)).reading
    batch = reading.select(me, query)
    answer = reading.preview(batch)
    context.answer(answer, _message_lines(answer, context.texts))
    sys.stdout.flush()
    _mark_read(context, reading, batch, answer)


@click.command()
@click.argument("agent", required=False, help="Whose mail (default: yours).")
@session_command(acting=True)
def unread(context: SessionContext, agent: str | None) -> None:
    """Count unread mail, and say from whom it is and what it is about.

    Example: `multi-agent-mcp unread worker-a`
    """
    me = context.agent(agent)
    found, now = context.services.unread_mail(me.id), context.services.clock()
    heads = [
        {
            "id": head.id,
            "sender_id": head.sender_id,
            "message_type": head.message_type,
            "priority": head.priority,
            "subject": head.subject or excerpt(head.content),
            "created_at": format_time(head.created_at),
        }
        for head in found
    ]
    columns: dict[str, Callable[[Message], object]] = {
        "id": attrgetter("id"),
        "ago": lambda head: ago(head.created_at, now, context.texts),
        "from": lambda head: display_id(head.sender_id),
        "type": lambda head: words_of_code("type", head.message_type, context.texts),
        "words": lambda head: head.subject or excerpt(head.content),
    }
    lines = [str(len(heads)), *(column_table(context.texts, found, columns) if found else ())]
    context.answer({"agent_id": me.id, "unread_count": len(heads), "messages": heads}, lines)


@click.command()
@click.argument(
    "message_id",
    type=Id("msg", "ntf", "qst", "hnd", "tsk", "dlg"),
    help="A message, broadcast, notification, question, hand-off; or a task; or a delegation for whoever was free.",
)
@session_command()
def trace(context: SessionContext, message_id: str) -> None:
    """Show where a message, a notification, each notification about a question, everything that told of a task, or a
    hand-off is, and every step it took: stored, rung, submitted, read; between machines also queued, on_hub, refused,
    arrived.

    Example: `multi-agent-mcp trace 1a2b3c4d`
    """
    traces = context.services.tracking.trace(message_id)
    if not traces and message_id.startswith("tsk_"):
        raise MessageNotFound("task_not_told", task_id=context.services.task_changes.get(message_id).id)
    if not traces:
        raise MessageNotFound(message_id=message_id)
    context.answer({"message_id": message_id, "copies": traces}, _trace_lines(traces, context.texts))


def _message_lines(answer: dict[str, Any], texts: Texts) -> Iterator[str]:
    for message in answer["messages"]:
        parties = (
            f"{display_id(message['sender_id'])}{unverified(message, texts)} → {display_id(message['receiver_id'])}"
        )
        yield f"── {local_time(message['created_at'], texts)}  {parties}  {_id_here(one_line(message['id']))}"
        kind = f"{_kind(message, texts)}, {_priority(message, texts)}"
        yield "   " + one_line(f"{kind}: {message['subject']}" if message["subject"] else kind)
        yield ""
        yield from indented(message["content"])
        yield ""


def _mark_read(context: SessionContext, reading: Reading, batch: ReadBatch, answer: dict[str, Any]) -> None:
    """Marks the printed messages as read, and prints how many are left, which is known only then."""
    try:
        told = reading.complete(batch)
    except Refusal:
        if not context.as_json:  # JSON has been printed already; the refusal follows
            unread = context.services.unread_mail_count(batch.reader.id)
            print_line(context.texts("mail.left", count=answer["count"], unread=unread))
        raise
    if not context.as_json:
        for line in _left_lines(answer, context.texts):
            print_line(line)
        if not answer["count"] and batch.reader.id == context.agent(None).id:
            for line in next_line(context):
                print_line(line)
    for report in told.get("reports_not_followed", ()):
        print_error(f"{report['message_id']}: {report['reason']}")


def _left_lines(answer: dict[str, Any], texts: Texts) -> Iterator[str]:
    yield texts("mail.left", count=answer["count"], unread=answer["unread_remaining"])
    if "how_to_continue" in answer:
        yield answer["how_to_continue"]


def _kind(message: dict[str, Any], texts: Texts) -> str:
    """Returns the message's type, with the id of its conversation, if any, which `say` requires."""
    conversation_id, kind = message["metadata"].get("conversation_id"), message["message_type"]
    words = words_of_code("type", kind, texts)
    return f"{words} {conversation_id}" if conversation_id else words


def _id_here(message_id: str) -> str:
    return short_id(message_id) if is_terminal() else message_id


def _priority(message: dict[str, Any], texts: Texts) -> str:
    return words_of_code("priority", message["priority"], texts)


def _why(reason: str, texts: Texts) -> str:
    return texts.words_of(reason) if is_terminal() else texts.why_not_rung(reason)


def _trace_lines(traces: list[dict[str, Any]], texts: Texts) -> Iterator[str]:
    from multi_agent_mcp.doorbell.channel import SYSTEM  # here: other commands do not wait for the doorbell

    for copy in traces:
        sender = SYSTEM if copy["sender_id"] is None else placed(copy["sender_id"], copy.get("from_machine"))
        receiver = placed(copy["receiver_id"], copy.get("to_machine"))
        yield one_line(f"{sender} → {receiver}: {status_words(copy['state'], texts)} {copy['path']}")
        if copy.get("taken_at"):
            yield texts("trace.taken", to=one_line(copy["to"]), at=local_time(copy["taken_at"], texts))
        if notice := copy.get("notification"):
            kind = words_of_code("action", notice.get("action") or notice["type"], texts)
            told = (kind, notice["message"], notice.get("reason"))
            yield one_line(": ".join(filter(None, told)))
        stored = parse_time(copy["steps"][0]["at"])
        rows = []
        for step in copy["steps"]:
            at = parse_time(step["at"])
            after = f"+{(at - stored).total_seconds() * 1000:.0f} ms" if at and stored else ""
            came = texts("trace.from", machine=step["machine"]) if "machine" in step else ""
            rows.append(
                (
                    status_words(step["state"], texts),
                    local_time(step["at"], texts),
                    after,
                    came or _why(step.get("reason", ""), texts),
                )
            )
        yield from titled_table(texts, ("step", "at", "after", "reason"), rows)
        print_line()


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
    """List conversations, or print one with its messages.

    Example: `multi-agent-mcp conversations`
    """
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
    """Start a conversation with an agent and ring it.

    Example: `multi-agent-mcp conversation start worker-a "How far are you?"`
    """
    conversation, sent = context.services.human_conversations.start(context.me, agent, text_of(text), purpose, task)
    facts = {"conversation_id": conversation.id, "status": conversation.status, "task_id": conversation.task_id}
    context.answer({**facts, **sent.as_answer()}, [conversation.id, *delivery_lines(context, sent)])


@conversation.command()
@CONVERSATION
@TEXT
@session_command(acting=True)
def say(context: SessionContext, conversation_id: str, text: str) -> None:
    """Say something in a conversation of yours.

    Example: `multi-agent-mcp conversation say cnv_1a2b "And the tests?"`
    """
    from multi_agent_mcp.services.validation import Draft

    sent = context.services.conversations.say(context.me, conversation_id, Draft(content=text_of(text)))
    context.answer({"conversation_id": conversation_id, **sent.as_answer()}, delivery_lines(context, sent))


@conversation.command()
@CONVERSATION
@click.argument("text", required=False, help="Final message; `-` reads standard input.")
@session_command(acting=True)
def end(context: SessionContext, conversation_id: str, text: str | None) -> None:
    """End a conversation of yours; the other side is notified.

    Example: `multi-agent-mcp conversation end cnv_1a2b "Thank you."`
    """
    words = None if text is None else text_of(text)
    if words is not None:
        from multi_agent_mcp.services.validation import require_words

        require_words("TEXT", words)
    ended = context.services.conversations.end(context.me, conversation_id, words)
    told = context.texts("conversation.ended", conversation_id=ended.id)
    context.answer({"conversation_id": ended.id, "status": ended.status}, [told])


@click.command()
@click.option("--all", "everything", is_flag=True, help="Include ended ones.")
@session_command()
def sessions(context: SessionContext, everything: bool) -> None:
    """List agent sessions: who runs, for what, since when.

    Example: `multi-agent-mcp sessions --all`
    """
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
        known = words_of_code("state", state, texts)
        return texts("sessions.last_known", state=known, at=session["last_known_at"] or "-")
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
