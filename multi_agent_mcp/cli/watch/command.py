"""The `watch` command: prints a snapshot as tables or JSON, or shows it live."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import click

from multi_agent_mcp.cli.context import SessionContext, session_command
from multi_agent_mcp.cli.output import titled_table
from multi_agent_mcp.cli.watch.rows import heading, tables, waiting_for_owner

if TYPE_CHECKING:
    from multi_agent_mcp.services.attention import Item
    from multi_agent_mcp.services.overview.snapshot import Snapshot
    from multi_agent_mcp.texts import Texts


@click.command()
@click.option("--once", is_flag=True, help="Print it once, as plain tables, and end.")
@click.option("--messages", default=20, type=click.IntRange(0, 1_000), help="How many of the last messages.")
@session_command()
def watch(context: SessionContext, once: bool, messages: int) -> None:
    """Show agents, open tasks and the last messages, redrawn when something changes; q or Ctrl-C ends it."""
    if once or context.as_json or not sys.stdout.isatty():
        services = context.services
        seen, items = services.snapshots.take(messages=messages), waiting_for_owner(services, services.attention.of)
        answer = seen.as_answer() | {"attention": [item.as_answer() for item in items]}
        context.answer(answer, _plain(seen, items, services.people))
        return
    from multi_agent_mcp.cli.watch.live import run  # rich takes 40 ms to import

    run(context.services, messages)


def _plain(seen: Snapshot, items: Collection[Item], texts: Texts) -> Iterator[str]:
    yield heading(seen, items, texts)
    for _, head, rows in tables(seen, items, texts):
        yield ""
        yield from titled_table(texts, head, rows)
