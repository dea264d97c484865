"""`timeline`: the events of a session, as a table, a picture or data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from multi_agent_mcp.cli.context import SessionContext, session_command
from multi_agent_mcp.cli.output import excerpt, placed, titled_table
from multi_agent_mcp.domain.sanitize import one_line
from multi_agent_mcp.domain.timeline import Arrow, Bar, Mark, PaneAnswer, Timeline
from multi_agent_mcp.domain.times import asked_time, local_zone
from multi_agent_mcp.system.writing import storage_errors

if TYPE_CHECKING:
    from multi_agent_mcp.texts import Texts

STDOUT = Path("-")
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
@session_command()
def timeline(context: SessionContext, svg: Path | None, start: str | None, end: str | None, width: int) -> None:
    """Tell who sent what when, how tasks went and where interrupts came, or draw it as an SVG."""
    found = context.services.timeline.of(asked_time("--from", start), asked_time("--to", end))
    if svg == STDOUT:
        sys.stdout.write(picture(found, context.services.texts, width))
        return
    lines: Iterator[str] = lines_of(found, context.texts)
    if svg is not None:
        write(svg, picture(found, context.services.texts, width))
        lines = iter([str(svg)])
    context.answer(found.as_answer(), lines)


def picture(found: Timeline, texts: Texts, width: int = 1200) -> str:
    """Returns the timeline as an SVG document, in this machine's time zone."""
    from multi_agent_mcp.web.timeline import draw

    return draw(found, texts=texts, width=width, zone=local_zone())


def write(path: Path, svg: str) -> None:
    """Writes an SVG file. Raises `StorageError`."""
    with storage_errors(path):
        path.write_text(svg, encoding="utf-8")


def lines_of(found: Timeline, texts: Texts) -> Iterator[str]:
    """Yields a table of all events in order, with the time since the first one."""
    machines = {lane.agent_id: lane.machine for lane in found.lanes}

    def named(agent_id: str | None) -> str:
        return placed(agent_id or None, machines.get(agent_id or ""))

    events = [
        *(_message(arrow, named) for arrow in found.arrows),
        *(_interrupt(mark, named, texts) for mark in found.marks),
        *(_answer(answer, named, texts) for answer in found.answers),
        *(step for bar in found.bars for step in _task(bar, named, texts)),
    ]
    events.sort(key=lambda event: event[0])
    rows = [
        (f"{(at - found.start).total_seconds():8.3f} s", *map(one_line, cells), excerpt(words))
        for at, (*cells, words) in events
    ]
    return titled_table(texts, HEAD, rows)


def since(start: datetime, at: datetime | None) -> str:
    """Returns the time from `start` to `at`, in milliseconds; `-` for None."""
    return "-" if at is None else f"{(at - start).total_seconds() * 1000:.0f} ms"


def _message(arrow: Arrow, named: Named) -> Row:
    steps = (since(arrow.sent_at, at) for at in (arrow.rung_at, arrow.submitted_at, arrow.read_at))
    return arrow.sent_at, (
        f"{named(arrow.sender_id)} → {named(arrow.receiver_id)}",
        arrow.message_type,
        *steps,
        arrow.subject,
    )


def _interrupt(mark: Mark, named: Named, texts: Texts) -> Row:
    who = f"{named(mark.by) if mark.by else '?'} → {named(mark.agent_id)}"
    steps = (since(mark.at, at) for at in (mark.rung_at, mark.submitted_at, mark.read_at))
    return mark.at, (who, texts("timeline.interrupt", action=mark.action), *steps, mark.words)


def _answer(answer: PaneAnswer, named: Named, texts: Texts) -> Row:
    """Returns the row of a question in a pane that a person answered from elsewhere."""
    who = f"{named(answer.by)} → {named(answer.agent_id)}"
    return answer.at, (who, texts("timeline.answer", state=answer.state), "", "", "", answer.words)


def _task(bar: Bar, named: Named, texts: Texts) -> Iterator[Row]:
    """Yields a row for each change of a task's status."""
    turns = [(span.start, span.status) for span in bar.spans]
    if bar.outcome is not None and bar.end is not None:
        turns.append((bar.end, bar.outcome))
    for at, status in turns:
        yield at, (named(bar.agent_id), texts("timeline.task", status=status), "", "", "", bar.title)
