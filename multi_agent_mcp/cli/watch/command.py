"""The `watch` command: once, as data, or live."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from multi_agent_mcp.cli.context import Json, Root, Session, session_context, table
from multi_agent_mcp.cli.watch.rows import heading, tables
from multi_agent_mcp.services.overview.snapshot import Seen


def watch(
    once: Annotated[bool, typer.Option("--once", help="Print it once, as plain tables, and end.")] = False,
    messages: Annotated[int, typer.Option(min=0, max=1_000, help="How many of the last messages.")] = 20,
    root: Root = None,
    session: Session = None,
    as_json: Json = False,
) -> None:
    """Show agents, open tasks and the last messages, redrawn when something changes; q or Ctrl-C ends it."""
    with session_context(root, session, as_json=as_json) as context:
        if once or as_json or not sys.stdout.isatty():
            seen = context.services.snapshots.look(messages=messages)
            context.show(seen.as_answer(), _plain(seen))
            return
        from multi_agent_mcp.cli.watch.live import run  # rich takes 40 ms to import

        run(context.services, messages)


def _plain(seen: Seen) -> Iterator[str]:
    yield heading(seen)
    for head, rows in tables(seen):
        yield ""
        yield from table(head, rows)
