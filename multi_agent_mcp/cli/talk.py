"""`conversations` and `sessions`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from multi_agent_mcp.cli.door import Desk, Json, Root, Session, desk, indented, table, unverified
from multi_agent_mcp.domain.conversation import Conversation
from multi_agent_mcp.domain.plain import named, one_line
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.services.sessions import is_running
from multi_agent_mcp.store.frontmatter import as_plain


def conversations(
    conversation_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Left out: list the conversations.")
    ] = None,
    root: Root = None,
    session: Session = None,
    as_json: Json = False,
) -> None:
    """List conversations, or print one with its messages."""
    with desk(root, session, as_json=as_json) as opened:
        service = opened.services.conversations
        if conversation_id is not None:
            found = service.get(conversation_id)
            messages = service.messages_of(found.id)
            answer = {"conversation": as_plain(found), "messages": [as_plain(message) for message in messages]}
            opened.show(answer, _conversation_lines(found, (service.spoken(found, message) for message in messages)))
            return
        everything = sorted(opened.services.workspace.conversations.all(), key=lambda item: (item.started_at, item.id))
        records = [_record(opened, item) for item in everything]
        head = ("conversation", "status", "between", "messages", "task", "started", "purpose")
        rows = [
            (
                record["id"],
                record["status"],
                f"{named(record['initiator_id'])} ↔ {named(record['target_agent_id'])}",
                record["message_count"],
                record["task_id"] or "-",
                record["started_at"],
                record["purpose"] or "",
            )
            for record in records
        ]
        opened.show({"conversations": records}, table(head, rows))


def sessions(
    everything: Annotated[bool, typer.Option("--all", help="Ended ones, too.")] = False,
    root: Root = None,
    session: Session = None,
    as_json: Json = False,
) -> None:
    """List agent sessions: who runs, for what, since when."""
    with desk(root, session, as_json=as_json) as opened:
        workspace = opened.services.workspace.sessions
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
        opened.show({"sessions": records}, table(head, rows))


def _record(opened: Desk, conversation: Conversation) -> dict[str, Any]:
    count = len(opened.services.conversations.messages_of(conversation.id))
    return {**as_plain(conversation), "message_count": count}


def _conversation_lines(conversation: Conversation, spoken: Iterable[dict[str, Any]]) -> Iterator[str]:
    parties = f"{named(conversation.initiator_id)} ↔ {named(conversation.target_agent_id)}"
    yield one_line(f"{conversation.id}  {parties}  {conversation.status}  {conversation.purpose or ''}")
    for words in spoken:
        first, *more = words["content"].split("\n")
        yield f"{words['created_at']}  {named(words['sender_id'])}{unverified(words)}: {first}"
        yield from indented("\n".join(more)) if more else ()
