"""Commands that show and count what happened: `timeline` and `stats`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from multi_agent_mcp.cli.context import SessionContext, excerpt, placed, session_command
from multi_agent_mcp.cli.rendering import (
    folded,
    is_terminal,
    local_words,
    since,
    status_words,
    subjects_words,
    titled_table,
    words_of_code,
)
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.domain.times import asked_time, duration_words, in_zone, local_zone
from multi_agent_mcp.system.files import storage_errors
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.timeline.events import Arrow, Bar, Interruption, PaneAnswer, Timeline
    from multi_agent_mcp.timeline.figures import AgentFigures, Statistics
    from multi_agent_mcp.wiring import Services

STDOUT = Path("-")
SHOWN = 100
"""How many rows of the timeline a terminal gets at most, unless `--all` is given."""
HEAD = ("after", "who", "what", "until_rung", "until_submitted", "until_read", "words")

Row = tuple[datetime, tuple[str, ...]]
Named = Callable[[str | None], str]


@click.command()
@click.option("--svg", metavar="FILE", type=Path, help="Draw it into this file; `-` is standard output.")
@click.option(
    "--from", "start", metavar="TIME", help="ISO 8601, UTC unless an offset is given (default: the first event)."
)
@click.option("--to", "end", metavar="TIME", help="As --from (default: now).")
@click.option("--width", default=1200, type=click.IntRange(480, 20_000), help="Of the picture, in pixels.")
@click.option("--all", "everything", is_flag=True, help=f"All rows; a terminal gets the newest {SHOWN} otherwise.")
@session_command()
def timeline(
    context: SessionContext, svg: Path | None, start: str | None, end: str | None, width: int, everything: bool
) -> None:
    """Show who sent what when, how tasks went and where interrupts came, or draw it as an SVG.

    Example: `multi-agent-mcp timeline --svg afternoon.svg`
    """
    found = context.services.timeline.of(asked_time("--from", start), asked_time("--to", end))
    if svg == STDOUT:
        sys.stdout.write(picture(found, context.services.texts, width))
        return
    lines: Iterator[str] = lines_of(found, context.texts, everything=everything)
    if svg is not None:
        write(svg, picture(found, context.services.texts, width))
        lines = iter([str(svg)])
    context.answer(found.as_answer(), lines)


def picture(found: Timeline, texts: Texts, width: int = 1200) -> str:
    """Returns the timeline as an SVG document, in this machine's time zone."""
    from multi_agent_mcp.timeline.drawing import draw

    return draw(found, texts=texts, width=width, zone=local_zone())


def write(path: Path, svg: str) -> None:
    """Writes an SVG file. Raises `StorageError`."""
    with storage_errors(path):
        path.write_text(svg, encoding="utf-8")


def lines_of(found: Timeline, texts: Texts, *, everything: bool = True) -> Iterator[str]:
    """Yields a table of all events in order: in a terminal with the time of each, and the newest alone unless
    `everything` is asked for, else with the time since the first one."""
    machines = {lane.agent_id: lane.machine for lane in found.lanes}

    def named(agent_id: str | None) -> str:
        return placed(agent_id or None, machines.get(agent_id or ""))

    events = [
        *(_message(arrow, named, texts) for arrow in found.arrows),
        *(_interrupt(mark, named, texts) for mark in found.marks),
        *(_answer(answer, named, texts) for answer in found.answers),
        *(step for bar in found.bars for step in _task(bar, named, texts)),
    ]
    events.sort(key=lambda event: event[0])
    if not is_terminal():
        rows = [
            (f"{(at - found.start).total_seconds():8.3f} s", *map(one_line, cells), excerpt(words))
            for at, (*cells, words) in events
        ]
        yield from titled_table(texts, HEAD, rows)
        return
    groups = folded(events, _same, most=1)
    left = 0 if everything else max(len(groups) - SHOWN, 0)
    yield from [texts("timeline.earlier", count=left)] if left else []
    shown = [_moment_row(group, found.end, texts) for group in groups[left:]]
    yield from titled_table(texts, ("at", *HEAD[1:]), shown)


def _same(event: Row) -> object:
    """Equal for events of one second that say the same to or of different agents, as the copies of a broadcast do."""
    at, (who, what, *_, words) = event
    sender, arrow, _ = who.partition(" → ")
    return at.replace(microsecond=0), sender if arrow else None, what, words


def _moment_row(events: Sequence[Row], now: datetime, texts: Texts) -> tuple[str, ...]:
    """Returns the row of events that say the same: when by the local clock, of whom, and how far the first one got."""
    at, (who, *cells, words) = events[0]
    sender, arrow, _ = who.partition(" → ")
    whom = subjects_words([cells[0].partition(" → ")[2] or cells[0] for _, cells in events], texts, named=1)
    there = in_zone(at, local_zone())
    clock = f"{there:%H:%M:%S}" if there.date() == in_zone(now, local_zone()).date() else local_words(at, now, texts)
    return (clock, f"{sender} → {whom}" if arrow else whom, *cells, words)


def _after(start: datetime, at: datetime | None, texts: Texts) -> str:
    """As `since`, in a terminal as people say it: with a decimal place only while it matters."""
    if at is None or not is_terminal():
        return since(start, at)
    return duration_words(at - start, texts, units=2 if at - start < timedelta(seconds=10) else 1)


def _message(arrow: Arrow, named: Named, texts: Texts) -> Row:
    steps = (_after(arrow.sent_at, at, texts) for at in (arrow.rung_at, arrow.submitted_at, arrow.read_at))
    return arrow.sent_at, (
        f"{named(arrow.sender_id)} → {named(arrow.receiver_id)}",
        words_of_code("type", arrow.message_type, texts),
        *steps,
        arrow.subject,
    )


def _interrupt(mark: Interruption, named: Named, texts: Texts) -> Row:
    who = f"{named(mark.by) if mark.by else '?'} → {named(mark.agent_id)}"
    steps = (_after(mark.at, at, texts) for at in (mark.rung_at, mark.submitted_at, mark.read_at))
    return mark.at, (
        who,
        texts("timeline.interrupt", action=words_of_code("action", mark.action, texts)),
        *steps,
        mark.words,
    )


def _answer(answer: PaneAnswer, named: Named, texts: Texts) -> Row:
    """Returns the row of a question in a pane that a person answered from elsewhere."""
    who = f"{named(answer.by)} → {named(answer.agent_id)}"
    return answer.at, (
        who,
        texts("timeline.answer", state=words_of_code("state", answer.state, texts)),
        "",
        "",
        "",
        answer.words,
    )


def _task(bar: Bar, named: Named, texts: Texts) -> Iterator[Row]:
    """Yields a row for each change of a task's status."""
    turns = [(span.start, span.status) for span in bar.spans]
    if bar.outcome is not None and bar.end is not None:
        turns.append((bar.end, bar.outcome))
    for at, status in turns:
        yield (
            at,
            (named(bar.agent_id), texts("timeline.task", status=status_words(status, texts)), "", "", "", bar.title),
        )


# `stats`: statistics of agents, tasks and days.

AGENTS = (
    "agent",
    "calls",
    "sent",
    "received",
    "done",
    "busy",
    "waiting",
    "blocked",
    "until_seen",
    "until_answer",
    "lead",
)
TASKS = ("task", "assignee", "status", "lead", "busy", "blocked", "review", "title")
DAYS = ("day", "done", "busy", "messages")
USED = ("agent", "tokens")
TASKS_SHOWN = 20


@click.command()
@click.option("--days", default=7, type=click.IntRange(1, 3_650), help="Number of days, including today.")
@session_command()
def stats(context: SessionContext, days: int) -> None:
    """Show per agent tool calls, busy and waiting time, tasks done, blocked time, the time until mail is read and
    until questions are answered; per task how long it took; and every day's sum.

    Example: `multi-agent-mcp stats --days 7`
    """
    services, zone = context.services, local_zone()
    found = services.statistics.last_days(days, zone)
    rows = services.contributions.ask("usage_rows", days, zone) or ()
    tokens = services.contributions.ask("tokens", days, zone) or {}
    answer = services.statistics.answer(found) | {"usage": [row.as_answer() for row in rows]}
    context.answer(answer, _table(found, tokens, services))


def _table(found: Statistics, tokens: Mapping[str, int], services: Services) -> Iterator[str]:
    texts, features = services.people, services.session.features
    yield texts("stats.period", start=f"{found.days[0].day}", end=f"{found.days[-1].day}")
    yield ""
    lacked = features.foreign("keys", "figures of an agent")
    yield from _titled(texts, AGENTS, _agents(found, texts), lacked)
    yield ""
    if tokens:
        yield from titled_table(texts, USED, [(agent_id, f"{used:,}") for agent_id, used in tokens.items()])
        yield ""
    lacked = features.foreign("keys", "figures of a task")
    yield from _titled(texts, TASKS, _tasks(found, texts), lacked)
    yield ""
    yield from titled_table(texts, DAYS, _days(found, texts))
    if found.left_out:
        yield texts("stats.left_out", count=found.left_out)


def _titled(
    texts: Texts, names: Sequence[str], rows: Iterable[Sequence[object]], lacked: Collection[str]
) -> Iterator[str]:
    """Yields the table without the columns that this session lacks."""
    kept = [place for place, name in enumerate(names) if name not in lacked]
    return titled_table(texts, [names[place] for place in kept], [[row[place] for place in kept] for row in rows])


def _agents(found: Statistics, texts: Texts) -> Iterator[tuple[object, ...]]:
    rows = [_agent(agent, texts) for agent in found.agents]
    for group in folded(rows, lambda row: row[1:]) if is_terminal() else [[row] for row in rows]:
        yield (subjects_words([str(row[0]) for row in group], texts), *group[0][1:])


def _agent(agent: AgentFigures, texts: Texts) -> tuple[object, ...]:
    counts = (agent.tool_calls, agent.sent, agent.received, agent.done)
    times = (agent.busy, agent.waiting, agent.blocked, agent.until_read, agent.until_answer, agent.lead)
    return (agent.agent_id, *counts, *(_duration(seconds, texts) for seconds in times))


def _tasks(found: Statistics, texts: Texts) -> Iterator[tuple[object, ...]]:
    """Yields rows for the tasks that took longest, longest first."""
    longest = sorted(found.tasks, key=lambda task: task.lead or task.working, reverse=True)
    for task in longest[:TASKS_SHOWN]:
        times = (_duration(seconds, texts) for seconds in (task.lead, task.working, task.blocked, task.review))
        yield (task.task_id, task.assignee_id or "-", status_words(task.status, texts), *times, excerpt(task.title))


def _days(found: Statistics, texts: Texts) -> Iterator[tuple[object, ...]]:
    for day in found.days:
        yield day.day, sum(day.done.values()), _duration(sum(day.busy.values()), texts), day.messages


def _duration(seconds: float | None, texts: Texts) -> str:
    if not seconds:
        return "-"
    return duration_words(timedelta(seconds=seconds), texts, units=1 if is_terminal() else 2)
