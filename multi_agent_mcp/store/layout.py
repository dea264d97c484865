"""How the entities of a collection lie in files, and where each is found: `tasks/{assignee_id}/{task_id}.md`."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Identified
from multi_agent_mcp.domain.ids import is_name
from multi_agent_mcp.errors import InvalidId, Refusal
from multi_agent_mcp.store.archive import Archive, ArchivedFiles
from multi_agent_mcp.store.directory import Directory, Looks
from multi_agent_mcp.store.files.containment import is_own_directory
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.partition import Partition, Place
from multi_agent_mcp.system.writing import storage_errors

E = TypeVar("E", bound=Identified)

REMEMBERED = 10_000
"""Of so many entities a process remembers where it found them last."""


@dataclass(frozen=True, kw_only=True)
class Layout(Generic[E]):
    """`partition` names the sub-directory an entity belongs to; `missing` makes the error for an unknown id.

    With `file_name` every entity has a directory of its own, named by its id, and that is the name of its file there.
    `partition_field` is the field whose value the partition's name decides. An entity's id is decided by its file's
    name, whatever the file says: it is found by its name only.

    What is open is told in `order` (a sort key). `closed` tells in a directory what is done with (see `Directory`).
    With `archived`, which tells it in an archive, what is done with, or has `ended` otherwise, moves on to
    `{partition}/archive/{YYYY-MM}/` by the month of its last change, so that a directory stays small; it is found as
    before, and comes back when it has not `ended` any more.
    """

    entity_type: type[E]
    partition: Callable[[E], str]
    missing: Callable[[str], Refusal]
    file_name: str | None = None
    partition_field: str | None = None
    closed: re.Pattern[bytes] | None = None
    archived: re.Pattern[bytes] | None = None
    grouped: re.Pattern[bytes] | None = None
    ended: Callable[[E], bool] = lambda _: False
    order: Callable[[E], Any] = lambda _: None

    def name(self, entity_id: str) -> str:
        """The name of an entity's file."""
        return self.file_name or f"{entity_id}.md"


class Location(NamedTuple, Generic[E]):
    """Where an entity was found; `directory` is the partition's home or a month of its archive."""

    partition: Partition[E]
    directory: Directory[E]
    entity: E


class Partitions(Generic[E]):
    """The partitions at `base`. `adopt` makes what is read the entity of this id, `lock_of` says which lock it has."""

    def __init__(
        self,
        files: Files,
        base: Path,
        layout: Layout[E],
        *,
        adopt: Callable[[E, str], E],
        lock_of: Callable[[str], str],
    ) -> None:
        self.looks = Looks()
        self._files = files
        self._base = base
        self._layout = layout
        self._adopt = adopt
        self._lock_of = lock_of
        self._known: dict[str, Partition[E]] = {}
        self._last_seen: dict[str, tuple[Partition[E], Directory[E]]] = {}

    def names(self) -> list[str]:
        with storage_errors(self._base, FileNotFoundError), suppress(FileNotFoundError):
            return sorted(item.name for item in self._base.iterdir() if is_own_directory(item) and is_plain(item.name))
        return []

    def of(self, name: str) -> Partition[E]:
        """Raises `InvalidId` for what is no plain name: a hand-written file may name anything as its agent."""
        if name not in self._known:
            if not is_plain(name):
                raise InvalidId(value=repr(name)[:80])
            self._known[name] = self._made(name)
        return self._known[name]

    def belonging_to(self, entity: E) -> Partition[E] | None:
        """Where an entity belongs; None when what its file says is no plain name."""
        name = self._layout.partition(entity)
        return self.of(name) if is_plain(name) else None

    def chosen(self, name: str | None) -> list[Partition[E]]:
        """The partition of this name, or all."""
        return [self.of(each) for each in (self.names() if name is None else [name])]

    def directories(self, name: str | None) -> Iterator[Directory[E]]:
        """Those of one partition or of all, archives included."""
        return chain.from_iterable(partition.directories() for partition in self.chosen(name))

    def newest_closed(
        self, name: str | None = None, label: str | None = None, group: str | None = None
    ) -> Iterator[Place[E]]:
        """The closed files (of this label, this group), the most recently changed first."""
        found = (partition.newest_closed(label, group) for partition in self.chosen(name))
        return heapq.merge(*found, key=attrgetter("changed_at"), reverse=True)

    def locate(self, entity_id: str) -> Location[E] | None:
        if not is_plain(entity_id):
            return None  # a hand-written file may name anything as an id
        for partition, directory in self._places(entity_id):
            entity = directory.load(self._layout.name(entity_id))
            if entity is not None:
                if len(self._last_seen) > REMEMBERED:
                    self._last_seen.clear()
                self._last_seen[entity_id] = partition, directory
                return Location(partition, directory, entity)
        return None

    def drop_own_directory(self, directory: Directory[E]) -> None:
        """An entity that could not be made leaves no directory of its own, unless something else lies in it."""
        if self._layout.file_name is not None:
            with suppress(OSError):
                directory.path.rmdir()

    def _places(self, entity_id: str) -> Iterator[tuple[Partition[E], Directory[E]]]:
        """Where an entity may lie, the likeliest place first."""
        if entity_id in self._last_seen:
            yield self._last_seen[entity_id]
        partitions = self.chosen(None if self._layout.file_name is None else entity_id)
        yield from ((partition, partition.home) for partition in partitions)
        yield from ((partition, month) for partition in partitions for month in partition.months())

    def _made(self, name: str) -> Partition[E]:
        path, layout, settings = self._base / name, self._layout, self._settings(name)
        home = Directory(self._files, path, layout.entity_type, closed=layout.closed, **settings)
        archive: Archive[ArchivedFiles[E]] | None = None
        if layout.archived is not None:
            month = partial(
                ArchivedFiles, self._files, entity_type=layout.entity_type, closed=layout.archived, **settings
            )
            archive = Archive(path, month)
        return Partition(home, archive, layout.ended, self._lock_of)

    def _settings(self, name: str) -> Mapping[str, Any]:
        """What the directories of a partition have in common."""
        own_directories, field = self._layout.file_name is not None, self._layout.partition_field
        return {
            "grouped": self._layout.grouped,
            "order": self._layout.order,
            "looks": self.looks,
            "named": self._layout.name(name).__eq__ if own_directories else None,
            "place": {field: name} if field is not None else None,
            "adopt": lambda entity, stem: self._adopt(entity, name if own_directories else stem),
        }


def is_plain(name: str) -> bool:
    """Whether a partition can be called so: as an agent or an entity, or `_unassigned`."""
    return is_name(name.removeprefix("_"))
