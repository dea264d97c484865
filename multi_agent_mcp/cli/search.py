"""`search`: finds words in mail, tasks, conversations and execution logs, archived ones included."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from multi_agent_mcp.cli.context import SessionContext, session_command
from multi_agent_mcp.cli.output import indented, text_of
from multi_agent_mcp.domain.sanitize import display_id, one_line
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.services.search.search import Found, Results, SearchQuery
from multi_agent_mcp.texts import Texts

TOLD_EVERY = 500


@click.command()
@click.argument(
    "words",
    nargs=-1,
    required=True,
    help="All of them are looked for, each as part of any word; quote a phrase. "
    "`from:AGENT to:AGENT task:ID after:TIME before:TIME` among them narrow the search.",
)
@click.option("--limit", default=20, type=click.IntRange(1, 1_000), help="How many, the newest first.")
@click.option("--rebuild", is_flag=True, help="Recreate the index first. It is derived, so nothing is lost.")
@session_command()
def search(context: SessionContext, words: tuple[str, ...], limit: int, rebuild: bool) -> None:
    """Find words in messages, tasks, conversations and the logs of executions."""
    query = SearchQuery.parse(map(text_of, words))
    service, texts = context.services.search, context.texts
    if rebuild:
        service.rebuild()
    with _progress(texts) as told:
        results = service.find(query, limit, told)
    answer = {"results": [found.as_answer() for found in results.found], "has_more": results.more}
    context.answer(answer, _lines(results, texts))


def _lines(results: Results, texts: Texts) -> Iterator[str]:
    if not results.found:
        yield texts("search.nothing")
    for found in results.found:
        yield f"{format_time(found.at)}  {texts(f'search.{found.kind}')}  {_between(found)}  {one_line(found.title)}"
        yield from indented(found.excerpt)
        yield from indented(found.path if found.line is None else f"{found.path}:{found.line}")
    if results.more:
        yield texts("search.more")


def _between(found: Found) -> str:
    """Returns sender and receiver, as far as known."""
    return " → ".join(display_id(name) for name in (found.sender_id, found.receiver_id) if name is not None)


@contextmanager
def _progress(texts: Texts) -> Iterator[Callable[[], None]]:
    """Yields a function that counts files read and shows the number on a terminal: the first search reads all."""
    count = 0

    def told() -> None:
        nonlocal count
        count += 1
        if count % TOLD_EVERY == 0 and sys.stderr.isatty():
            sys.stderr.write(f"\r{texts('search.reading', count=count)}")
            sys.stderr.flush()

    yield told
    if count >= TOLD_EVERY and sys.stderr.isatty():
        sys.stderr.write("\n")
