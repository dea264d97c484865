"""Files waiting to be sent to the hub: the earliest time for each, and when it was changed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Due(NamedTuple):
    """The earliest time to send a file (by `time.monotonic`), and when it was changed (seconds since the epoch)."""

    after: float
    changed_at: float


class DueFiles:
    """The files to send. A file is due, at work, or both: if it changes while it is being sent, it is due again."""

    def __init__(self) -> None:
        self._due: dict[Path, Due] = {}
        self._at_work: dict[Path, float] = {}

    def __len__(self) -> int:
        return len(self._due) + len(self._at_work)

    def __iter__(self) -> Iterator[Path]:
        return iter(self._due.keys() | self._at_work.keys())

    def add(self, path: Path, changed_at: float, wait: float = 0.0) -> None:
        """Makes a file due in `wait` seconds, unless it is due already."""
        self._due.setdefault(path, Due(time.monotonic() + wait, changed_at))

    def ready(self) -> list[Path]:
        """Returns the files that may be sent now, in the order in which they were added."""
        now = time.monotonic()
        return [path for path, due in self._due.items() if due.after <= now]

    def pause(self, longest: float) -> float:
        """Returns the seconds until the next file may be sent; `longest` if there is none."""
        return min((due.after for due in self._due.values()), default=time.monotonic() + longest) - time.monotonic()

    @contextmanager
    def at_work(self, path: Path) -> Iterator[float]:
        """Marks a file as being sent within the context; yields the time at which it was changed."""
        due = self._due.pop(path, None)
        changed_at = self._at_work[path] = time.time() if due is None else due.changed_at
        try:
            yield changed_at
        finally:
            self._at_work.pop(path, None)

    def changed_before(self, now: float) -> float:
        """Returns the time (seconds since the epoch) before which all changes have been sent, at most `now`."""
        return min([now, *(due.changed_at for due in self._due.values()), *self._at_work.values()])
