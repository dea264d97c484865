"""The `watch` command: once, as data, or live."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from multi_agent_mcp.cli.context import SessionContext, session_command
from multi_agent_mcp.cli.output import titled_table
from multi_agent_mcp.cli.watch.rows import heading, tables

if TYPE_CHECKING:
    from multi_agent_mcp.services.overview.snapshot import Snapshot
    from multi_agent_mcp.texts import Texts


@click.command()
@click.option("--once", is_flag=True, help="Print it once, as plain tables, and end.")
@click.option("--messages", default=20, type=click.IntRange(0, 1_000), help="How many of the last messages.")
@session_command()
def watch(context: SessionContext, once: bool, messages: int) -> None:
    """Show agents, open tasks and the last messages, redrawn when something changes; q or Ctrl-C ends it."""
    if once or context.as_json or not sys.stdout.isatty():
        seen = context.services.snapshots.take(messages=messages)
        context.answer(seen.as_answer(), _plain(seen, context.services.people))
        return
    from multi_agent_mcp.cli.watch.live import run  # rich takes 40 ms to import

    run(context.services, messages)


def _plain(seen: Snapshot, texts: Texts) -> Iterator[str]:
    yield heading(seen, texts)
    for head, rows in tables(seen, texts):
        yield ""
        yield from titled_table(texts, head, rows)
