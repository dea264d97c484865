"""Commands that look at a session: `timeline`, `stats`, `search`, `web`, and no command at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from multi_agent_mcp.cli.context import (
    SessionContext,
    excerpt,
    indented,
    open_context,
    people_texts,
    placed,
    print_error,
    print_line,
    refuse,
    session_command,
    text_of,
)
from multi_agent_mcp.cli.rendering import (
    duration_words,
    folded,
    is_terminal,
    local_time,
    local_words,
    status_words,
    subjects_words,
    titled_table,
)
from multi_agent_mcp.config import find_root, read_environment, session_names
from multi_agent_mcp.domain.text import display_id, one_line
from multi_agent_mcp.domain.times import asked_time, format_time, local_zone
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.search.search import Found, Results, SearchQuery
from multi_agent_mcp.system.files import storage_errors
from multi_agent_mcp.system.ownership import require_own, require_root_entered
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.overview.statistics import AgentFigures, Statistics
    from multi_agent_mcp.domain.overview.timeline import Arrow, Bar, Mark, PaneAnswer, Timeline
    from multi_agent_mcp.services.overview.snapshot import AgentRow, Snapshot
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
    """Yields a table of all events in order: in a terminal with the time of each, else with the time since the first
    one."""
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
    if not is_terminal():
        rows = [
            (f"{(at - found.start).total_seconds():8.3f} s", *map(one_line, cells), excerpt(words))
            for at, (*cells, words) in events
        ]
        return titled_table(texts, HEAD, rows)
    shown = [_moment_row([*group], found.end, texts) for _, group in groupby(events, key=_same)]
    return titled_table(texts, ("at", *HEAD[1:]), shown)


def _same(event: Row) -> object:
    """Equal for events of one second that say the same to different agents, as the copies of a broadcast do."""
    at, (who, what, *_, words) = event
    return at.replace(microsecond=0), who.partition(" → ")[0], what, words


def _moment_row(events: Sequence[Row], now: datetime, texts: Texts) -> tuple[str, ...]:
    """Returns the row of events that say the same: when by the local clock, to whom, and how far the first one got."""
    at, (who, *cells, words) = events[0]
    sender, arrow, _ = who.partition(" → ")
    receivers = subjects_words([cells[0].partition(" → ")[2] for _, cells in events], texts, named=1)
    there = at.astimezone(local_zone())
    clock = f"{there:%H:%M:%S}" if there.date() == now.astimezone(local_zone()).date() else local_words(at, now, texts)
    return (clock, f"{sender} → {receivers}" if arrow else who, *cells, words)


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
        yield (
            at,
            (named(bar.agent_id), texts("timeline.task", status=status_words(status, texts)), "", "", "", bar.title),
        )


# `stats`: statistics of agents, tasks and days.

AGENTS = ("agent", "calls", "sent", "received", "done", "busy", "waiting", "blocked", "until_seen", "lead")
TASKS = ("task", "assignee", "status", "lead", "busy", "blocked", "review", "title")
DAYS = ("day", "done", "busy", "messages")
USED = ("agent", "tokens")
TASKS_SHOWN = 20


@click.command()
@click.option("--days", default=7, type=click.IntRange(1, 3_650), help="Number of days, including today.")
@session_command()
def stats(context: SessionContext, days: int) -> None:
    """Show per agent tool calls, busy and waiting time, tasks done, blocked time and the time until mail is read; per
    task how long it took; and every day's sum."""
    found, usage = context.services.statistics.last_days(days, local_zone()), context.services.usage
    rows = usage.rows(days, local_zone())
    tokens = usage.by_agent(usage.beginning(days, local_zone()))
    context.answer(
        found.as_answer() | {"usage": [row.as_answer() for row in rows]}, _table(found, tokens, context.texts)
    )


def _table(found: Statistics, tokens: Mapping[str, int], texts: Texts) -> Iterator[str]:
    yield texts("stats.period", start=f"{found.days[0].day}", end=f"{found.days[-1].day}")
    yield ""
    yield from titled_table(texts, AGENTS, _agents(found, texts))
    yield ""
    if tokens:
        yield from titled_table(texts, USED, [(agent_id, f"{used:,}") for agent_id, used in tokens.items()])
        yield ""
    yield from titled_table(texts, TASKS, _tasks(found, texts))
    yield ""
    yield from titled_table(texts, DAYS, _days(found, texts))
    if found.left_out:
        yield texts("stats.left_out", count=found.left_out)


def _agents(found: Statistics, texts: Texts) -> Iterator[tuple[object, ...]]:
    rows = [_agent(agent, texts) for agent in found.agents]
    for group in folded(rows, lambda row: row[1:]) if is_terminal() else [[row] for row in rows]:
        yield (subjects_words([str(row[0]) for row in group], texts), *group[0][1:])


def _agent(agent: AgentFigures, texts: Texts) -> tuple[object, ...]:
    counts = (agent.tool_calls, agent.sent, agent.received, agent.done)
    times = (agent.busy, agent.waiting, agent.blocked, agent.until_read, agent.lead)
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


# `search`: finds words in mail, tasks, conversations and execution logs, archived ones included.

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
    context.answer(answer, _hit_lines(results, texts))


def _hit_lines(results: Results, texts: Texts) -> Iterator[str]:
    if not results.found:
        yield texts("search.nothing")
    for found in results.found:
        at = local_time(format_time(found.at), texts)
        yield f"{at}  {texts(f'search.{found.kind}')}  {_between(found)}  {one_line(found.title)}"
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


# `multi-agent-mcp` without a command: the nearest session's state and the next command, or how to create a session.


def show() -> None:
    """Prints the state. Several sessions, none of them selected, are refused with their names."""
    root = find_root(read_environment().root, Path.cwd())
    try:
        require_root_entered(root)
        require_own(root)
    except Refusal as refusal:
        refuse(refusal)
    if not session_names(root):
        print_line(people_texts()("status.first_steps").rstrip("\n"))
        return
    with open_context(None, None) as context:
        for line in lines(context.services.snapshots.take(messages=0), context.texts):
            print_line(line)


def lines(seen: Snapshot, texts: Texts) -> Iterator[str]:
    """Yields a few lines: running agents, waiting items, and the next command."""
    running = [row.agent.id for row in seen.agents if row.alive]
    yield texts("status.agents", session=seen.session, count=len(seen.agents), running=_listed(running))
    yield texts("status.unread", agents=_listed(f"{row.agent.id} {row.unread}" for row in seen.agents if row.unread))
    yield texts("status.tasks", tasks=_listed(f"{status} {count}" for status, count in seen.counts.items() if count))
    for row in seen.agents:
        if row.waiting_for:
            yield texts("status.waits", agent_id=row.agent.id, admin_id=row.waiting_for)
    for task in seen.tasks:
        if task.status == "blocked":
            yield one_line(texts("status.blocked", title=task.title, reason=excerpt(task.blocked_reason or "-")))
    yield texts("status.next", command=_next_command(seen.agents))


def _next_command(agents: Iterable[AgentRow]) -> str:
    people = [row for row in agents if row.agent.type == "human"]
    helpers = [row for row in agents if row.agent.type == "ai"]
    if any(row.unread for row in people):
        return "multi-agent-mcp read"
    if not helpers:
        return "multi-agent-mcp agent add ID"
    if any(row.agent.command for row in helpers) and not any(row.alive for row in helpers):
        return "multi-agent-mcp up"
    return first_command(helpers[0].agent)


def first_command(agent: Agent) -> str:
    """Returns the command that gives an agent something to do. The scripted ones of `init --demo` answer tasks only."""
    is_scripted = "{examples}" in (agent.command or "")
    return f'multi-agent-mcp send-task {agent.id} "…" "…"' if is_scripted else f'multi-agent-mcp send {agent.id} "…"'


def _listed(items: Iterable[str]) -> str:
    return ", ".join(items) or "-"


# `web`: the Owner's console in a browser.


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="The port on 127.0.0.1; 0 is any free one (default: that of the last time, if it is free).",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the link in your browser.")
@session_command(acting=True)
def web(context: SessionContext, port: int | None, open_browser: bool) -> None:
    """Show the board, agents, messages and timeline of a session in a browser, live, until Ctrl-C.

    The link works once; the browser that opens it keeps a cookie. The server listens on this machine only.
    """
    from multi_agent_mcp.web.serving import (
        LinkPage,
        serve,  # starlette and uvicorn are for this command alone
    )

    page = LinkPage()

    def ready(link: str) -> None:
        context.answer({"url": link}, [link])
        sys.stdout.flush()  # a program that starts us waits for this line
        if open_browser:
            page.open(link, failed=lambda: print_error(context.texts("web.no_browser")))

    serve(context.services, port, context.acting, ready, spent=page.remove)
