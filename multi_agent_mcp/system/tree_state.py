"""Whether anything has changed in a tree of directories, for the price of one stat(2) for each of them.

Every atomic change in a directory sets its modification time (`file_status.modified_at`). What is edited in place or
appended to does not; directories whose files grow are therefore looked at file by file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from stat import S_ISDIR

from multi_agent_mcp.system.file_status import is_settled


class TreeState:
    """The state of a directory and of those in it, down to `DEPTH` levels below it, which archives lie beneath.
    `left_out` and `growing` are names in the directory itself: what nobody asks for, and what is appended to."""

    DEPTH = 2

    def __init__(self, base: str | os.PathLike[str], *, left_out: Collection[str], growing: Collection[str]) -> None:
        self._base = os.fspath(base)
        self._left_out = left_out
        self._growing = growing
        self._known: dict[str, tuple[int, list[str]]] = {}

    def now(self) -> int | None:
        """A number that differs once anything has changed; None while the last change is so recent that another one
        might not be seen (`file_status.is_settled`)."""
        looked_at = time.time_ns()
        times = tuple(self._times(self._base, self.DEPTH))
        return hash(times) if is_settled(max(times), looked_at) else None

    def _times(self, directory: str, depth: int) -> Iterator[int]:
        try:
            modified = os.stat(directory).st_mtime_ns  # noqa: PTH116 - a `Path` takes ten times as long
        except OSError:
            yield 0
            return
        yield modified
        for below in self._below(directory, modified) if depth else ():
            yield from self._times(below, depth - 1)

    def _below(self, directory: str, modified: int) -> list[str]:
        """What has to be looked at in a directory, listed again only when it has changed."""
        known = self._known.get(directory)
        if known is None or known[0] != modified:
            known = self._known[directory] = modified, sorted(self._listed(directory))
        return known[1]

    def _listed(self, directory: str) -> Iterator[str]:
        grows = directory != self._base and directory[len(self._base) + 1 :] in self._growing
        try:
            with os.scandir(directory) as found:
                for item in found:
                    is_asked_for = directory != self._base or item.name not in self._left_out
                    if is_asked_for and (grows or S_ISDIR(item.stat(follow_symlinks=False).st_mode)):
                        yield item.path
        except OSError:  # gone, or going
            return
