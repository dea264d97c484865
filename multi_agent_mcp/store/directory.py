"""The entity files of one directory: leniently read, set aside when unreadable, written whole, and indexed in memory.

An index is trusted as long as the directory's own modification time stays the same; see `file_status.is_settled`.
Otherwise all files are examined, and those whose signature has changed are read again: so it is made of the one before,
which no `Memory` would keep. A hot directory holds what is open, so it is small.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
import time
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.domain.times import from_timestamp
from multi_agent_mcp.errors import Reason, StorageError, UntrustedSession
from multi_agent_mcp.store.codec import Unreadable, codec
from multi_agent_mcp.store.durable_files import Files, Looks, read_file
from multi_agent_mcp.store.locks import mutex
from multi_agent_mcp.system.file_status import (
    Memory,
    Signature,
    in_place,
    is_settled,
    modified_at,
    settled_times,
    signature,
)
from multi_agent_mcp.system.files import spelled, storage_errors
from multi_agent_mcp.texts import catalogue

T = TypeVar("T")
E = TypeVar("E", bound=Entity)

# Unreadable files are moved to the sub-directory `quarantine/`, each with its reason (docs/protocol.md, Files).

QUARANTINE = "quarantine"
REASON_SUFFIX = ".reason.txt"
ORDER = ("en", "ja")
"""The languages of a reason's lines, in order: a session may change its language. Older versions wrote only English."""
LONGEST_NAME = 200  # in bytes; with number and suffix it stays below the 255 that file systems allow


def reason_in(data: bytes, language: str) -> str:
    """Returns the reason in this language, from the content of the file beside a quarantined one."""
    lines = data.decode(errors="replace").splitlines() or [""]
    number = ORDER.index(language)
    return lines[number] if number < len(lines) else lines[-1]


class Quarantine:
    """The quarantine of one directory. Its files never hide or block others."""

    def __init__(self, files: Files, beside: Path) -> None:
        self.files = files
        self.path = beside / QUARANTINE
        self._mutex = mutex("quarantine")
        self._news = Memory()

    def set_aside(self, path: Path, reason: Reason) -> None:
        """Moves a file here and writes the reason beside it, one line in each language. If several readers do so at
        once, one moves it."""
        name = os.fsencode(path.name)
        if len(name) > LONGEST_NAME:
            name = name[:LONGEST_NAME] + f".{secrets.token_hex(4)}{path.suffix}".encode()
        try:
            (placed,) = self.files.relocate([(path, self.path / os.fsdecode(name))])
        except StorageError:
            if not os.path.lexists(path):
                return  # another reader has set it aside
            # Linux refuses hard links to another user's file (fs.protected_hardlinks), but not to rename it.
            placed = self.path / f"{Path(os.fsdecode(name)).stem}.{secrets.token_hex(4)}{path.suffix}"
            self.files.move(path, placed)
        self._explain(placed, reason)

    def keep(self, name: str, data: bytes, reason: Reason) -> Path:
        """Stores bytes that are about to be overwritten, under this name or one with a digest, with the reason beside
        them. The same bytes are stored once. Returns the path. Raises `StorageError`."""
        other = f"{Path(name).stem}.{hashlib.sha256(data).hexdigest()[:8]}{Path(name).suffix}"
        for placed in (self.path / name, self.path / other):
            try:
                self.files.create(placed, data)
            except FileExistsError:
                if self.files.read(placed) != data:  # else a process stored it and was killed before it continued
                    continue
            break
        self._explain(placed, reason)
        return placed

    def _explain(self, placed: Path, reason: Reason) -> None:
        words = "".join(f"{catalogue(language).reason(reason)}\n" for language in ORDER)
        self.files.replace(placed.with_name(f"{placed.name}{REASON_SUFFIX}"), words.encode())

    def take_news(self) -> int:
        """Returns the number of files set aside, by any process, since the last call. Never raises."""
        return self._news.get(settled_times(self.path), self._taken_news)  # noting what is new changes the directory

    def _taken_news(self) -> int:
        told_path = self.path / ".told"
        with self._mutex, suppress(StorageError):
            names = (name for name in self.files.names(self.path) if name.endswith(REASON_SUFFIX))
            reasons = {" ".join(spelled(name).splitlines()) for name in names}
            told = set((self.files.read(told_path) or b"").decode(errors="replace").splitlines())
            if reasons != told:
                self.files.replace(told_path, "\n".join(sorted(reasons)).encode(), durable=False)
            return len(reasons - told)
        return 0


SETTLING_SECONDS = 0.1
EMPTY_FILE_GRACE_SECONDS = 5.0


class EntityFiles(Generic[E]):
    """Files of one entity type by name. `defaults` are the values of keys that a hand-written file omits. `place` holds
    values that a file may omit too, but not contradict: then it is misplaced. `adopt` completes an entity that was
    read, given the stem of its file's name."""

    def __init__(
        self,
        files: Files,
        path: Path,
        entity_type: type[E],
        *,
        place: Mapping[str, str] | None = None,
        adopt: Callable[[E, str], E] = lambda entity, _: entity,
        **defaults: Any,
    ) -> None:
        self.files = files
        self.path = path
        self.quarantine = Quarantine(files, path)
        self.codec = codec(entity_type)
        self._place = place or {}
        self._adopt = adopt
        self._defaults = {**defaults, **self._place}

    def load(self, name: str, place: int | None = None) -> E | None:
        """Returns the entity; None if the file is gone or still being written, or was unreadable or somebody else's
        (docs/security.md, Other users' sessions) and quarantined. With the descriptor `place` of the directory, as a
        listing has it, the way to it is not looked at for each file."""
        found = self.load_with_status(name, place)
        return None if found is None else found[0]

    def load_with_status(self, name: str, place: int | None = None) -> tuple[E, os.stat_result] | None:
        """As `load`, with the status of the file that was read."""
        path = f"{self.path}/{name}"
        for attempt in range(2):
            if place is None or "/" in name:
                self.require_inside(name)
            try:
                data, status = read_file(path) if place is None else read_file(name, place)
            except (FileNotFoundError, IsADirectoryError):
                return None
            except PermissionError as error:
                self._set_aside(path, Reason("unreadable", error=error))
                return None
            except OSError as error:
                raise StorageError(path=os.path.basename(name), reason=error) from error  # noqa: PTH119 - as in `id_in`
            try:
                self.files.containment.require_owner(status, path)
                # `st_mtime` is another float
                return self.decode(data, id_in(name), status.st_mtime_ns / 1e9), status
            except UntrustedSession as refusal:
                self._set_aside(path, refusal.values["reason"])
                return None
            except Unreadable as error:
                if self._still_written(status):
                    return None
                if attempt == 0 and _age(status) < SETTLING_SECONDS:
                    time.sleep(SETTLING_SECONDS)  # a `cp` may still be writing it
                    continue
                self._set_aside(path, error.reason)
        return None

    def create(self, name: str, entity: E, *, modified: int | None = None) -> None:
        """Creates a file, exclusively and durably; raises `FileExistsError`. `modified` as in `Files.create`."""
        self.files.create(f"{self.path}/{name}", self.codec.encode(entity), modified=modified)

    def replace(
        self,
        name: str,
        entity: E,
        *,
        sync: bool = True,
        modified: int | None = None,
        unchanged: Signature | None = None,
    ) -> None:
        """Replaces a file; see `Files.replace`."""
        data = self.codec.encode(entity)
        self.files.replace(self.path / name, data, sync=sync, modified=modified, unchanged=unchanged)

    def remove(self, name: str, *, sync: bool = False) -> None:
        """Removes a file; see `Files.remove`."""
        self.files.remove(self.path / name, sync=sync)

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Yields the descriptor of the directory, after a look at the way to it. Raises `StorageError`, and
        FileNotFoundError if there is none."""
        with storage_errors(self.path, FileNotFoundError):
            self.files.containment.require(self.path)
            with in_place(self.path) as place:
                yield place

    def require_inside(self, name: str = "") -> None:
        """Raises `StorageError` if a symbolic link in the path (of this file) leads out of the session's directory."""
        with storage_errors(self.path):
            self.files.containment.require(self.path / name.partition("/")[0] if "/" in name else self.path)

    def decode(self, data: bytes, stem: str, modified: float) -> E:
        """Returns the entity in a file's bytes. The stem of its name and its modification time (seconds since the
        epoch) replace a missing id and time. Raises `Unreadable`."""
        facts = {"id": spelled(stem), "created_at": from_timestamp(modified), **self._defaults}
        entity = self.codec.decode(data, **facts)
        for name, value in self._place.items():
            if (said := getattr(entity, name)) != value:
                raise Unreadable("misplaced", name=name, value=f"{said!r:.80}", owner=value)
        return self._adopt(entity, stem)

    def _set_aside(self, path: str, reason: Reason) -> None:
        Quarantine(self.files, Path(path).parent).set_aside(Path(path), reason)

    def _still_written(self, status: os.stat_result) -> bool:
        """Returns whether a file is new and still empty: a `cp` or an editor is writing it."""
        return status.st_size == 0 and _age(status) < EMPTY_FILE_GRACE_SECONDS


def id_in(name: str) -> str:
    """Returns the id that a file's name gives its entity: `{id}.md`, or `{id}/conversation.md` in a directory of its
    own."""
    return name.rpartition("/")[0] or name.removesuffix(".md")


def _age(status: os.stat_result) -> float:
    """Returns the seconds between now and a file's modification time, which is in the future if the clock was set back
    since."""
    return abs(time.time() - status.st_mtime)


Order = Callable[[T], Any]
"""A sort key of entities; equal ones are sorted by file name."""
ARCHIVE = "archive"
LOOKED_AT_EACH = 5_000
ADDED_MAX = 100
"""How many new entities are put in their places one by one; more are sorted with all others."""

logger = logging.getLogger(__name__)


class Entry(NamedTuple, Generic[T]):
    """A file in the index. `entity` is None while the file is still being written."""

    signature: Signature
    entity: T | None


class Directory(EntityFiles[E]):
    """The files `*.md` of one directory, without dot-files; with `nested`, the file of that name in each of its
    sub-directories, whose name is the entity's id. Entities are sorted by `order`; `named` accepts file names;
    `indexed` returns the version of an entity that the index keeps, and may change the one that it is given. `parsed`
    remembers files that were read one by one, by their paths and signatures."""

    def __init__(
        self,
        files: Files,
        path: Path,
        entity_type: type[E],
        *,
        order: Order[E] = lambda _: None,
        looks: Looks | None = None,
        named: Callable[[str], object] | None = None,
        nested: str | None = None,
        indexed: Callable[[E], E] = lambda entity: entity,
        parsed: Memory | None = None,
        **options: Any,
    ) -> None:
        super().__init__(files, path, entity_type, **options)
        self._order = order
        self._looks = looks or files.looks
        self._named = named
        self._nested = nested
        self._indexed = indexed
        self._parsed = parsed
        self._entries: dict[str, Entry[E]] = {}
        self._sorted: list[tuple[str, E]] = []
        self._unsorted: set[str] = set()
        """The names of the files that have changed, come or gone since `_sorted` was made."""
        self.version = 0
        """A number that increases whenever the directory was found changed."""
        self.skipped_names: set[str] = set()
        """The names of the files that the disk cannot read at the moment (EIO)."""
        self._seen_mtime = -1
        self._trusted = False
        self._is_being_written = False
        self._mutex = mutex("directory")

    def names(self) -> list[str]:
        """Returns the file names, unordered, without examining the files."""
        with storage_errors(self.path, FileNotFoundError), suppress(FileNotFoundError):
            found = os.listdir(self.path)  # noqa: PTH208 - only names
            if self._nested is not None:
                return [f"{name}/{self._nested}" for name in found if _is_entity_directory(name)]
            found = [name for name in found if name[-3:] == ".md" and name[0] != "."]
            return found if self._named is None else [*filter(self._named, found)]
        return []

    def each(self) -> Iterator[tuple[str, E]]:
        """Yields file names and entities, unordered; nothing is cached."""
        listing = self._listing()
        return ((name, entity) for name, _, place in listing if (entity := self.load(name, place)) is not None)

    def entries(self, *, fresh: bool = False) -> dict[str, Entry[E]]:
        """Returns the entries by file name. `fresh` examines every file even if the directory is unchanged (edits in
        place), unless there are more than `LOOKED_AT_EACH`."""
        with self._mutex:
            return self._current(fresh=fresh)

    def _current(self, *, fresh: bool = False) -> dict[str, Entry[E]]:
        """As `entries`; the caller has the mutex."""
        seen = self._looks.seen
        if fresh or seen is None or self not in seen:
            self._look(fresh=fresh)
            if seen is not None:
                seen.add(self)
        return self._entries

    def last_seen(self) -> dict[str, Entry[E]]:
        """Returns the entries by file name as the last look found them."""
        return self._entries

    def looked(self) -> int:
        """Looks for changes; returns the `version`."""
        with self._mutex:
            self._current()
            return self.version

    def good_for(self, version: int) -> int | None:
        """Returns the modification time for which the index of this version is good; None if it is looked at again in
        any case, or is of another version by now."""
        with self._mutex:
            return self._seen_mtime if self._trusted and self.version == version else None

    def entities(self, *, fresh: bool = False) -> list[tuple[str, E]]:
        """Returns names and entities, sorted; `fresh` as in `entries`."""
        with self._mutex:
            entries = self._current(fresh=fresh)
            if self._unsorted:
                self._sorted, self._unsorted = self._in_order(entries), set()
            return self._sorted

    def _in_order(self, entries: Mapping[str, Entry[E]]) -> list[tuple[str, E]]:
        """Returns names and entities, sorted. What is unchanged keeps its place: the keys of a full mailbox take as
        long as a look at its files."""

        def key(item: tuple[str, E]) -> Any:
            return self._order(item[1]), item[0]

        found = ((name, entry.entity) for name in self._unsorted if (entry := entries.get(name)) is not None)
        added = [(name, entity) for name, entity in found if entity is not None]
        kept = [item for item in self._sorted if item[0] not in self._unsorted]
        if len(added) > ADDED_MAX:
            return sorted(kept + added, key=key)
        for item in added:
            insort(kept, item, key=key)
        return kept

    def ids(self, names: Iterable[str], *, fresh: bool = False) -> dict[str, str]:
        """Returns the ids of these files, by file name."""
        entries = self.entries(fresh=fresh)
        found: dict[str, Any] = {name: entry.entity for name in names if (entry := entries.get(name)) is not None}
        return {name: str(entity.id) for name, entity in found.items() if entity is not None}

    def skipped(self) -> list[str]:
        """Returns the names of the files that the disk cannot read at the moment (EIO)."""
        with self._mutex:
            self.entries(fresh=True)
            return sorted(self.skipped_names)

    def changed(self) -> Iterator[tuple[str, int]]:
        """Yields file names with their modification times, in nanoseconds since the epoch, unordered."""
        return ((name, status.st_mtime_ns) for name, status, _ in self._listing())

    def is_unchanged(self, mtime: int, looked_at: int) -> bool:
        """Returns whether data read from time `looked_at` on, when the modification time was `mtime`, may be cached."""
        return is_settled(mtime, looked_at) and modified_at(self.path) == mtime

    def is_ours(self, name: str) -> bool:
        if not name.endswith(".md") or name.startswith("."):
            return False
        return self._named is None or bool(self._named(name))

    # Nobody tells a process what others have written: it compares the directory's modification time with the one it
    # knows, one stat(2) whether there are ten files or ten thousand. Two things could make it miss a file for ever.
    #
    # The clock of that time is coarse: a file that comes within the same tick as our look leaves the time as it is.
    # So an index made less than `RACY_NS` after the change that it saw is used once and not trusted; the next look
    # examines all files again (git's index does the same, and calls it racy). And a change that comes while we scan
    # must not be taken for seen: the time is read before the scan and compared again after it.
    #
    # What is written into a file that is there already changes no directory. So no index is trusted that has found a
    # file still empty. What an editor saves in place is looked for by `fresh`, which examines every file, where it
    # matters most: at mail that is about to be handed out.
    def _look(self, *, fresh: bool) -> None:
        began, mtime = time.time_ns(), modified_at(self.path)
        each = fresh and len(self._entries) <= LOOKED_AT_EACH
        if self._trusted and mtime == self._seen_mtime and not each:
            return
        self._trusted = False  # as long as this may fail
        self._scan()
        self._seen_mtime = mtime
        # What changes in a sub-directory does not change this one's time.
        is_whole = self._nested is None and not self.skipped_names and not self._is_being_written
        self._trusted = is_whole and self.is_unchanged(mtime, began)

    def _scan(self) -> None:
        self.skipped_names.clear()
        self._is_being_written = False
        entries: dict[str, Entry[E]] = {}
        before, changed = self._entries, set()
        for name, status, place in self._listing():
            known = before.get(name)
            if known is not None and known.signature == signature(status) and known.entity is not None:
                entries[name] = known
                continue
            entry = self._entry(name, status, place)
            if entry is not None:
                entries[name] = entry
            if entry != known:
                changed.add(name)
        changed |= before.keys() - entries.keys()
        if changed:
            self.version += 1
            self._entries = entries  # a new one, so that code that iterates is not disturbed
            self._unsorted |= changed

    def _listing(self) -> Iterator[tuple[str, os.stat_result, int]]:
        """Yields our regular files with their status, and the descriptor of the directory."""
        try:
            with self.opened() as place, os.scandir(place) as found:
                for item in found:
                    name = item.name
                    if self._nested is not None:
                        if not _is_entity_directory(name) or not item.is_dir(follow_symlinks=False):
                            continue
                        name = f"{name}/{self._nested}"
                    elif name not in self._entries and not self.is_ours(name):
                        continue
                    try:
                        status = (
                            item.stat(follow_symlinks=False)
                            if self._nested is None
                            else os.stat(name, dir_fd=place, follow_symlinks=False)
                        )
                    except FileNotFoundError:
                        continue
                    if S_ISREG(status.st_mode):
                        yield name, status, place
        except FileNotFoundError:
            return  # the directory is made with its first file

    def _entry(self, name: str, status: os.stat_result, place: int) -> Entry[E] | None:
        if self._parsed is not None and (known := self._parsed.known(signature(status), f"{self.path}/{name}")):
            return Entry(signature(status), known)
        try:
            entity = self.load(name, place)
        except StorageError as error:
            if not _is_bad_sector(error):
                raise
            # It must not hide the others and may become readable again: it stays, and is tried at every update.
            logger.warning("%s is passed over: %s", self.path / name, error)
            self.skipped_names.add(name)
            return None
        if entity is None:
            if not (self.path / name).exists():
                return None
            self._is_being_written = True
            return Entry(signature(status), None)
        return Entry(signature(status), self._indexed(entity))


def _is_entity_directory(name: str) -> bool:
    return name[0] != "." and name not in (ARCHIVE, QUARANTINE)


def _is_bad_sector(error: StorageError) -> bool:
    """Returns whether the disk failed for this file alone (EIO). Errors that any file would cause (no descriptors, no
    memory) are no reason to leave it out."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO
