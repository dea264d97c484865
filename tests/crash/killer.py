"""Kills this process with SIGKILL at a chosen moment: before, during, or after one of the calls that change the disk.

The functions of `os` that change files are wrapped, as all writes of this project go through them
(`store/durable_files.py`; pathlib and filelock call them too). A call that only reads needs no kill point, as the
disk is in the same state as after the preceding change.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

CHANGES = (
    "chmod",
    "fchmod",
    "fsync",
    "fdatasync",
    "ftruncate",
    "link",
    "mkdir",
    "remove",
    "rename",
    "replace",
    "rmdir",
    "symlink",
    "truncate",
    "unlink",
    "utime",
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


AUDITED = frozenset(
    {"os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate", "os.utime"}
)


class Killer:
    """Counts moments. At number `at` the process dies; with `at` None it only remembers what the moments were.

    `unseen` are changes of the disk that went past it, as the interpreter's own audit events tell: there must be none.
    """

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.moments: list[str] = []
        self.unseen: list[str] = []
        self._inside = False

    def arm(self) -> None:
        """Makes every further change of the disk a moment to die at, for the rest of the process's life."""
        for name in CHANGES:
            setattr(os, name, self.around(name, getattr(os, name)))
        sys.addaudithook(self._audit)
        os.open = self._opening(os.open)
        os.write = self._writing(os.write)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        changes = event in AUDITED or (event == "open" and bool(arguments[2] & WRITING))
        if changes and not self._inside:
            self.unseen.append(f"{event} {arguments[0]!r}")

    def _moment(self, name: str) -> None:
        if len(self.moments) == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.moments.append(name)

    def around(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self._moment(f"before {name}")
            self._inside = True
            try:
                result = real(*args, **options)
            finally:
                self._inside = False
            self._moment(f"after {name}")
            return result

        return call

    def _opening(self, real: Callable[..., int]) -> Callable[..., int]:
        changing = self.around("open", real)

        def call(path: Any, flags: int, *args: Any, **options: Any) -> int:
            return (changing if flags & WRITING else real)(path, flags, *args, **options)

        return call

    def _writing(self, real: Callable[[int, Any], int]) -> Callable[[int, Any], int]:
        """A write may also be cut off in the middle."""

        def call(descriptor: int, data: Any) -> int:
            self._moment("before write")
            if len(self.moments) == self.at:
                real(descriptor, bytes(data)[: len(data) // 2])
            self._moment("amid write")
            written = real(descriptor, data)
            self._moment("after write")
            return written

        return call
