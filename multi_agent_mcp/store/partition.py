"""One directory of a collection of entities, with the archive of what is over (docs/format.md, Where things are)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Identified, is_entity_id, is_name
from multi_agent_mcp.domain.times import from_timestamp
from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.store.directory import Directory, id_in
from multi_agent_mcp.system.file_status import signature_of

if TYPE_CHECKING:
    from multi_agent_mcp.store.archive import Archive, FinishedMonth

E = TypeVar("E", bound=Identified)
WHOLE = ""
"""The name of the only partition of a collection that is flat, or whose entities have directories of their own."""


@dataclass(frozen=True, kw_only=True)
class Layout(Generic[E]):
    """The layout of a collection. `partition` returns the sub-directory an entity belongs to; `missing` makes the error
    for an unknown id.

    With `file_name` every entity has its own directory, named by its id, and `file_name` is its file there. Then, and
    for a `flat` collection, there is one partition, the collection's directory. `partition_field` is the field whose
    value the partition's name decides. An entity's id is decided by the name of its file or directory, whatever the
    file says, as entities are found by name.

    `over` returns what an entity has ended as, "" while it is open: then its place is the archive, once `may_leave` is
    true. Without `over` the place alone decides (see `Collection.retire`). `group` returns what it belongs to, for
    counting. Open entities are sorted by the key `order`. With `by_id` the partition of each is noted, as it is looked
    up by its id alone. With a `prefix` only files count whose name is an id with it: no tool takes another one.
    """

    entity_type: type[E]
    partition: Callable[[E], str]
    missing: Callable[[str], Refusal]
    file_name: str | None = None
    flat: bool = False
    partition_field: str | None = None
    over: Callable[[E], str] | None = None
    may_leave: Callable[[E], bool] = lambda _: True
    group: Callable[[E], str] = lambda _: ""
    order: Callable[[E], Any] = lambda _: None
    by_id: bool = False
    prefix: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether there is one partition only, `WHOLE`."""
        return self.flat or self.file_name is not None

    def name(self, entity_id: str) -> str:
        """Returns the name of an entity's file in its partition."""
        return f"{entity_id}.md" if self.file_name is None else f"{entity_id}/{self.file_name}"

    def is_name(self, name: str) -> bool:
        """Returns whether a file of this name may be an entity's."""
        return self.is_id(id_in(name))

    def is_id(self, entity_id: str) -> bool:
        """Returns whether an entity may have this id: a hand-written file may name anything."""
        return is_entity_id(self.prefix, entity_id) if self.prefix else is_plain(entity_id)

    def label(self, entity: E) -> str:
        """Returns what an entity has ended as, "" while it is open."""
        return self.over(entity) if self.over is not None else ""


class FinishedFile(NamedTuple, Generic[E]):
    """The file of something that is over, and when it came there (seconds since the epoch)."""

    changed_at: float
    directory: Directory[E]
    name: str


class Prepared(NamedTuple, Generic[E]):
    """An entity that is over, to be put into the archive under this name: when it was changed, in nanoseconds since the
    epoch, and the scratch file with its content."""

    name: str
    entity: E
    modified: int
    scratch: Path


class Partition(Generic[E]):
    """One directory of a collection, `home`, with its archive."""

    def __init__(self, home: Directory[E], archive: Archive[FinishedMonth[E]], layout: Layout[E]) -> None:
        self.home = home
        self.archive = archive
        self.layout = layout
        self._parted: tuple[Any, list[E], list[tuple[str, E]]] = None, [], []

    def open(self) -> Sequence[E]:
        return self._open_and_over()[0]

    def left_over(self) -> Sequence[tuple[str, E]]:
        """Returns names and entities of what is over and still here: it may not leave yet, or whoever ended it was
        killed, or is a person."""
        return self._open_and_over()[1]

    def _open_and_over(self) -> tuple[list[E], list[tuple[str, E]]]:
        """Returns what is open here and what is over, parted once for each state of the directory."""
        entities = self.home.entities()
        known, still_open, over = self._parted
        if known is not entities:
            over = [item for item in entities if self.layout.label(item[1])]
            ended = {name for name, _ in over}
            still_open = [entity for name, entity in entities if name not in ended]
            self._parted = entities, still_open, over
        return still_open, over

    def newest_over(self, label: str | None, group: str | None) -> Iterator[FinishedFile[E]]:
        """Yields what is over (as this label, of this group), what came last first. The archive, which holds older
        things, is read only as far as requested."""
        entries = self.home.entries()
        here = [
            FinishedFile(entries[name].signature[0] / 1e9, self.home, name)
            for name, entity in self.left_over()
            if label in (None, self.layout.label(entity)) and group in (None, self.layout.group(entity))
        ]
        months = self.archive.months()
        rows = ((month, row) for month in months for row in month.newest_first(label, group))
        archived = (FinishedFile(row.at / 1e9, month, row.name) for month, row in rows)
        here.sort(key=attrgetter("changed_at"), reverse=True)
        return heapq.merge(here, archived, key=attrgetter("changed_at"), reverse=True)

    def counts(self) -> Counter[str]:
        """Returns how many are over, by what they ended as."""
        here = Counter(self.layout.label(entity) for _, entity in self.left_over())
        return sum((month.counts() for month in self.archive.months()), here)

    def group_counts(self) -> Counter[tuple[str, str]]:
        found = ((self.layout.group(entity), self.layout.label(entity)) for _, entity in self.left_over())
        here = Counter(item for item in found if item[0])
        return sum((month.group_counts() for month in self.archive.months()), here)

    def month_of(self, modified: int) -> FinishedMonth[E]:
        """Returns the month for what was last changed at this time, in nanoseconds since the epoch."""
        return self.archive.month(from_timestamp(modified / 1e9))

    def create_over(self, prepared: Sequence[Prepared[E]]) -> None:
        """Creates the files of entities that are over, in the archive, those of a month together. Raises
        `FileExistsError`. No scratch file is left afterwards, whatever happens."""
        by_month: dict[FinishedMonth[E], list[Prepared[E]]] = {}
        for item in prepared:
            by_month.setdefault(self.month_of(item.modified), []).append(item)
        files = self.home.files
        try:
            for month, items in by_month.items():
                with files.locks.held(self.archive.lock), month.noting([item[:3] for item in items]):
                    for item in items:
                        files.place(item.scratch, month.path / item.name)
        except BaseException:
            for item in prepared:
                item.scratch.unlink(missing_ok=True)
            raise

    def put_away(self, name: str, entity: E, move: Callable[[Path, Path], None] | None = None) -> None:
        """Moves a file from home to the archive, with `Files.move` or as given; the caller holds the entity's lock.
        Does nothing if another file has the name there, as nothing is overwritten."""
        source, files = self.home.path / name, self.home.files
        found = signature_of(source)
        if found is None:
            return
        month = self.month_of(found[0])
        item = name.partition("/")[0]  # the file, or the entity's directory
        with files.locks.held(self.archive.lock):
            if (month.path / item).exists():
                with suppress(StorageError):  # it is no file
                    if item == name and files.read(month.path / name) == files.read(source):
                        files.remove(source, sync=True)
                return
            with month.noting([(name, entity, found[0])]):
                (move or files.move)(self.home.path / item, month.path / item)


def is_plain(name: str) -> bool:
    """Returns whether the name can be a partition's: that of an agent or an entity, or `_unassigned`."""
    return is_name(name.removeprefix("_"))
