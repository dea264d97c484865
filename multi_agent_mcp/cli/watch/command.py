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
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
from rich.console import Console
from rich.live import Live

from multi_agent_mcp.cli.context import SessionContext, session_command
from multi_agent_mcp.cli.rendering import titled_table
from multi_agent_mcp.cli.watch.screen import Edited, heading, last_edits, screen, tables, waiting_for_owner
from multi_agent_mcp.system.file_events import Changes, TreeWatch

if TYPE_CHECKING:
    from multi_agent_mcp.services.attention import Item
    from multi_agent_mcp.services.overview.snapshot import Snapshot
    from multi_agent_mcp.texts import Texts
    from multi_agent_mcp.wiring import Services


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
            picture = screen(taken, items, services.people, live.console.height, last_edits(services))
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


@click.command()
@click.option("--once", is_flag=True, help="Print it once, as plain tables, and end.")
@click.option("--messages", default=20, type=click.IntRange(0, 1_000), help="How many of the last messages.")
@session_command()
def watch(context: SessionContext, once: bool, messages: int) -> None:
    """Show agents, open tasks and the last messages, redrawn when something changes; q or Ctrl-C ends it."""
    from multi_agent_mcp.services.repository.reservations import edit_answer

    if once or context.as_json or not sys.stdout.isatty():
        services = context.services
        seen, items = services.snapshots.take(messages=messages), waiting_for_owner(services, services.attention.of)
        last = last_edits(services)
        waits, edits = [item.as_answer() for item in items], list(map(edit_answer, last.edits))
        answer = seen.as_answer() | {"attention": waits, "edits": edits}
        context.answer(answer, _plain(seen, items, last, services.people))
        return

    run(context.services, messages)


def _plain(seen: Snapshot, items: Collection[Item], last: Edited, texts: Texts) -> Iterator[str]:
    yield heading(seen, items, texts)
    for _, head, rows in tables(seen, items, last, texts):
        yield ""
        yield from titled_table(texts, head, rows)
