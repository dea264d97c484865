"""The `watch` command: prints a snapshot as tables or JSON, or shows it live."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from multi_agent_mcp.cli.context import SessionContext, excerpt, placed, session_command
from multi_agent_mcp.cli.rendering import (
    Styled,
    ago,
    alike,
    folded,
    is_terminal,
    local_words,
    short_id,
    status_words,
    subjects_words,
    titled_table,
    words_of_code,
)
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.dialog import Choice, Dialog
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.text import display_id, one_line
from multi_agent_mcp.domain.times import local_zone
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.features import load
from multi_agent_mcp.services.attention import Item
from multi_agent_mcp.services.overview.snapshot import AgentRow, MessageRow, Snapshot
from multi_agent_mcp.system.file_events import Changes, TreeWatch
from multi_agent_mcp.texts import Texts
from multi_agent_mcp.wiring import Services

# The rows of the tables as plain text, for both the live screen and `--once`.

ATTENTION = ("for", "agent", "what", "says")
AGENTS = ("agent", "state", "unread", "doing")
TASKS = ("task", "assignee", "progress", "for", "title")
MESSAGES = ("ago", "from_to", "type", "state", "words")
"""The columns of each table; their titles are `table.{name}` in the catalogue."""

Row = tuple[str, ...]


class Part(NamedTuple):
    """A table of a feature: its name, its columns and rows, and what it is in JSON; `ids` of what its rows are about,
    if something can be done about that."""

    name: str
    columns: Row
    rows: list[Row]
    answer: Any
    ids: Sequence[str] = ()


SINGLE = frozenset({"mail", "conversation", "request"})
"""The kinds of items whose words are somebody's: each is read by itself."""
DECIDED = frozenset({"dialog", "login", "question", "request", "review", "budget"})
"""The kinds of items with which somebody waits for a decision: each is shown on its own."""
METER, ROOMY = 6, 60


def likeness(item: Item) -> object:
    """Equal for items that say the same of different agents or tasks. A question has its own row, as has mail."""
    if item.dialog is not None or item.kind in SINGLE:
        return id(item)
    return item.kind, item.machine, alike(item.text, item.agent_id or "")


def kind_alone(item: Item) -> object:
    """In a terminal equal for items of one kind, as the console folds them, but for those that are to be decided."""
    return (item.kind, item.machine) if is_terminal() and item.kind not in DECIDED else likeness(item)


def kind_words(group: Sequence[Item], texts: Texts) -> str:
    """What waits, and how many of it."""
    kind = texts.word("attention.kind", group[0].kind)
    return f"{kind} ×{len(group)}" if len(group) > 1 else kind


def waiting(group: Sequence[Item], now: datetime, texts: Texts) -> Iterator[Row]:
    item = group[0]
    since = ago(item.since, now, texts) if item.since else "-"
    says, machine = said(item, texts), item.machine
    if machine is not None and not item.solved_in_pane:
        says, machine = texts("attention.there", machine=machine, command=says), None
    who = placed(item.agent_id, machine) if item.agent_id else "-"
    if len(group) > 1:
        who = one_line(subjects_words([each.agent_id or "-" for each in group], texts, named=1))
    yield since, who, kind_words(group, texts), says
    if item.dialog is not None:
        asked = (one_line(line) for line in item.dialog.text.split("\n") if line.strip())
        yield from (("", "", "", words) for words in (*asked, choices(item.dialog, texts)))
    if item.question is not None:
        offered = " · ".join(f"{number} {choice}" for number, choice in enumerate(item.question.choices, 1))
        command = short_id(item.command) if is_terminal() else item.command
        yield from (("", "", "", one_line(words)) for words in (offered, command) if words)


def said(item: Item, texts: Texts) -> str:
    """Returns what an item says, shortened; of a host's question only what it is about, because its words follow whole,
    and of an agent's only its words, as the kind says that it is one."""
    if item.question is not None:
        return excerpt(item.question.question)
    return texts.asks_about(item.dialog.topic) if item.dialog is not None else excerpt(item.text)


def choices(dialog: Dialog, texts: Texts) -> str:
    """Returns the choices of a dialog on one line."""
    return " · ".join(f"{choice.key} {choice_words(choice, texts)}" for choice in dialog.choices)


def choice_words(choice: Choice, texts: Texts) -> str:
    """Returns a choice's words, whether it lasts, and the keys that pick it unless its number does."""
    lasting = texts("answer.lasting") if choice.lasting else ""
    keys = texts("answer.keys", keys=" ".join(choice.keys)) if choice.moves else ""
    return " ".join(filter(None, (one_line(choice.label), lasting, keys)))


def waiting_for_owner(services: Services, look: Callable[[Agent], list[Item]]) -> list[Item]:
    """Returns the items that wait for the Owner; none in a team without one."""
    owner = owner_of(services)
    return [] if owner is None else look(owner)


def owner_of(services: Services) -> Agent | None:
    """The Owner, for whom the screen is; None in a team without one."""
    try:
        return services.agents.owner()
    except Refusal:
        return None


def parts_of(services: Services) -> list[Part]:
    """The tables of the features."""
    return [*services.contributions.each("watched", services.clock(), given=services)]


def agent(seen: AgentRow, now: datetime, texts: Texts) -> Row:
    indent = "  " * min(seen.depth, 4)
    waiting = texts("watch.waits_for", agent_id=seen.waiting_for) if seen.waiting_for else "-"
    doing = seen.task.title if seen.task else waiting
    return (
        indent + placed(seen.agent.id, seen.agent.machine),
        state(seen, now, texts),
        str(seen.unread or "-"),
        one_line(doing),
    )


def state(seen: AgentRow, now: datetime, texts: Texts) -> Styled:
    """Returns an agent's state: away with its machine, interrupted, paused, stuck (with the cause), limited (until
    when), waiting, alive (with the time since its last activity), or without a server."""
    name, more = _state(seen, now, texts)
    return Styled(texts(f"watch.{name}") + more, STATES.get(name, ""))


def _state(seen: AgentRow, now: datetime, texts: Texts) -> tuple[str, str]:
    """The name of an agent's state, and what is said with it."""
    if seen.away:
        return "away", ""
    if seen.interrupts:
        return "interrupted", ""
    if seen.pause:
        return "paused", ""
    if seen.stuck:
        return "stuck", f": {words_of_code('watch.stuck', seen.stuck.cause, texts)}"
    if seen.limit:
        until = local_words(seen.limit.until, now, texts) if seen.limit.until else seen.limit.until_said
        return "limited", f": {until}"
    if seen.alive:
        return "alive", f" {ago(seen.active_at, now, texts)}" if seen.active_at else ""
    return "waiting" if seen.waiting_for else "off", ""


def task(found: Task, now: datetime, texts: Texts) -> Row:
    reason = excerpt(found.blocked_reason or "")
    title = f"{found.title} ({reason})" if reason else found.title
    return (
        status_words(found.status, texts),
        one_line(found.assignee_id or "-"),
        meter(found.progress),
        ago(found.status_since, now, texts),
        one_line(title),
    )


def message(seen: MessageRow, now: datetime, texts: Texts) -> Row:
    who = f"{display_id(seen.sender_id)} → {display_id(seen.receiver_id)}"
    reached, words = status_words(seen.state, texts), seen.subject
    if seen.reason and is_terminal():
        words = f"{words} — {texts.words_of(seen.reason)}"
    elif seen.reason:
        reached = Styled(one_line(f"{reached}: {seen.reason}"), reached.style)
    sent = ago(seen.created_at, now, texts)
    return sent, who, words_of_code("type", seen.message_type, texts), reached, one_line(words)


def heading(seen: Snapshot, items: Collection[Item], texts: Texts) -> str:
    """Returns the session's name, the number of items that wait for the human, and that of tasks by status."""
    counted = " · ".join(f"{status_words(status, texts)} {number}" for status, number in seen.counts.items() if number)
    attention = texts("watch.waiting_count", count=len(items)) if items else texts("attention.nothing")
    return f"{seen.session} · {attention} · {counted or texts('watch.no_tasks')}"


def tables(
    seen: Snapshot, items: Collection[Item], parts: Sequence[Part], texts: Texts
) -> Iterator[tuple[str, Row, list[Row]]]:
    """Yields name, columns and rows of each table, from the top; the first is attention, if any item waits; `parts` are
    those of the features."""
    if items:
        yield (
            "attention",
            ATTENTION,
            [row for group in folded(items, kind_alone) for row in waiting(group, seen.at, texts)],
        )
    yield "agents", AGENTS, [agent(item, seen.at, texts) for item in seen.agents]
    yield "tasks", TASKS, [task(item, seen.at, texts) for item in seen.tasks]
    yield "messages", MESSAGES, [message(item, seen.at, texts) for item in seen.messages]
    yield from ((part.name, part.columns, part.rows) for part in parts if part.rows)


def meter(progress: int) -> str:
    """Returns a progress bar: `███░░░  50%`."""
    share = min(max(progress, 0), 100)
    filled = round(share * METER / 100)
    return f"{'█' * filled}{'░' * (METER - filled)} {share:3d}%"


def number_of(words: str) -> str:
    """Of a progress bar only the number, which has room everywhere."""
    return words.rpartition(" ")[2]


STATES = {
    "alive": "green",
    "off": "dim",
    "waiting": "yellow",
    "interrupted": "bold red",
    "paused": "yellow",
    "stuck": "bold red",
    "limited": "yellow",
}
"""The style of an agent's state, whose text is `watch.{name}` in the catalogue."""
MOST = 3  # times as many lines for what waits as for another table
FRAME = 2  # the first line and the last one
LARGEST = {"agent": 24, "assignee": 16, "from_to": 30, "type": 13, "state": 22}


def screen(
    seen: Snapshot,
    items: Collection[Item],
    texts: Texts,
    height: int,
    further: Sequence[Part] = (),
    width: int = ROOMY,
) -> RenderableType:
    """Returns the whole picture, at most `height` lines as wide as the terminal; `items` wait for the human. Of less
    than `ROOMY` columns, none is spent on bars."""
    everything = list(tables(seen, items, further, texts))[: max(height - FRAME, 0)]  # each has a line of head
    wanted = [len(rows) for *_, rows in everything]
    room = height - FRAME - len(everything)
    airy = sum(wanted) + len(everything) + 1 <= room
    parts: list[RenderableType] = [_line(heading(seen, items, texts), "bold")]
    weights = [MOST if name == "attention" else 1 for name, *_ in everything]
    for (title, head, rows), lines in zip(everything, shares(wanted, room, weights), strict=True):
        parts += [Text("")] * airy
        if width < ROOMY and "progress" in head:
            at = head.index("progress")
            rows = [(*row[:at], number_of(row[at]), *row[at + 1 :]) for row in rows]
        parts.append(_table(texts, title, head, rows, lines))
    parts += [Text("")] * airy
    parts.append(_line(texts("watch.quits", time=f"{seen.at.astimezone(local_zone()):%H:%M:%S}"), "dim"))
    return Group(*parts)


def shares(wanted: Sequence[int], room: int, weights: Sequence[int] = ()) -> list[int]:
    """Divides `room` lines: each table gets as many as it wants if they suffice, else a share by its weight (default:
    each the same)."""
    weigh = weights or [1] * len(wanted)
    given = [0] * len(wanted)
    for _ in range(max(room, 0)):
        unsatisfied = [index for index, count in enumerate(given) if count < wanted[index]]
        if not unsatisfied:
            break
        given[min(unsatisfied, key=lambda index: given[index] / weigh[index])] += 1
    return given


def _table(texts: Texts, title: str, head: Row, rows: list[Row], lines: int) -> Table:
    """Returns a table with one line of head and at most `lines` rows, the last with the number of omitted rows."""
    found = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="bold")
    for index, name in enumerate(head):
        last = index == len(head) - 1
        found.add_column(
            Text(texts(f"table.{name}"), style="dim")
            if index
            else Text(texts(f"watch.{title}"), style="bold underline"),
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if last else None,
            max_width=LARGEST.get(name),
            justify="right" if name in ("unread", "for") else "left",
        )
    fits = len(rows) <= lines
    shown = rows if fits else rows[: max(lines - 1, 0)]
    for row in shown:
        found.add_row(*map(styled_cell, row))
    if not fits and lines:
        more = texts("watch.more", count=len(rows) - len(shown))
        found.add_row(*(Text(more if index == 0 else "", style="dim") for index in range(len(head))))
    return found


def styled_cell(cell: str) -> Text:
    """Returns a cell as `Text`, not markup, so that `[red]` in an agent's text is shown literally."""
    return _line(cell, cell.style if isinstance(cell, Styled) else "")


def _line(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


# Reads single keys from the terminal, without Enter and echo.


class Keys:
    """A context that calls `pressed(key)` from a thread, and restores the terminal at its end."""

    def __init__(self, pressed: Callable[[str], None]) -> None:
        self._pressed = pressed
        self._terminal = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._before: list[Any] = []
        self._stop_reading, self._stop = -1, -1
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._terminal is not None:
            self._before = termios.tcgetattr(self._terminal)
            tty.setcbreak(self._terminal)
            self._stop_reading, self._stop = os.pipe()
            self._thread = threading.Thread(target=self._read, args=(self._terminal,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal is not None and self._thread is not None:
            os.close(self._stop)
            self._thread.join()
            os.close(self._stop_reading)
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)

    def _read(self, terminal: int) -> None:
        while True:
            ready, _, _ = select.select([terminal, self._stop_reading], [], [])
            if self._stop_reading in ready:
                return
            try:
                keys = os.read(terminal, 64)
            except OSError:
                return  # the terminal is gone
            if not keys:
                return
            for key in keys.decode(errors="replace"):
                self._pressed(key)


# The live screen, redrawn when files change, when the terminal is resized, and every `TICK_SECONDS`.

TICK_SECONDS = 5.0  # ages increase and processes die without an event
CALM_SECONDS = 0.1  # events within this time cause one update
QUITS = frozenset("qQ\x04")
SHOWN = frozenset(
    {"agents.json", "ipc", "tasks", "questions", "notifications", "sessions", "owner_wait", ".supervisor", ".edits"}
)
"""The files and directories in the session's directory from which the snapshot is made."""


def run(services: Services, messages: int) -> None:
    """Shows the session until q, Ctrl-C or the end of the terminal, and restores the terminal."""
    changes = Changes()

    def pressed(key: str) -> None:
        if key in QUITS:
            changes.close()

    def noticed(path: Path) -> None:
        if path.parts[0] in SHOWN:
            changes.notify()

    with (
        _signals(changes),
        Keys(pressed),
        TreeWatch(services.path, noticed),
        services.people_doorbells(),
        Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live,
    ):
        while not changes.closed:
            seen = changes.count
            items = waiting_for_owner(services, services.recent_attention.of)
            taken = services.snapshots.take(messages=messages)
            size = live.console.size
            picture = screen(taken, items, services.people, size.height, parts_of(services), size.width)
            live.update(picture, refresh=True)
            time.sleep(CALM_SECONDS)
            changes.wait(seen, TICK_SECONDS)


@contextmanager
def _signals(changes: Changes) -> Iterator[None]:
    """Handles signals within the context: those to terminate close `changes`, so that the terminal is restored; a
    resize is reported as a change."""
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: changes.close()) for number in ending}
    before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: changes.notify())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


APPLICATION = ".cli.screen.app:run"
"""What is shown in a terminal. It is made of what is here, so it is named by text; only it loads Textual."""


@click.command()
@click.option("--once", is_flag=True, help="Print it once, as plain tables, and end.")
@click.option("--plain", is_flag=True, help="Only show it, live, in a terminal too; q or Ctrl-C ends it.")
@click.option("--messages", default=20, type=click.IntRange(0, 1_000), help="How many of the last messages.")
@session_command()
def watch(context: SessionContext, once: bool, plain: bool, messages: int) -> None:
    """Show what waits for you, agents, open tasks and the last messages, live, and steer the team: the last line says
    which keys do what. Each runs a command, which is shown before it runs. q or Ctrl-C ends it.

    Example: `multi-agent-mcp watch --once`
    """
    if once or context.as_json or not sys.stdout.isatty():
        services = context.services
        seen, items = services.snapshots.take(messages=messages), waiting_for_owner(services, services.attention.of)
        parts = parts_of(services)
        waits = [item.as_answer() for item in items]
        answer = seen.as_answer() | {"attention": waits} | {part.name: part.answer for part in parts}
        line = services.glances.line(items)
        context.answer(answer, [*([line] if line else ()), *_plain(seen, items, parts, services.people)])
        return

    if plain or not sys.stdin.isatty():
        run(context.services, messages)
        return
    named = click.get_current_context().params
    given = [word for name in ("root", "session") if named[name] is not None for word in (f"--{name}", named[name])]
    load(APPLICATION)(context.services, messages, given)


def _plain(seen: Snapshot, items: Collection[Item], parts: Sequence[Part], texts: Texts) -> Iterator[str]:
    yield heading(seen, items, texts)
    for name, head, rows in tables(seen, items, parts, texts):
        yield ""
        if is_terminal():
            yield Styled(texts(f"watch.{name}"), "bold underline")
        yield from titled_table(texts, head, rows)
