"""Reads single keys from the terminal, without Enter and echo."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable
from typing import Any, Self


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
