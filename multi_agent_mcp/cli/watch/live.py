"""The live screen, redrawn when files change, when the terminal is resized, and every `TICK_SECONDS`."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.cli.watch.keys import Keys
from multi_agent_mcp.cli.watch.rows import waiting_for_owner
from multi_agent_mcp.cli.watch.screen import screen
from multi_agent_mcp.system.file_events import Changes, TreeWatch

TICK_SECONDS = 5.0  # ages increase and processes die without an event
CALM_SECONDS = 0.1  # events within this time cause one update
QUITS = frozenset("qQ\x04")
SHOWN = frozenset({"agents.json", "ipc", "tasks", "notifications", "sessions", "owner_wait", ".supervisor"})
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
            picture = screen(taken, items, services.people, live.console.height)
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
