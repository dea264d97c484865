"""Files waiting to be sent to the hub: the earliest time for each, and when it was changed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Due(NamedTuple):
    """`after` is by `time.monotonic`, `changed_at` in seconds since the epoch."""

    after: float
    changed_at: float


class DueFiles:
    """A file is due, at work, or both: what changes while it is brought there is due again."""

    def __init__(self) -> None:
        self._due: dict[Path, Due] = {}
        self._at_work: dict[Path, float] = {}

    def __len__(self) -> int:
        return len(self._due) + len(self._at_work)

    def __iter__(self) -> Iterator[Path]:
        return iter(self._due.keys() | self._at_work.keys())

    def add(self, path: Path, changed_at: float, wait: float = 0.0) -> None:
        """It is due, in `wait` seconds; one that is due already stays as it is."""
        self._due.setdefault(path, Due(time.monotonic() + wait, changed_at))

    def ready(self) -> list[Path]:
        """What may be brought there now, as it was added."""
        now = time.monotonic()
        return [path for path, due in self._due.items() if due.after <= now]

    def pause(self, longest: float) -> float:
        """How long it is until the next one may be, in seconds."""
        return min((due.after for due in self._due.values()), default=time.monotonic() + longest) - time.monotonic()

    @contextmanager
    def at_work(self, path: Path) -> Iterator[float]:
        """While it is brought there; gives since when it has changed."""
        due = self._due.pop(path, None)
        changed_at = self._at_work[path] = time.time() if due is None else due.changed_at
        try:
            yield changed_at
        finally:
            self._at_work.pop(path, None)

    def changed_before(self, now: float) -> float:
        """What had changed before then, in seconds since the epoch, is not among these any more."""
        return min([now, *(due.changed_at for due in self._due.values()), *self._at_work.values()])
