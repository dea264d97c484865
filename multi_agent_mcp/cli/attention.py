"""`attention`: lists the items that wait for the human."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from multi_agent_mcp.cli.answer import list_dialogs
from multi_agent_mcp.cli.context import SessionContext, session_command
from multi_agent_mcp.cli.output import titled_table
from multi_agent_mcp.cli.watch.rows import said
from multi_agent_mcp.domain.times import format_duration

if TYPE_CHECKING:
    from datetime import datetime

    from multi_agent_mcp.services.attention import Item
    from multi_agent_mcp.texts import Texts

HEAD = ("for", "agent", "what", "says", "command")


@click.command()
@session_command(acting=True)
def attention(context: SessionContext) -> None:
    """List everything that waits for you, the worst first, each with what helps: questions in panes, stuck agents,
    requests to decide, blocked tasks, what could not be announced, mail, what `doctor` finds."""
    services = context.services
    items = services.attention.of(context.agent(None), services.doctor().examine())
    answer = {"items": [item.as_answer() for item in items]}
    asked = {item.agent_id: item.dialog for item in items if item.agent_id is not None and item.dialog is not None}
    lines = [*attention_lines(items, services.clock(), services.people), *([""] if asked else [])]
    context.answer(answer, [*lines, *list_dialogs(context, asked)])


def attention_lines(items: Iterable[Item], now: datetime, texts: Texts) -> Iterator[str]:
    """Yields the items as a table, or the line that nothing waits."""
    rows = [_row(item, now, texts) for item in items]
    return titled_table(texts, HEAD, rows) if rows else iter([texts("attention.nothing")])


def _row(item: Item, now: datetime, texts: Texts) -> tuple[str, ...]:
    since = "-" if item.since is None else format_duration(max(now - item.since, timedelta(0)))
    command = item.command
    if item.machine is not None:
        command = texts("attention.there", machine=item.machine, command=command)
    return since, item.agent_id or "-", texts(f"attention.kind.{item.kind}"), said(item, texts), command
