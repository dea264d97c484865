"""A directory of items that are read once: `{YYYYMMDD_HHMMSS}_{id8}.md`. Mailboxes and notifications are inboxes.

What is in the directory is unread, whatever its header says, unless it was handed out and is not confirmed yet: then
an agent session's file names it (docs/protocol.md, Confirmation). Once that is confirmed, it moves to
`archive/{YYYY-MM}/`. So a file that somebody puts back is read again, and `ls` shows what waits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Mark, Readable, age, id8
from multi_agent_mcp.domain.times import format_time, month_of, parse_time, stamp
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.archive import DIGITS, OUR_NAME, Archive, ReadMonth, file_names
from multi_agent_mcp.store.directory import ARCHIVE, Directory, EntityFiles
from multi_agent_mcp.store.durable_files import FileChanged, Files
from multi_agent_mcp.store.inbox_files import InboxFiles, inode, precedence
from multi_agent_mcp.system.file_status import modified_at, signature
from multi_agent_mcp.system.files import spelled, sync_directory

R = TypeVar("R", bound=Readable)

_UNREAD = b"\nread_at: null\n"


def file_name(entity: Readable) -> str:
    """Returns the name of an entity's file: `20261121_214601_0a1b2c3d.md`."""
    return f"{stamp(entity.created_at)}_{id8(entity.id)}.md"


class Standing(NamedTuple, Generic[R]):
    """What stays in its directory after it was read, because it is in force: `stays` says whether an entity may be
    that, `ends` whether it ends what was in force before it (a resumption ends an earlier pause)."""

    stays: Callable[[R], bool] = lambda _: False
    ends: Callable[[R], bool] = lambda _: False


class _Accepted(NamedTuple, Generic[R]):
    """A file of another machine that is to be put into the archive: its scratch file, and the month's directory."""

    name: str
    entity: R
    data: bytes
    month: str
    scratch: Path


class Inbox(InboxFiles[R]):
    """The inbox of one agent. Files are marked read and moved under the lock `lock`, durably.

    Unread entities are sorted by the key `order`, by default oldest first.

    `handed_out` returns the references of the files that the agent's sessions have handed out and not confirmed yet
    (see `reference`). `is_foreign` returns whether the agent's home is another machine, which alone decides what it has
    read. With `keeps_names`, a file is not renamed in the archive either: on several machines it is the same only under
    the same name.
    """

    def __init__(
        self,
        files: Files,
        path: Path,
        entity_type: type[R],
        *,
        lock: str,
        handed_out: Callable[[], Collection[str]] = frozenset,
        is_foreign: Callable[[], bool] = lambda: False,
        standing: Standing[R] | None = None,
        indexed: Callable[[R], R] = lambda entity: entity,
        order: Callable[[R], Any] | None = None,
        keeps_names: bool = False,
        **defaults: Any,
    ) -> None:
        hot: Directory[R] = Directory(files, path, entity_type, indexed=indexed, order=order or age, **defaults)
        archive_lock = f"archive-{path.parent.name}-{path.name}"
        made = partial(ReadMonth, files, entity_type=entity_type, lock=archive_lock, **defaults)
        super().__init__(hot, Archive(path, archive_lock, made))
        self.files = files
        self.lock = lock
        self._handed_out = handed_out
        self._is_foreign = is_foreign
        self._standing: Standing[R] = standing or Standing()
        self._keeps_names = keeps_names
        self._prefix = f"{path.relative_to(files.base)}/"
        self._this_thread = threading.local()

    def reference(self, name: str, read_at: datetime | None = None) -> str:
        """Returns a file's path in the session directory and the time at which it is marked read, if given: this is
        what an agent session records when it hands the file out."""
        return f"{self._prefix}{spelled(name)}" + (f" {format_time(read_at)}" if read_at else "")

    def has_any(self, references: Iterable[str]) -> bool:
        """Returns whether one of these references is to a file of this inbox."""
        return any(item.startswith(self._prefix) for item in references)

    # What waits

    def unread(self, *, fresh: bool = False) -> list[tuple[str, R]]:
        """Returns names and entities of the unread files in the inbox's order, with the parts that the index keeps
        (`indexed`, see `Directory`)."""
        return self._without_read(self.hot.entities(fresh=fresh))

    def unread_among(self, names: Iterable[str]) -> list[tuple[str, R, int]]:
        """Returns the unread ones of these files: name, entity, and change time (`st_ctime_ns`, which cannot be set).
        Reads each file, without making the index."""
        times, found = {}, []
        with suppress(FileNotFoundError), self.hot.opened() as place:
            for name in names:
                if (loaded := self.hot.load_with_status(name, place)) is not None:
                    found.append((name, loaded[0]))
                    times[name] = loaded[1].st_ctime_ns
        return [(name, entity, times[name]) for name, entity in self._without_read(found)]

    def in_force(self) -> list[tuple[str, R]]:
        """Returns names and entities of what may be in force (`Standing.stays`), read or not."""
        return [item for item in self.hot.entities() if self._standing.stays(item[1])]

    def unread_or_in_force(self) -> list[tuple[str, R]]:
        """Returns both, by one look."""
        found = self.hot.entities()
        return [*self._without_read(found), *(item for item in found if self._standing.stays(item[1]))]

    def is_handed_out(self) -> bool:
        """Returns whether a file was read and is not in force: it is here until its reader confirms it, and becomes
        unread if that dies."""
        marked = (entity for _, entity in self.hot.entities() if entity.read_at is not None)
        return not all(map(self._standing.stays, marked))

    def any_unread(self, ids: frozenset[str]) -> bool:
        """Returns whether an entity with one of these ids is unread, found by file name. A file whose name is not of
        our form may be missed."""
        digits = set(map(id8, ids))
        likely = (self.hot.load(name) for name in file_names(self.path) if name[-11:-3] in digits)  # `…_{id8}.md`
        return any(entity is not None and entity.id in ids and entity.read_at is None for entity in likely)

    # This is the only place that decides what is unread. The way of a file through an inbox, and who may be killed
    # where:
    #
    #     lease      the reader's session file names it, with the time of the mark to come      (fsynced)
    #     mark       `read_at` is written into it                                               (fsynced)
    #     hand out   the answer's last byte is written
    #     confirm    with the next call: it moves to the archive, then the session file forgets it
    #
    # Killed before the mark, the file is unread, and the lease names nothing that is marked at that time. Killed
    # between mark and confirmation, the lease says which marks were this reader's, so recovery takes back exactly
    # those: a mark of another time was set by another reader, which lives, and whose mail must not come a second
    # time. Killed between the move and the forgetting, the lease names a file that has gone, which is no harm; the
    # other way round, the file would be here marked and named by nobody, and that is how a file looks that a person
    # has put back to be read again.
    def _without_read(self, found: list[tuple[str, R]]) -> list[tuple[str, R]]:
        """Returns those that are unread. Whoever confirms a file moves it before its session's file stops naming it, so
        one that is neither named nor gone was put here by a person."""
        if all(entity.read_at is None for _, entity in found):
            return found
        if self._is_foreign():
            return [item for item in found if item[1].read_at is None]
        handed_out = self._handed_out()
        return [
            (name, entity)
            for name, entity in found
            if entity.read_at is None
            or not (
                self.reference(name, entity.read_at) in handed_out
                or self._standing.stays(entity)
                or not (self.path / name).exists()
            )
        ]

    def is_unread(self, name: str, entity: R) -> bool:
        """Returns whether a file in the inbox counts as unread: one that was read may have been put back by a
        person."""
        return bool(self._without_read([(name, entity)]))

    # What arrives

    def deliver(self, entity: R) -> None:
        """Creates the entity's file, exclusively; raises `FileExistsError`."""
        self.hot.create(file_name(entity), entity)

    def has(self, entity: R) -> bool:
        """Returns whether a file with this entity's name exists, here or in the archive."""
        name = file_name(entity)
        month = month_of(entity.created_at)
        return any(map(os.path.exists, (f"{self.path}/{name}", f"{self.path}/{ARCHIVE}/{month}/{name}")))

    def has_name(self, name: str) -> bool:
        """As `has`, for a file with a name of our form."""
        month = f"{name[:4]}-{name[4:6]}"
        return any(map(os.path.exists, (f"{self.path}/{name}", f"{self.path}/{ARCHIVE}/{month}/{name}")))

    def accept(self, name: str, data: bytes, modified: int, mark: Mark | None = None) -> R | None:
        """Stores a file of another machine under its name, its bytes unchanged except for the mark, with which it
        belongs in the archive, unless it is in force; returns None if it exists already, here or there. An empty file
        does not count: a power cut has left it from an earlier attempt (`Files.in_bulk`)."""
        entity = self.hot.decode(data, name.removesuffix(".md"), modified / 1e9)
        month = f"{self.path}/{ARCHIVE}/{month_of(entity.created_at)}"
        accepted: dict[str, _Accepted[R]] | None = getattr(self._this_thread, "accepted", None)
        if any(map(_has_bytes, (f"{self.path}/{name}", f"{month}/{name}"))):
            return None
        if accepted is not None and (known := accepted.get(name)) is not None:
            if precedence(known.entity) <= precedence(entity):
                return None
            known.scratch.unlink(missing_ok=True)
        if mark is None or mark.read_at is None:
            self.files.replace(self.path / name, data, modified=modified)
            return None if self._remove_copy(name, data, month) else entity
        entity = mark.on(entity)
        marked = (None if mark.settled else _marked_read(data, mark.read_at)) or self.hot.codec.encode(entity)
        if mark.held or (self._standing.stays(entity) and not mark.over):
            self.files.replace(self.path / name, marked, modified=modified)
            return entity
        self._put_away(self._ended_by([(name, entity)]))
        item = _Accepted(name, entity, data, month, self.files.prepare(marked, modified=modified))
        if accepted is not None:
            accepted[name] = item
        else:
            self._archive([item])
        return entity

    @contextmanager
    def accepting_together(self) -> Iterator[None]:
        """Puts what this thread accepts as read within the context into the archive at its end: for many files, as the
        archive's lock is taken once for all of a month. Raises `StorageError`."""
        accepted: dict[str, _Accepted[R]] = {}
        self._this_thread.accepted = accepted
        try:
            yield
        finally:
            del self._this_thread.accepted
            by_month: dict[str, list[_Accepted[R]]] = {}
            for item in accepted.values():
                by_month.setdefault(item.month, []).append(item)
            for items in by_month.values():
                self._archive(items)

    def _archive(self, items: Sequence[_Accepted[R]]) -> None:
        """Puts accepted files of one month into the archive."""
        month = self.archive.month(items[0].entity.created_at)
        with self.files.locks.held(self.archive.lock), month.noting([item.name for item in items]):
            self.files.replace_all({month.path / item.name: item.scratch for item in items})
        for item in items:
            self._remove_copy(item.name, item.data, item.month)

    def _remove_copy(self, name: str, data: bytes, month: str) -> bool:
        """Removes an unread file if it was put into the archive meanwhile, by another process that accepts the same one
        from another machine and knows that it was read; returns whether it was. Each of both looks after its write, so
        that one of them sees the other's."""
        here = f"{self.path}/{name}"
        if not os.path.lexists(here) or not _has_bytes(f"{month}/{name}") or self.files.read(Path(here)) != data:
            return False
        self.files.remove(self.path / name)
        return True

    def remove(self, entity: R) -> None:
        """Removes an entity that was just delivered and not acknowledged to any caller."""
        self.hot.remove(file_name(entity))

    def take_back(self, entity: R) -> bool:
        """Removes an entity that was just delivered if it is in the archive, too: another process had delivered it, and
        it was read, after the caller had looked for it. Returns whether it was so."""
        name = file_name(entity)
        if not _has_bytes(f"{self.path}/{ARCHIVE}/{month_of(entity.created_at)}/{name}"):
            return False
        self.hot.remove(name)
        return True

    # What is read; the caller of these holds the lock, unless they say otherwise

    def mark_read(self, names: Iterable[str], at: datetime | None, seen: Mapping[str, R] | None = None) -> None:
        """Sets `read_at` of these files, which were leased, None to make them unread again. `seen` says what was read
        in them: another one that somebody has put in the place of such a file since stays unread."""
        changed = [self._mark(name, at, (seen or {}).get(name)) for name in names]
        if any(changed):
            sync_directory(self.path)

    def _mark(self, name: str, at: datetime | None, seen: R | None) -> bool:
        """Sets `read_at` of a file, unless it is another one than was `seen`; returns whether it has changed."""
        if (loaded := self.hot.load_with_status(name)) is None:
            return False
        entity, status = loaded
        is_other = seen is not None and seen != entity and not _is_same(seen, entity)
        if is_other or entity.read_at == at:
            return False
        return self._replaced(self.hot, name, entity.mark_read(at), status, sync=False)

    def _replaced(
        self, directory: EntityFiles[R], name: str, entity: R, status: os.stat_result, *, sync: bool = True
    ) -> bool:
        """Replaces a file of this status by its entity with another mark; returns False, having done nothing, if
        somebody has put another one in its place."""
        try:
            directory.replace(name, entity, sync=sync, unchanged=signature(status))
        except FileChanged:
            if not self._is_still(directory, name, entity):
                return False
            directory.replace(name, entity, sync=sync)
        return True

    def _is_still(self, directory: EntityFiles[R], name: str, entity: R) -> bool:
        """Returns whether a file with another signature than it had is the same, but for its mark: it was touched, or
        the file system gives a file a new inode now and then."""
        with suppress(StorageError):  # it is no file any more
            found = directory.load(name)
            return found is not None and _is_same(found, entity)
        return False

    def end(self, names: Iterable[str], at: datetime) -> None:
        """Moves these files to the archive, as read at this time: nobody has to be handed them (any more)."""
        found = []
        for name in dict.fromkeys(names):
            if (loaded := self.hot.load_with_status(name)) is None:
                continue
            entity, status = loaded
            if entity.read_at is None:
                entity = entity.mark_ended(at)
                if not self._replaced(self.hot, name, entity, status, sync=False):
                    continue
            found.append((name, entity))
        self._put_away(found)

    def read(self, names: Sequence[str], at: datetime, seen: Mapping[str, R] | None = None) -> None:
        """Marks files read that need no confirmation, as a person has seen them, and moves them to the archive, as
        `mark_read`. What is in force stays."""
        self.mark_read(names, at, seen)
        self._put_read_away(self.reference(name, at) for name in names)

    def confirm(self, references: Iterable[str]) -> None:
        """Moves the files with these references to the archive, unless they were marked read at another time since.
        What is in force stays. Takes the lock."""
        with self.files.locks.held(self.lock):
            self._put_read_away(references)

    def _put_read_away(self, references: Iterable[str]) -> None:
        referred = [item for item in self._referred(references) if not self._standing.stays(item[1])]
        self._put_away([item[:2] for item in referred], {name: inode for name, _, inode in referred})

    def requeue(self, references: Iterable[str]) -> list[R]:
        """Makes the files with these references unread again, unless they were marked read at another time than the
        reference says: by another reader, after the one that holds it had died. Returns the entities as they were
        before."""
        found = self._referred(references, unread_too=True)
        handed_out = {name: entity for name, entity, _ in found if entity.read_at is not None}
        self.mark_read(handed_out, None, handed_out)
        return [entity for _, entity, _ in found]

    def bring_back(self, ids: Collection[str]) -> None:
        """Makes the items with these ids unread again, also out of the archive."""
        found = {path for like in ids for path, _ in self.find_all(lambda entity: entity.id in ids, like=like)}
        for path in found:
            if path.parent != self.path and not (self.path / path.name).exists():
                self.files.move(path, self.path / path.name)
        self.mark_read([path.name for path in found], None)

    def unarchive(self, references: Iterable[str]) -> None:
        """Moves the files with these references back from the archive. Takes the lock."""
        names = {Path(path).name for path, _ in map(_parted, references) if path.startswith(self._prefix)}
        with self.files.locks.held(self.lock):
            for name in names:
                self._unarchive(name)

    def _unarchive(self, name: str) -> None:
        archived = next((path for month in self.months() if (path := month.path / name).exists()), None)
        if archived is not None and not (self.path / name).exists():
            self.files.move(archived, self.path / name)

    def accept_mark(self, name: str, mark: Mark) -> bool:
        """Marks a file as it is on the agent's own machine, and moves it to the archive if it is archived there; if it
        is unread there, back from the archive. Returns whether there is such a file. Takes the lock."""
        with self.files.locks.held(self.lock):
            if mark.read_at is None:
                self._unarchive(name)
            for directory in self.directories():
                loaded = directory.load_with_status(name) if (directory.path / name).exists() else None
                if loaded is not None:
                    entity, status = loaded
                    if (marked := mark.on(entity)) != entity and not self._replaced(directory, name, marked, status):
                        return True  # the other one is noticed
                    is_over = mark.over or not (mark.held or self._standing.stays(marked))
                    if directory is self.hot and mark.read_at is not None and is_over:
                        self._put_away([(name, marked)])
                    return True
            return False

    def mark_of(self, path: Path, entity: R) -> Mark:
        """Returns the mark of a file here, or in the archive."""
        is_here, stays = path.parent == self.path, self._standing.stays(entity)
        is_settled = bool(getattr(entity, "settled", None))
        is_held = is_here and entity.read_at is not None and not stays
        return Mark(entity.read_at, is_settled, over=stays and not is_here, held=is_held)

    # Of a notification that follows from what all machines know each may write one of its own, while they do not hear
    # of each other. All machines keep the same one in the end: the earlier, and of two at one time the one whose text
    # comes first.
    def keep_against(self, name: str, theirs: R, modified: int) -> bool:
        """Keeps what is here under this id if it comes before `theirs`, of this name, which another machine has made
        under it, too; else puts theirs in its place, with its mark. Returns whether it was kept. Takes the lock."""
        with self.files.locks.held(self.lock):
            for path, mine in self.find_all(lambda entity: _is_rival(entity, theirs), like=theirs.id):
                if path.name == name and mine.mark_read(None) == theirs:
                    continue
                if precedence(mine) < precedence(theirs):
                    return True
                marked = self.hot.codec.encode(self.mark_of(path, mine).on(theirs))
                self.files.replace(path.with_name(name), marked, modified=modified)
                if path.name != name:
                    self.files.remove(path, sync=True)
            return False

    def without_rivals(self, actions: Collection[str]) -> None:
        """Removes those of several files with one id and one of these actions that do not stand."""
        bearers: dict[str, list[Path]] = {}
        for directory in self.directories():
            for name in filter(OUR_NAME.fullmatch, directory.names()):
                bearers.setdefault(name[DIGITS], []).append(directory.path / name)
        for paths in (paths for paths in bearers.values() if len(paths) > 1):
            for found in map(self._at, map(self.within, paths)):
                if found is not None and getattr(found[1], "action", None) in actions:
                    self.keep_against(found[0].name, found[1].mark_read(None), modified_at(found[0]))

    def _referred(self, references: Iterable[str], *, unread_too: bool = False) -> list[tuple[str, R, int]]:
        """Returns names, entities and inodes of the files that these references name, as far as they are marked read at
        the time that the reference says."""
        times: dict[str, set[datetime | None]] = {}
        for path, time in map(_parted, references):
            times.setdefault(path, set()).add(time)
        found = []
        for name in file_names(self.path) if times else ():
            marked = times.get(self.reference(name), ())
            if not marked or (loaded := self.hot.load_with_status(name)) is None:
                continue
            entity, status = loaded
            if entity.read_at in marked or (unread_too and entity.read_at is None):
                found.append((name, entity, status.st_ino))
        return found

    # A resumption that goes to the archive takes the pause that it ended along, and the pause goes first: if the
    # process is killed between the two moves, a pause that was left behind alone would be in force again, and stop an
    # agent that a person had told to go on.
    def _put_away(self, found: Sequence[tuple[str, R]], inodes: Mapping[str, int] | None = None) -> None:
        """Moves files to the months of their entities. First what they end, so that it is never in force again. A file
        with another inode than it had is another one that somebody has put in its place: it comes back."""
        if not found:
            return
        by_month: dict[str, list[tuple[str, R]]] = {}
        for name, entity in [*self._ended_by(found), *found]:
            by_month.setdefault(month_of(entity.created_at), []).append((name, entity))
        for items in by_month.values():
            month = self.archive.month(items[0][1].created_at)
            with self.files.locks.held(self.archive.lock):
                moves = self._free_names(items, month.path)
                with month.noting([*moves.values()]):
                    self._moved(moves, month.path)
                self._return_others(items, moves, month, inodes or {})
        sync_directory(self.path)

    def _ended_by(self, found: Sequence[tuple[str, R]]) -> list[tuple[str, R]]:
        """Returns what else is in force and is ended by one of these."""
        names, endings = {name for name, _ in found}, [entity for _, entity in found if self._standing.ends(entity)]
        return [
            (name, old)
            for name, old in (self.in_force() if endings else ())
            if name not in names and any(entity.created_at > old.created_at for entity in endings)
        ]

    def _moved(self, moves: Mapping[str, str], place: Path) -> None:
        for name, target in moves.items():
            self.files.move(self.path / name, place / target, sync=False)
        sync_directory(place)

    def _return_others(
        self, items: Sequence[tuple[str, R]], moves: Mapping[str, str], month: ReadMonth[R], inodes: Mapping[str, int]
    ) -> None:
        for name, entity in items:
            target = month.path / moves[name]
            is_other = name in inodes and inode(target) not in (inodes[name], None)
            if is_other and not self._is_still(month, target.name, entity):
                self.files.relocate([(target, self.path / name)])

    def _free_names(self, items: Sequence[tuple[str, R]], place: Path) -> dict[str, str]:
        """Returns the names for files in their month: each its own, with a number if another file has it, or one of
        these. A name of our form is taken there to say the id: a copy under another's name gets that of its own."""
        chosen, taken = dict[str, str](), set[str]()
        for name, entity in items:
            is_true = self._keeps_names or not OUR_NAME.fullmatch(name) or name[DIGITS] == id8(entity.id)
            wanted = Path(name if is_true else file_name(entity))
            candidate, number = wanted.name, 0
            while candidate in taken or os.path.lexists(place / candidate):
                number += 1
                candidate = f"{wanted.stem}.{number}{wanted.suffix}"
            taken.add(candidate)
            chosen[name] = candidate
        return chosen


def deliver_all(entities: Sequence[tuple[Inbox[R], R]]) -> None:
    """Delivers one entity to each of several inboxes, all of them or, if this raises, none; see `Inbox.deliver`."""
    for inbox, _ in entities:
        inbox.hot.require_inside()
    inbox, _ = entities[0]
    inbox.files.create_all({to.path / file_name(entity): to.hot.codec.encode(entity) for to, entity in entities})


def _has_bytes(path: str) -> bool:
    """Returns whether the file exists and is not empty."""
    try:
        return os.stat(path).st_size > 0  # noqa: PTH116 - a `Path` takes five times as long
    except (FileNotFoundError, NotADirectoryError):
        return False


def _marked_read(data: bytes, at: datetime) -> bytes | None:
    """Returns the bytes with only `read_at` changed, six times as fast as the codec; None if not written by us."""
    header_end = data.find(b"\n---\n", 3) + 1
    before, unread, after = data[:header_end].partition(_UNREAD)
    return (
        b"".join((before, f"\nread_at: '{format_time(at)}'\n".encode(), after, data[header_end:])) if unread else None
    )


def _parted(reference: str) -> tuple[str, datetime | None]:
    """Returns the path of a reference, and the time of its mark, if it has one."""
    path, _, time = reference.rpartition(" ")
    return (reference, None) if reference.endswith(".md") else (path, parse_time(time))


def _is_same(one: Readable, other: Readable) -> bool:
    """Returns whether two are the same but for their marks. Their texts are compared, as a header's `.nan` is not equal
    to itself."""
    return repr(one.mark_read(None)) == repr(other.mark_read(None))


def _is_rival(mine: Readable, theirs: Readable) -> bool:
    return mine.id == theirs.id and getattr(mine, "action", None) == getattr(theirs, "action", None)
