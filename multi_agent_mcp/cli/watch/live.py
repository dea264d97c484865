"""The live screen: redrawn when files change, when the terminal is resized, and slowly by itself."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.cli.watch.keys import Keys
from multi_agent_mcp.cli.watch.screen import screen
from multi_agent_mcp.store.workspace import UNASSIGNED
from multi_agent_mcp.system.file_events import Changes, Watch

TICK_SECONDS = 5.0  # ages grow and processes die without an event
CALM_SECONDS = 0.1  # many events at once are one look
QUITS = frozenset("qQ\x04")


def run(services: Services, messages: int) -> None:
    """Shows the session until q, Ctrl-C or the end of the terminal; the terminal is given back as it was."""
    changes = Changes()

    def pressed(key: str) -> None:
        if key in QUITS:
            changes.close()

    with (
        _signals(changes),
        Keys(pressed),
        Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live,
    ):
        while not changes.closed:
            team = set(services.workspace.registry.active())
            with Watch(_directories(services, team), lambda _: changes.notify()):
                _redraw(services, live, changes, team, messages)


def _redraw(services: Services, live: Live, changes: Changes, team: set[str], messages: int) -> None:
    """Until it is over, or other directories are to be watched."""
    while not changes.closed and set(services.workspace.registry.active()) == team:
        seen = changes.count
        width, height = live.console.size
        live.update(screen(services.snapshots.look(messages=messages), width, height), refresh=True)
        time.sleep(CALM_SECONDS)
        changes.wait(seen, TICK_SECONDS)


def _directories(services: Services, team: Iterable[str]) -> list[Path]:
    """Where mail, tasks, interrupts, sessions and wait-locks lie."""
    base = services.path
    mine = [base / name / agent_id for agent_id in team for name in ("ipc", "tasks", "notifications", "sessions")]
    return [*mine, base / "tasks" / UNASSIGNED, base / "owner_wait"]


@contextmanager
def _signals(changes: Changes) -> Iterator[None]:
    """Whoever asks this process to end lets it put the terminal in order first; a resize is a change."""
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: changes.close()) for number in ending}
    before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: changes.notify())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
