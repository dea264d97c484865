"""A collection of entities, one file each: `tasks/{assignee_id}/{task_id}.md`. What is over is in the archive beside
what is open (docs/format.md, Where things are).

Concurrency rests on one method: `update(id, change)` runs a pure function under the entity's lock, between read and
atomic replace. If two agents finish the same task at once, one wins and the other's change raises.
"""

from __future__ import annotations

import heapq
import logging
import os
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import dropwhile, islice, takewhile
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Identified
from multi_agent_mcp.errors import InvalidId, Reason, StorageError, UntrustedSession
from multi_agent_mcp.store.archive import Archive, FinishedMonth
from multi_agent_mcp.store.codec import Unreadable, codec
from multi_agent_mcp.store.directory import Directory, Quarantine, id_in
from multi_agent_mcp.store.durable_files import INDEXES, Files
from multi_agent_mcp.store.partition import WHOLE, FinishedFile, Layout, Partition, Prepared, is_plain
from multi_agent_mcp.system.file_status import (
    Memory,
    Signature,
    is_own_directory,
    is_settled,
    settled_times,
    signature_of,
)
from multi_agent_mcp.system.files import storage_errors, sync_directory

E = TypeVar("E", bound=Identified)

LOCK_STRIPES = 256
SAME_ID = Reason("same_id")
REMEMBERED = 10_000
"""The number of entities whose last location a process remembers, and of those that are over and were parsed."""

Chosen = str | Sequence[str] | None
"""Which partitions: the one of this name, those of these names, or (None) all."""

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Together(Generic[E]):
    """What a thread accepts together: the ids of what is here, what waits for its place in the archive, and what is to
    be noted of where it is; see `Collection.accepting_together`."""

    here: set[str]
    waiting: dict[Partition[E], list[Prepared[E]]] = field(default_factory=dict)
    notes: dict[Path, list[str]] = field(default_factory=dict)


class Location(NamedTuple, Generic[E]):
    """The place where an entity was found; `directory` is the partition's home or a month of its archive, `signature`
    that of the file just before it was read."""

    partition: Partition[E]
    directory: Directory[E]
    entity: E
    signature: Signature | None = None


class Collection(Generic[E]):
    """The entities below `base`, written by this machine alone; see `SharedCollection` for several machines."""

    def __init__(self, files: Files, base: Path, layout: Layout[E]) -> None:
        self.files = files
        self.base = base
        self.layout = layout
        self._partitions: dict[str, Partition[E]] = {}
        self._names = Memory()
        self._last_seen: dict[str, tuple[Partition[E], Directory[E]]] = {}
        self._parsed = Memory(REMEMBERED)
        self._this_thread = threading.local()

    # Reading

    def find(self, entity_id: str) -> E | None:
        """Returns the entity, open or over, from any partition; None if there is none."""
        # Twice: it may have moved from a place not yet searched to one already searched.
        located = self.locate(entity_id, known=True) or self.locate(entity_id, known=True)
        return located.entity if located else None

    def get(self, entity_id: str) -> E:
        """As `find`; raises the collection's own error for an unknown id."""
        entity = self.find(entity_id)
        if entity is None:
            raise self.layout.missing(entity_id)
        return entity

    def indexed(self, entity_id: str, partition: str) -> E | None:
        """Returns the open entity from this partition's index, without reading files while the directory is unchanged;
        None if it is over or not there."""
        is_there = is_plain(partition) or (partition == WHOLE and self.layout.is_whole)
        entries = self.directory(partition).entries() if is_there else {}
        entry = entries.get(self.layout.name(entity_id))
        return None if entry is None or entry.entity is None or self.layout.label(entry.entity) else entry.entity

    def all(self, partition: str | None = None, *, limit: int | None = None, since: datetime | None = None) -> list[E]:
        """Returns every readable entity, of one partition or of all; a corrupt file is left out. `limit` and `since`
        are about what is over, as for `closed`."""
        return [*self.open(partition), *self.closed(partition, limit=limit, since=since)]

    def open(self, partition: str | None = None) -> list[E]:
        """Returns the open entities, of one partition or of all. What is over costs nothing."""
        found: list[E] = []
        for chosen in self._chosen(partition):
            found += chosen.open()
        return found

    def open_in_order(self, partition: Chosen = None) -> Iterator[E]:
        """Yields the open entities, of the chosen partitions or of all, in the order of the layout."""
        return heapq.merge(*(chosen.open() for chosen in self._chosen(partition)), key=self.layout.order)

    def closed(
        self,
        partition: Chosen = None,
        *,
        label: str | None = None,
        group: str | None = None,
        offset: int = 0,
        limit: int | None = None,
        since: datetime | None = None,
        before: str | None = None,
    ) -> list[E]:
        """Returns `limit` entities that are over after the first `offset`, those that ended last first; each is parsed.
        With `since`, only those that ended since then, the first first; with `label` or `group`, only those that ended
        as this or belong to it; with `before`, only those behind the one with this id."""
        found: Iterable[FinishedFile[E]] = self._newest_over(partition, label, group)
        if before is not None:
            name = self.layout.name(before)
            found = islice(dropwhile(lambda place: place.name != name, found), 1, None)
        if since is not None:
            found = reversed(list(takewhile(lambda place: place.changed_at >= since.timestamp(), found)))
        loaded = (self._loaded(place) for place in islice(found, offset, None))
        return list(islice((entity for entity in loaded if entity is not None), limit))

    def _loaded(self, place: FinishedFile[E]) -> E | None:
        looked_at = time.time_ns()
        found = signature_of(f"{place.directory.path}/{place.name}")
        return self._read(place.directory, place.name, found, looked_at)

    def _read(self, directory: Directory[E], name: str, found: Signature | None, looked_at: int) -> E | None:
        """Returns the entity in a file that was found with this signature, parsed once while it stays as it is."""
        state = found if found is not None and is_settled(found[0], looked_at) else None
        entry = directory.last_seen().get(name)
        if entry is not None and entry.signature == state and entry.entity is not None:
            return entry.entity
        return self._parsed.get(state, lambda: directory.load(name), key=f"{directory.path}/{name}")

    def ids_beginning_with(self, start: str) -> list[str]:
        """Returns the ids, of what is open and of what is over, that begin so; no file is read."""
        names = (name for directory in self.directories() for name in directory.names())
        return sorted({id_in(name) for name in names if name.startswith(start)})

    def count_closed(self, since: datetime, until: datetime) -> int:
        """Returns the number of entities that ended in this period."""
        recent = takewhile(lambda place: place.changed_at >= since.timestamp(), self._newest_over())
        return sum(place.changed_at <= until.timestamp() for place in recent)

    def closed_counts(self, partition: Chosen = None) -> Counter[str]:
        """Returns how many entities are over, by what they ended as."""
        return sum((chosen.counts() for chosen in self._chosen(partition)), Counter[str]())

    def count(self, partition: str, *, label: str | None = None, group: str | None = None) -> int:
        """Returns the number of entities of a partition that `closed` would find."""
        if group is not None:
            return sum(1 for _ in self._newest_over(partition, label, group))
        counts = self.closed_counts(partition)
        return counts.total() if label is None else counts[label]

    def group_counts(self) -> Counter[tuple[str, str]]:
        """Returns how many entities are over, by group and what they ended as."""
        return sum((chosen.group_counts() for chosen in self._chosen(None)), Counter[tuple[str, str]]())

    def read_once(self) -> AbstractContextManager[None]:
        """See `Looks.once`."""
        return self.files.looks.once()

    def partitions(self) -> list[str]:
        """Returns the names of the partitions, sorted."""
        if self.layout.is_whole:
            return [WHOLE]
        return self._names.get(settled_times(self.base), self._listed)

    def _listed(self) -> list[str]:
        with storage_errors(self.base, FileNotFoundError), suppress(FileNotFoundError):
            return sorted(item.name for item in self.base.iterdir() if is_own_directory(item) and is_plain(item.name))
        return []

    def directory(self, partition: str) -> Directory[E]:
        """Returns a partition's directory, without its archive. Raises `InvalidId` for a name that is not plain."""
        return self.partition(partition).home

    @property
    def whole(self) -> Partition[E]:
        """The only partition of a collection that is whole (see `Layout.is_whole`)."""
        return self.partition(WHOLE)

    def directories(self, partition: str | None = None) -> Iterator[Directory[E]]:
        """Yields the directories of one partition or of all, each followed by the months of its archive."""
        for chosen in self._chosen(partition):
            yield chosen.home
            yield from chosen.archive.months()

    def partition(self, name: str) -> Partition[E]:
        """Returns a partition. Raises `InvalidId` for a name that is not plain, as in a hand-written file."""
        if name not in self._partitions:
            if not is_plain(name) and (name != WHOLE or not self.layout.is_whole):
                raise InvalidId(value=repr(name)[:80])
            self._partitions[name] = self._made(name)
        return self._partitions[name]

    # Writing

    def add(self, entity: E) -> E:
        """Creates the entity's file, exclusively and durably; raises `FileExistsError`."""
        return self._create(entity)

    def update(self, entity_id: str, change: Callable[[E], E]) -> E:
        """Applies a pure change under the entity's lock and returns the new value. If `change` raises, nothing is
        written.

        An entity whose partition changes, or that is over, is rewritten in place and then moved: its content decides
        where it belongs.
        """
        with self.files.locks.held(self._lock(entity_id)):
            return self._change(entity_id, change)

    def replace(self, entity: E, *, sync: bool = True) -> None:
        """Writes an entity that only the caller changes, without locking or reading it; it moves to the archive if it
        is over. `sync` as in `Files.replace`."""
        partition, name = self.partition(self.layout.partition(entity)), self.layout.name(entity.id)
        partition.home.replace(name, entity, sync=sync)
        self._put_away(partition, name, entity)

    def retire(self, entity_id: str) -> None:
        """Moves an entity to the archive whose file does not say that it is over. Does nothing if it is there."""
        with self.files.locks.held(self._lock(entity_id)):
            located = self.locate(entity_id)
            if located is not None and located.directory is located.partition.home:
                located.partition.put_away(self.layout.name(entity_id), located.entity)

    def put_away(self, entity_id: str) -> None:
        """Moves an entity to the archive if it is over, and what it waited for there is done since."""
        with self.files.locks.held(self._lock(entity_id)):
            located = self.locate(entity_id)
            if located is not None and located.directory is located.partition.home:
                self._put_away(located.partition, self.layout.name(entity_id), located.entity)

    def archive_over(self, partition: str) -> None:
        """Moves to the archive what is over and was left where it is by a process that was killed, or ended by a
        person. Never raises: the next call tries again."""
        try:
            chosen, places = self.partition(partition), set[Path]()

            def moved(source: Path, target: Path) -> None:
                self.files.move(source, target, sync=False)
                places.update((target.parent, source.parent))

            for name, entity in chosen.left_over():
                with self.files.locks.held(self._lock(entity.id)):
                    current = chosen.home.load(name)
                    if current is not None and self._is_over(current):
                        chosen.put_away(name, current, moved)
            for place in sorted(places, reverse=True):
                sync_directory(place)
        except StorageError as refusal:
            logger.warning("what is over in %s is not archived yet: %s", self.base / partition, refusal)

    def accept_copy(self, entity_id: str, data: bytes, partition: str, modified: int | None = None) -> None:
        """Writes the state of an entity that only another machine, that of `partition`, changes, to the byte. Raises
        `Unreadable` if the entity belongs to another partition, or one that is here does."""
        with self.files.locks.held(self._lock(entity_id)):
            entity = self._adopted(codec(self.layout.entity_type).decode(data, id=entity_id), entity_id)
            located = self.locate(entity_id)
            for known in (entity, *([located.entity] if located is not None else ())):
                if self.layout.partition(known) != partition:
                    raise Unreadable("misplaced", name="id", value=entity_id, owner=partition)
            self._put(located, entity, modified, data)

    @contextmanager
    def accepting_together(self) -> Iterator[None]:
        """For many entities of another machine, most of which are new here: within the context this thread looks into
        each directory once for all of them, and puts what is over into the archive at the end, so the archive's lock
        is taken once for all of a month. Raises `StorageError`, also if somebody else has made the file of one
        meanwhile: the next attempt finds it."""
        together: Together[E] = Together(set())
        for directory in self.directories():
            with suppress(StorageError):  # what cannot be listed counts as empty, as for `locate`
                together.here.update(map(id_in, directory.names()))
        self._this_thread.together = together
        try:
            yield
        finally:
            del self._this_thread.together
            self._put_together(together)

    @property
    def _together(self) -> Together[E] | None:
        return getattr(self._this_thread, "together", None)

    def _put_together(self, together: Together[E]) -> None:
        """Puts what waits into the archive, and notes where it is. Raises `StorageError` once all have been tried."""
        waiting, together.waiting = together.waiting, {}
        notes, together.notes = together.notes, {}
        refused: StorageError | None = None
        for partition, prepared in waiting.items():
            try:
                with storage_errors(partition.home.path):
                    partition.create_over(prepared)
            except FileExistsError as error:
                refused = StorageError(path=partition.home.path, reason=error)
            except StorageError as error:
                refused = error
        for path, lines in notes.items():
            with suppress(StorageError, UnicodeEncodeError):
                self.files.append(path, "\n".join(lines))
        if refused is not None:
            raise refused

    def remove(self, entity: E) -> None:
        """Removes an entity that was just added and not acknowledged to any caller."""
        directory, name = self.directory(self.layout.partition(entity)), self.layout.name(entity.id)
        directory.remove(name)
        self._drop_own_directory(directory, name)

    # Finding places

    def locate(self, entity_id: str, *, known: bool = False) -> Location[E] | None:
        """Returns where an entity is, with its value; None if there is none, or the id is no name. The file is read,
        as whoever changes it must do; unless it may be `known`, and is as it was when it was last read."""
        if not self.layout.is_id(entity_id):
            return None
        if (together := self._together) is not None:
            if entity_id not in together.here:
                return None
            self._put_together(together)  # it may be one of those that wait
        if (found := self._looked_for(entity_id, self._seen_at(entity_id), known)) is not None:
            return found
        noted = self._noted(entity_id)
        found = self._looked_for(entity_id, self._places([noted]), known) if noted is not None else None
        if found is not None and self._belonging_to(found.entity) is noted:
            return found
        found = self._looked_for(entity_id, self._places(self._chosen(None)), known)
        if found is not None and found.partition is not noted:
            self._note(entity_id, found.partition)
        return found

    def _seen_at(self, entity_id: str) -> Iterable[tuple[Partition[E], Directory[E]]]:
        """Returns where an entity was seen last. If that is the archive, a person may have put an open one beside it,
        which counts."""
        if (seen := self._last_seen.get(entity_id)) is not None:
            partition, directory = seen
            return dict.fromkeys([(partition, partition.home), (partition, directory)])
        name, partitions = self.layout.name(entity_id), [*self._partitions.values()]
        return [(partition, partition.home) for partition in partitions if name in partition.home.last_seen()]

    def _looked_for(
        self,
        entity_id: str,
        places: Iterable[tuple[Partition[E], Directory[E]]],
        known: bool,
    ) -> Location[E] | None:
        name, looked_at = self.layout.name(entity_id), time.time_ns()
        for partition, directory in places:
            path = f"{directory.path}/{name}"
            if (signature := signature_of(path)) is None or os.path.islink(path):  # noqa: PTH114 - as in `signature_of`
                continue
            entity = self._read(directory, name, signature, looked_at) if known else directory.load(name)
            if entity is not None:
                self._remember(entity_id, partition, directory)
                return Location(partition, directory, entity, signature)
        return None

    def _remember(self, entity_id: str, partition: Partition[E], directory: Directory[E]) -> None:
        if len(self._last_seen) > REMEMBERED:
            self._last_seen.clear()
        self._last_seen[entity_id] = partition, directory

    def _places(self, partitions: list[Partition[E]]) -> Iterator[tuple[Partition[E], Directory[E]]]:
        """Yields the directories of partitions, the likeliest first."""
        yield from ((partition, partition.home) for partition in partitions)
        yield from ((partition, month) for partition in partitions for month in partition.archive.months())

    # The place of an entity is noted in a line `{id} {partition}`, in as many files as entities have locks. It is a
    # hint, which spares a process that has not seen an id a look into every agent's directory. What a person has put
    # elsewhere, or what is older than the notes, is looked for everywhere once.
    def _noted(self, entity_id: str) -> Partition[E] | None:
        if not self.layout.by_id:
            return None
        with suppress(StorageError, UntrustedSession):
            lines = b"\n" + (self.files.read(self._notes(entity_id)) or b"")
            _, known, rest = lines.rpartition(f"\n{entity_id} ".encode(errors="surrogateescape"))
            name = rest.partition(b"\n")[0].decode(errors="replace") if known else ""
            return self.partition(name) if is_plain(name) else None
        return None

    def _note(self, entity_id: str, partition: Partition[E]) -> None:
        if self.layout.by_id:
            path, line = self._notes(entity_id), f"{entity_id} {partition.home.path.name}"
            if (together := self._together) is not None:
                together.notes.setdefault(path, []).append(line)
                return
            with suppress(StorageError, UnicodeEncodeError):
                self.files.append(path, line)

    def _notes(self, entity_id: str) -> Path:
        return self.files.base / INDEXES / f"{self._lock(entity_id)}.places"

    def _chosen(self, names: Chosen) -> list[Partition[E]]:
        """Returns the partitions of these names, or all for None."""
        chosen = self.partitions() if names is None else [names] if isinstance(names, str) else names
        return [self.partition(each) for each in chosen]

    def _belonging_to(self, entity: E) -> Partition[E] | None:
        """Returns the partition an entity belongs to; None if the name in its file is not plain."""
        with suppress(InvalidId):
            return self.partition(self.layout.partition(entity))
        return None

    def _newest_over(
        self, partition: Chosen = None, label: str | None = None, group: str | None = None
    ) -> Iterator[FinishedFile[E]]:
        found = (chosen.newest_over(label, group) for chosen in self._chosen(partition))
        return heapq.merge(*found, key=attrgetter("changed_at"), reverse=True)

    def _made(self, name: str) -> Partition[E]:
        layout, path, lock = self.layout, self.base / name, f"archive-{self.base.name}-{name or 'all'}"
        settings: dict[str, Any] = {
            "order": layout.order,
            "named": layout.is_name if layout.prefix else None,
            "nested": layout.file_name,
            "place": {layout.partition_field: name} if layout.partition_field is not None else None,
            "adopt": self._adopted,
        }

        def month(at: Path) -> FinishedMonth[E]:
            rated = lambda entity: (layout.label(entity) or "ended", layout.group(entity))  # noqa: E731
            return FinishedMonth(self.files, at, layout.entity_type, lock=lock, rated=rated, **settings)

        home = Directory(self.files, path, layout.entity_type, parsed=self._parsed, **settings)
        return Partition(home, Archive(path, lock, month), layout)

    # Writing under an entity's lock

    # Whether an entity is over is said by its file; where it is follows from that. The two are changed one after
    # the other, so each order must leave something that the next reader can finish:
    #
    # - It ends: first its file says so, then it moves to the archive. Killed in between, it is here and says that
    #   it is over: `open` leaves it out, `archive_over` moves it.
    # - It is reopened: first it moves back, then its file says that it is open. Killed in between, it is again one
    #   that is here and is over. The other order would leave an open task in the archive, where nobody looks for
    #   work.
    # - It changes hands: first its file names the new assignee, then it moves to that directory. Killed in between,
    #   the next change moves it; until then it is found by its id, as its content decides where it belongs.
    #
    # All under the entity's own lock. Readers take none: `find` searches twice, as a file may move from a place that
    # it has not searched yet to one that it already has.
    def _adopted(self, entity: E, entity_id: str) -> E:
        """Returns an entity that was read, with the id that its file's name gives it."""
        return replace(entity, id=entity_id)  # type: ignore[call-arg]  # it is a field of every subclass

    def _settled(self, entity: E) -> E:
        """Returns the entity once everything of it that its file does not hold is durably written elsewhere."""
        return entity

    def _as_stored(self, entity: E) -> E:
        """Returns the entity as its file holds it."""
        return entity

    def _change(self, entity_id: str, change: Callable[[E], E]) -> E:
        """Changes an entity; the caller holds its lock."""
        located = self._located(entity_id)
        return self._write(located, change(located.entity))

    def _located(self, entity_id: str) -> Location[E]:
        located = self.locate(entity_id)
        if located is None:
            raise self.layout.missing(entity_id)
        return located

    def _create(self, entity: E, modified: int | None = None, data: bytes | None = None) -> E:
        """Creates an entity's file, in the archive if it is over. `modified` as in `Files.create`; `data` is the file's
        content, if the caller has it."""
        partition, name = self.partition(self.layout.partition(entity)), self.layout.name(entity.id)
        data = self._content(entity) if data is None else data
        together = self._together
        if together is not None:
            together.here.add(entity.id)
        if self.layout.file_name is None and self._is_over(entity):
            at = time.time_ns() if modified is None else modified
            prepared = Prepared(name, entity, at, self.files.prepare(data, modified=at))
            if together is not None:
                together.waiting.setdefault(partition, []).append(prepared)
            else:
                partition.create_over([prepared])
        else:
            try:
                self.files.create(partition.home.path / name, data, modified=modified)
            except StorageError:
                self._drop_own_directory(partition.home, name)
                raise
            self._put_away(partition, name, entity)
        self._note(entity.id, partition)
        return entity

    def _content(self, entity: E) -> bytes:
        """Returns the content of an entity's file."""
        return codec(self.layout.entity_type).encode(self._as_stored(self._settled(entity)))

    def _write(
        self,
        located: Location[E],
        changed: E,
        modified: int | None = None,
        data: bytes | None = None,
        *,
        guarded: bool = False,
    ) -> E:
        """Writes a new value in place of the old one and moves it to where it belongs: what is over, to the month of
        its last change, so that it is in the same one on a machine that has seen only the last. `guarded`: raises
        `FileChanged` if the file has been saved since it was located. `modified` and `data` as in `_create`."""
        partition, directory, entity, signature = located
        name = self.layout.name(entity.id)
        if directory is not partition.home and self._leaves(directory, partition, entity, changed, modified):
            self._bring_back(partition, directory, name)  # before its file says that it is open again
            directory = partition.home
        if changed != entity or (data is not None and data != self.files.read(directory.path / name)):
            unchanged = signature if guarded else None
            content = self._content(changed) if data is None else data
            self.files.replace(directory.path / name, content, modified=modified, unchanged=unchanged)
        if directory is partition.home:
            partition = self._moved_to_partition(partition, changed, name)
            self._put_away(partition, name, changed)
        return changed

    def _leaves(
        self, month: Directory[E], partition: Partition[E], entity: E, changed: E, modified: int | None
    ) -> bool:
        """Whether a change takes an archived entity out of its month."""
        if not self._is_over(changed):
            return self.layout.over is not None
        at = time.time_ns() if modified is None else modified
        is_changed = self._unmarked(changed) != self._unmarked(entity)
        return is_changed and partition.month_of(at).path != month.path

    def _unmarked(self, entity: E) -> E:
        """Returns the entity without what is no change of it."""
        return entity

    def _is_over(self, entity: E) -> bool:
        return bool(self.layout.label(entity)) and self.layout.may_leave(entity)

    def _put_away(self, partition: Partition[E], name: str, entity: E) -> None:
        if self._is_over(entity):
            partition.put_away(name, entity)

    def _bring_back(self, partition: Partition[E], directory: Directory[E], name: str) -> None:
        item = name.partition("/")[0]
        self._move(directory.path / item, partition.home.path / item)

    def _moved_to_partition(self, found: Partition[E], entity: E, name: str) -> Partition[E]:
        """Moves an entity from its former partition to the one it belongs to, and returns that."""
        target = self._belonging_to(entity) or found  # it stays if no partition can have that name
        if target is not found:
            self._move(found.home.path / name, target.home.path / name)
            self._note(entity.id, target)
        return target

    def _move(self, source: Path, target: Path) -> None:
        """Moves an entity's file. Another one of its id, which a person has put there, is set aside."""
        if os.path.lexists(target) and not target.is_dir():
            Quarantine(self.files, target.parent).set_aside(target, SAME_ID)
        self.files.move(source, target)

    def _put(
        self,
        located: Location[E] | None,
        entity: E,
        modified: int | None = None,
        data: bytes | None = None,
        *,
        guarded: bool = False,
    ) -> None:
        if located is None:
            self._create(entity, modified, data)
        else:
            self._write(located, entity, modified, data, guarded=guarded)

    def _drop_own_directory(self, directory: Directory[E], name: str) -> None:
        """Removes the entity's own directory after its file was removed or not created, unless it holds other files."""
        if self.layout.file_name is not None:
            with suppress(OSError):
                (directory.path / name).parent.rmdir()

    def _lock(self, entity_id: str) -> str:
        """Returns the name of an entity's lock. Locks are striped to bound their number: never hold two of one
        collection."""
        stripe = zlib.crc32(entity_id.encode(errors="surrogateescape")) % LOCK_STRIPES
        return f"{self.base.name}-{stripe:02x}"
