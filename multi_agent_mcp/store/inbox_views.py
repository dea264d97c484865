"""Views of a whole inbox, its directory with its archive: newest first, and the addresses of its files."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Generic, TypeVar

from multi_agent_mcp.domain.entity import Readable
from multi_agent_mcp.domain.times import stamp
from multi_agent_mcp.store.archive import DIGITS, OUR_NAME, STAMP_LENGTH, ArchivedNames, month_of
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.index import Index

R = TypeVar("R", bound=Readable)

Position = tuple[datetime, str, str]
"""The sort key of a file (descending): its time, its id, its path in the inbox."""


def position(base: Path, path: Path, entity: Readable) -> Position:
    return entity.created_at, entity.id, str(path.relative_to(base))


def newest_first(
    hot: Directory[R], months: Iterable[ArchivedNames[R]], before: Position | None = None
) -> Iterator[tuple[Path, R]]:
    """Yields paths and entities, newest first; with `before`, those after this position. A file that a crash has left
    in both places is yielded once."""
    base, index = hot.path, hot.entries()
    known = ((base / name, entry.entity or hot.load(name)) for name, entry in index.items())
    order = sorted((position(base, path, entity) for path, entity in known if entity), reverse=True)
    recent = (
        (base / name, entity)
        for at in order
        if (before is None or at < before) and (entity := hot.load(name := at[2])) is not None
    )
    seen = {entry.signature[2] for entry in index.values()}
    archived = (item for item in _archived(base, months, before) if _inode(item[0]) not in seen)
    return heapq.merge(recent, archived, key=lambda item: position(base, *item), reverse=True)


def _archived(base: Path, months: Iterable[ArchivedNames[R]], before: Position | None) -> Iterator[tuple[Path, R]]:
    last = None if before is None else stamp(before[0])
    for directory in months:
        if before is not None and directory.path.name > month_of(before[0]):
            continue
        for _, same_second in groupby(directory.newest_first(last), key=lambda name: name[:STAMP_LENGTH]):
            files = ((directory.path / name, name) for name in same_second)
            loaded = ((path, directory.load(name)) for path, name in files if _is_regular(path))
            found = [(path, entity) for path, entity in loaded if entity is not None]
            for item in sorted(found, key=lambda item: position(base, *item), reverse=True):
                if before is None or position(base, *item) < before:
                    yield item


def _inode(path: Path) -> int | None:
    """Returns a file's inode; None if it has been moved."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _is_regular(path: Path) -> bool:
    """Returns whether the path is a regular file and not a link to one."""
    return path.is_file() and not path.is_symlink()


# The addresses of an inbox's files: a file's id, or its path if the id finds another file.


class Addresses(Generic[R]):
    """The addresses at one moment. `index` is that of the hot directory `path`; `find` finds a file by its id, and
    `within` makes a path relative to the inbox."""

    def __init__(
        self,
        path: Path,
        index: Index[R],
        find: Callable[[str], tuple[Path, R] | None],
        within: Callable[[Path], str],
    ) -> None:
        self._path = path
        self._index = index
        self._find = find
        self._within = within

    def of(self, path: Path, entity: R) -> str:
        """Returns the address by which `Inbox.find` finds this file."""
        if path.parent == self._path and not entity.id.endswith(".md") and self._is_alone(path.name):
            return entity.id  # the usual case: an id given by us is not also in the archive
        found = self._find(entity.id)
        return entity.id if found is not None and found[0] == path else self._within(path)

    def _is_alone(self, name: str) -> bool:
        """Returns whether no other file in the hot directory has a name with the same digits or one that is not of our
        form and could have any id."""
        digits = _digits(name)
        return digits != "" and self._index.named(digits, _digits) == [name] and not self._index.named("", _digits)


def _digits(name: str) -> str:
    """Returns the digits of the id in a name of our form, else ""."""
    return name[DIGITS] if OUR_NAME.fullmatch(name) else ""
