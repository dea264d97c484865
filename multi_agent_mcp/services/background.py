"""Work that takes longer than whoever asks for it wants to wait."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread


class PartsDone:
    """How many parts of some work are done, and of how many (0: unknown)."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.error: Exception | None = None
        """Why the work has ended before its end."""

    def told(self) -> None:
        self.count += 1

    def as_answer(self) -> dict[str, int]:
        return {"count": self.count, "total": self.total}


class Background:
    """Some work on a thread of its own, once at a time."""

    def __init__(self, name: str, work: Callable[[PartsDone], object]) -> None:
        self._name = name
        self._work = work
        self._beginning = Lock()
        self._progress = PartsDone()
        self._thread: Thread | None = None

    def begin(self) -> tuple[Thread, PartsDone]:
        """Begins the work, unless it is being done."""
        with self._beginning:
            if self._thread is None or not self._thread.is_alive():
                self._progress = PartsDone()
                self._thread = Thread(target=self._do, args=(self._progress,), name=self._name, daemon=True)
                self._thread.start()
            return self._thread, self._progress

    def done_within(self, seconds: float | None) -> PartsDone | None:
        """Does the work and waits for it so long (None: to its end): None if it has ended, else how far it is. Raises
        what it has raised."""
        thread, progress = self.begin()
        thread.join(seconds)
        if thread.is_alive():
            return progress
        if progress.error is not None:
            raise progress.error
        return None

    def _do(self, progress: PartsDone) -> None:
        try:
            self._work(progress)
        except Exception as error:  # noqa: BLE001 - raised where somebody waits for it
            progress.error = error
