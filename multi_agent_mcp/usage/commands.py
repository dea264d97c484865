"""The command `usage`: what the agents' models took, by agent, task and model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from multi_agent_mcp.cli.context import SessionContext, excerpt, session_command
from multi_agent_mcp.cli.rendering import titled_table
from multi_agent_mcp.domain.times import local_zone
from multi_agent_mcp.errors import TaskNotFound
from multi_agent_mcp.usage.tokens import COUNTED, Prices, Tokens, UsageRow, grouped, total_of

if TYPE_CHECKING:
    from multi_agent_mcp.texts import Texts
    from multi_agent_mcp.wiring import Services

BY = {"agent": "agent_id", "task": "task_id", "model": "model"}


@click.command()
@click.option("--days", default=7, type=click.IntRange(1, 3_650), help="Number of days, including today.")
@click.option("--by", type=click.Choice([*BY]), help="Add up by this (default: by all three).")
@session_command()
def usage(context: SessionContext, days: int, by: str | None) -> None:
    """Count the tokens that the agents' models took, from the files that their hosts keep.

    Example: `multi-agent-mcp usage --by task`
    """
    rows = context.services.usage.rows(days, local_zone())
    prices = context.services.usage.prices()
    costs = sum((row.cost_at(prices) or 0.0 for row in rows), 0.0) if prices else 0.0
    total, off = total_of(rows), context.services.settings.of("usage") is False
    shown = rows if by is None else grouped(rows, BY[by], prices)
    answer = {
        "days": days,
        "rows": [row.as_answer(prices) for row in shown],
        "total": UsageRow(None, None, None, total).counts,
        **({"cost": costs, "currency": prices.currency} if prices else {}),
        **({"usage": "off"} if off else {}),
    }
    titles = _titles(context.services, shown)
    context.answer(answer, _lines(shown, rows, prices, context.texts, titles, off=off))


def _titles(services: Services, rows: Iterable[UsageRow]) -> Mapping[str, str]:
    """Returns the titles of the tasks of these rows by their ids, as far as the tasks are still there."""
    titles = {}
    for task_id in {row.task_id for row in rows if row.task_id is not None}:
        with suppress(TaskNotFound):
            titles[task_id] = excerpt(services.task_changes.get(task_id).title)
    return titles


def _lines(
    shown: list[UsageRow],
    rows: list[UsageRow],
    prices: Prices | None,
    texts: Texts,
    titles: Mapping[str, str],
    *,
    off: bool,
) -> Iterator[str]:
    if off or not shown:
        yield texts("usage.off" if off else "usage.none")
        return
    head = ["agent", "task", "model", *COUNTED, *(["cost"] if prices else []), *(["title"] if titles else [])]
    known = [row for row in rows if row.tokens is not None]
    paid = [cost for row in rows if (cost := row.cost_at(prices)) is not None]
    total = UsageRow(texts("usage.total"), "", "", total_of(known) if known else None, cost=sum(paid) if paid else None)
    named = [titles.get(row.task_id or "", "") for row in shown]
    costs = 1 if prices else 0  # the cells end with the cost
    cells = [*_cells(shown, prices, texts), *_cells([total], prices, texts)]
    rows_shown = [[*row[: len(row) - 1 + costs], title] for row, title in zip(cells, [*named, ""], strict=True)]
    yield from titled_table(texts, head, [row[: len(head)] for row in rows_shown])
    if len(known) < len(rows):
        yield texts(
            "usage.unknown", agents=", ".join(sorted({str(row.agent_id) for row in rows if row.tokens is None}))
        )


def _cells(rows: Iterable[UsageRow], prices: Prices | None, texts: Texts) -> Iterator[list[object]]:
    for row in rows:
        cost = row.cost_at(prices)
        who = ["-" if name is None else name for name in (row.agent_id, row.task_id, row.model)]
        yield [
            *who,
            *_numbers(row.tokens, texts),
            "" if cost is None else f"{cost:.2f} {prices.currency if prices else ''}",
        ]


def _numbers(tokens: Tokens | None, texts: Texts) -> list[str]:
    """Returns the counted numbers with separators; output is with the thinking that a host counts beside it."""
    if tokens is None:
        return [texts("usage.not_known")] * len(COUNTED)
    counts = (tokens.input, tokens.output + tokens.reasoning, tokens.cache_read, tokens.cache_write)
    return [f"{count:,}" for count in counts]
