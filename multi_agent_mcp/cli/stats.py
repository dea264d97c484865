"""`stats`: statistics of agents, tasks and days."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from multi_agent_mcp.cli.context import SessionContext, session_command
from multi_agent_mcp.cli.output import excerpt, titled_table
from multi_agent_mcp.domain.times import format_duration, local_zone

if TYPE_CHECKING:
    from multi_agent_mcp.domain.statistics import Statistics
    from multi_agent_mcp.texts import Texts

AGENTS = ("agent", "calls", "sent", "received", "done", "busy", "waiting", "blocked", "until_seen", "lead")
TASKS = ("task", "assignee", "status", "lead", "busy", "blocked", "title")
DAYS = ("day", "done", "busy", "messages")
TASKS_SHOWN = 20


@click.command()
@click.option("--days", default=7, type=click.IntRange(1, 3_650), help="Number of days, including today.")
@session_command()
def stats(context: SessionContext, days: int) -> None:
    """Show per agent tool calls, busy and waiting time, tasks done, blocked time and the time until mail is read; per
    task how long it took; and every day's sum."""
    found = context.services.statistics.last_days(days, local_zone())
    context.answer(found.as_answer(), _lines(found, context.texts))


def _lines(found: Statistics, texts: Texts) -> Iterator[str]:
    yield texts("stats.period", start=f"{found.days[0].day}", end=f"{found.days[-1].day}")
    yield ""
    yield from titled_table(texts, AGENTS, _agents(found))
    yield ""
    yield from titled_table(texts, TASKS, _tasks(found))
    yield ""
    yield from titled_table(texts, DAYS, _days(found))
    if found.left_out:
        yield texts("stats.left_out", count=found.left_out)


def _agents(found: Statistics) -> Iterator[tuple[object, ...]]:
    for agent in found.agents:
        counts = (agent.tool_calls, agent.sent, agent.received, agent.done)
        times = (agent.busy, agent.waiting, agent.blocked, agent.until_read, agent.lead)
        yield (agent.agent_id, *counts, *map(_duration, times))


def _tasks(found: Statistics) -> Iterator[tuple[object, ...]]:
    """Yields rows for the tasks that took longest, longest first."""
    longest = sorted(found.tasks, key=lambda task: task.lead or task.working, reverse=True)
    for task in longest[:TASKS_SHOWN]:
        times = map(_duration, (task.lead, task.working, task.blocked))
        yield (task.task_id, task.assignee_id or "-", task.status, *times, excerpt(task.title))


def _days(found: Statistics) -> Iterator[tuple[object, ...]]:
    for day in found.days:
        yield day.day, sum(day.done.values()), _duration(sum(day.busy.values())), day.messages


def _duration(seconds: float | None) -> str:
    return "-" if not seconds else format_duration(timedelta(seconds=seconds))
