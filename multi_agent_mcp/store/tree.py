"""The session's directory as it is, for `doctor` and `prune`: every file, whatever it holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.files.durable_files import Files


class Tree:
    """What lies below the session's directory. What goes meanwhile, because others are at work, is passed over."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def walk(self) -> Iterator[tuple[Path, os.stat_result]]:
        """The directory itself and all below it with their status, symbolic links not followed."""
        yield self.files.base, self.files.base.lstat()
        for directory, subdirectories, names in os.walk(self.files.base):
            yield from _with_status(Path(directory, name) for name in sorted((*subdirectories, *names)))

    def find(self, pattern: str) -> Iterator[tuple[Path, os.stat_result]]:
        """What matches a pattern of `Path.glob`, unless a symbolic link on the way leads out of the session."""
        for path, status in _with_status(self.files.base.glob(pattern)):
            try:
                self.files.containment.require(path.parent)
            except StorageError:
                continue
            yield path, status


def restrict(paths: Iterable[Path], mode: int) -> None:
    """chmod(2), never through a symbolic link that was put there meanwhile."""
    for path in paths:
        if not path.is_symlink():
            path.chmod(mode)


def _with_status(paths: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    for path in paths:
        try:
            yield path, path.lstat()
        except FileNotFoundError:
            continue
