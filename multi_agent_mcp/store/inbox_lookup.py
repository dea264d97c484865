"""Which file of an inbox is meant: by its path, or by an id, which two files may bear."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Generic, TypeVar

from multi_agent_mcp.domain.entity import Readable
from multi_agent_mcp.domain.ids import id8
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.system.disk import spelled, storage_errors

R = TypeVar("R", bound=Readable)

OUR_NAME = re.compile(r"\d{8}_\d{6}_[0-9a-f]{8}(\.\d+)?\.md")
STAMP_LENGTH = 15


class Addresses(Generic[R]):
    """The files of an inbox as they are at one moment: `directories` are the hot directory and its archive.

    An id stands for the oldest file that bears it, wherever that lies: archiving a file gives its id to no other.
    """

    def __init__(self, directories: Iterable[Directory[R]], *, fresh: bool) -> None:
        self._hot, *self._months = directories
        self._fresh = fresh
        self._names = cache(lambda directory: file_names(directory.path))

    def find(self, named: str) -> tuple[Path, R] | None:
        """The file with this path in the inbox (`note.md`, `archive/2026-11/….md`), else the oldest with this id."""
        if named.endswith(".md") and (found := self._at(named)) is not None:
            return found
        return min(self._bearers(named), key=_precedence, default=None)

    def of(self, path: Path, entity: R) -> str:
        """What `find` finds this very file by: its id, or its path if another file is found by that id."""
        entity_id = entity.id
        ours = path.parent == self._hot.path and OUR_NAME.fullmatch(path.name)
        if ours and not entity_id.endswith(".md") and self._is_alone(path.name, entity_id):
            return entity_id  # nearly always
        found = self.find(entity_id)
        return entity_id if found is not None and found[0] == path else self._within(path)

    def _is_alone(self, name: str, entity_id: str) -> bool:
        """Whether no other file of the hot directory may bear this id. Ids that we gave are not in the archive, too."""
        if fitting(self._names(self._hot), entity_id) != [name]:
            return False
        return self._all_ours or self._hot_ids.get(entity_id, [name]) == [name]

    def _at(self, named: str) -> tuple[Path, R] | None:
        last = named.rpartition("/")[2]
        for directory in (self._hot, *self._months):
            for name in self._names(directory):
                if spelled(name) != last or self._within(directory.path / name) != named:
                    continue
                if (entity := directory.load(name)) is not None:
                    return directory.path / name, entity
        return None

    def _within(self, path: Path) -> str:
        return spelled(str(path.relative_to(self._hot.path)))

    def _bearers(self, entity_id: str) -> Iterator[tuple[Path, R]]:
        """Where we named the files ourselves only those are looked at that may have this id."""
        for directory, name in self._likely(entity_id):
            entity = directory.load(name)
            if entity is not None and entity.id == entity_id:
                yield directory.path / name, entity

    def _likely(self, entity_id: str) -> Iterator[tuple[Directory[R], str]]:
        ours = sorted(fitting(self._names(self._hot), entity_id))
        yield from ((self._hot, name) for name in ours)
        if not (ours and self._all_ours):  # else no other name has anything to do with this id
            yield from ((self._hot, name) for name in self._hot_ids.get(entity_id, []) if name not in ours)
        for month in self._months:
            yield from ((month, name) for name in sorted(fitting(self._names(month), entity_id)))

    @cached_property
    def _all_ours(self) -> bool:
        return all(map(OUR_NAME.fullmatch, self._names(self._hot)))

    @cached_property
    def _hot_ids(self) -> dict[str, list[str]]:
        """The hot directory's files by their ids: there a message may have any name."""
        found: dict[str, list[str]] = {}
        for name, entity_id in sorted(self._hot.ids(fresh=self._fresh).items()):
            found.setdefault(entity_id, []).append(name)
        return found


def _precedence(item: tuple[Path, R]) -> tuple[datetime, str]:
    """Nothing that marking a file read or archiving it changes: of two of one time their contents decide."""
    _, entity = item
    return entity.created_at, repr(entity.mark_read(None))


def file_names(path: Path) -> list[str]:
    """The mail in a directory by name; a directory or a pipe called like mail is none."""
    try:
        with storage_errors(path, FileNotFoundError), os.scandir(path) as found:
            return [
                item.name
                for item in found
                if item.name.endswith(".md") and not item.name.startswith(".") and item.is_file(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []


def fitting(names: Iterable[str], entity_id: str) -> list[str]:
    """The names under which we would have put this id: `…_{id8}.md`, or `…_{id8}.1.md` beside a namesake."""
    digits = f"_{id8(entity_id)}."
    return [name for name in names if name.startswith(digits, STAMP_LENGTH)]
