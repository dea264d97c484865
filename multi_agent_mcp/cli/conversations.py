"""`conversations` and `sessions`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from multi_agent_mcp.cli.context import (
    Json,
    Root,
    Session,
    SessionContext,
    indented,
    session_context,
    table,
    unverified,
)
from multi_agent_mcp.domain.conversation import Conversation
from multi_agent_mcp.domain.sanitize import display_id, one_line
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.services.sessions.agent_sessions import is_running
from multi_agent_mcp.store.codec.frontmatter import as_plain


def conversations(
    conversation_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Left out: list the conversations.")
    ] = None,
    root: Root = None,
    session: Session = None,
    as_json: Json = False,
) -> None:
    """List conversations, or print one with its messages."""
    with session_context(root, session, as_json=as_json) as context:
        service = context.services.conversations
        if conversation_id is not None:
            found = service.get(conversation_id)
            messages = service.messages_of(found.id)
            answer = {"conversation": as_plain(found), "messages": [as_plain(message) for message in messages]}
            context.show(answer, _conversation_lines(found, (service.spoken(found, message) for message in messages)))
            return
        everything = sorted(context.services.workspace.conversations.all(), key=lambda item: (item.started_at, item.id))
        records = [_record(context, item) for item in everything]
        head = ("conversation", "status", "between", "messages", "task", "started", "purpose")
        rows = [
            (
                record["id"],
                record["status"],
                f"{display_id(record['initiator_id'])} ↔ {display_id(record['target_agent_id'])}",
                record["message_count"],
                record["task_id"] or "-",
                record["started_at"],
                record["purpose"] or "",
            )
            for record in records
        ]
        context.show({"conversations": records}, table(head, rows))


def sessions(
    everything: Annotated[bool, typer.Option("--all", help="Ended ones, too.")] = False,
    root: Root = None,
    session: Session = None,
    as_json: Json = False,
) -> None:
    """List agent sessions: who runs, for what, since when."""
    with session_context(root, session, as_json=as_json) as context:
        workspace = context.services.workspace.sessions
        found = sorted(workspace.all() if everything else workspace.open(), key=lambda item: (item.created_at, item.id))
        records = [{**as_plain(item), "alive": is_running(item)} for item in found]
        for record in records:
            del record["token_hash"]
        head = ("session", "agent", "purpose", "state", "task", "pid", "since")
        rows = [
            (
                item.id,
                item.agent_id,
                item.purpose,
                item.state if item.ended_at or is_running(item) else "died",
                item.task_id or "-",
                item.pid,
                format_time(item.created_at),
            )
            for item in found
        ]
        context.show({"sessions": records}, table(head, rows))


def _record(context: SessionContext, conversation: Conversation) -> dict[str, Any]:
    count = len(context.services.conversations.messages_of(conversation.id))
    return {**as_plain(conversation), "message_count": count}


def _conversation_lines(conversation: Conversation, spoken: Iterable[dict[str, Any]]) -> Iterator[str]:
    parties = f"{display_id(conversation.initiator_id)} ↔ {display_id(conversation.target_agent_id)}"
    yield one_line(f"{conversation.id}  {parties}  {conversation.status}  {conversation.purpose or ''}")
    for words in spoken:
        first, *more = words["content"].split("\n")
        yield f"{words['created_at']}  {display_id(words['sender_id'])}{unverified(words)}: {first}"
        yield from indented("\n".join(more)) if more else ()
