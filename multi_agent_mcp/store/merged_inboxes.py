"""Several inboxes merged for views, newest first: listed and parsed only as far as requested, and only once.

The order is known from the names: a file's contains the second (`20261121_214601_…`), an archive directory's the month.
Files whose names are not of our form are parsed first. Parsed entities are cached by the file's signature, with the
beginning of their body. Of thousands of archived messages, timelines and statistics need only what `Envelope` holds:
that is noted in an index (docs/format.md, Where things are).
"""

from __future__ import annotations

import heapq
import json
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Readable, age
from multi_agent_mcp.domain.times import format_time, stamp
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.archive import OUR_NAME, STAMP_LENGTH, ReadMonth
from multi_agent_mcp.store.durable_files import INDEXES
from multi_agent_mcp.system.file_status import Memory, Signature, settled_times, signature
from multi_agent_mcp.system.files import storage_errors

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.store.directory import Directory
    from multi_agent_mcp.store.inbox import Inbox

R = TypeVar("R", bound=Readable)

HEAD_CHARACTERS = 300
LAST = "9" * STAMP_LENGTH
"""A value after every second."""
_MONTH = re.compile(r"(\d{4})-(\d\d)")

Position = tuple[str, datetime, str]


class InboxFile(NamedTuple, Generic[R]):
    """A file and its second, `YYYYMMDD_HHMMSS`."""

    second: str
    directory: Directory[R]
    name: str


class MergedInbox(Generic[R]):
    """Reads inboxes without marking anything read. A head is an entity with at most `HEAD_CHARACTERS` of its body."""

    def __init__(self) -> None:
        self._heads = Memory()
        self._listed = Memory()

    def newest_first(self, inboxes: Iterable[Inbox[R]], first: str = "", last: str = LAST) -> Iterator[InboxFile[R]]:
        """Yields the files of the seconds from `first` to `last`, newest second first. A month of the archives, which
        holds no newer files, is listed only after all newer ones were yielded (docs/format.md, The tree)."""
        months = self._months(inboxes, first, last)
        now = self._merged(months.pop("", ()))
        archived = (file for month in sorted(months, reverse=True) for file in self._merged(months[month]))
        files = heapq.merge(now, archived, key=attrgetter("second"), reverse=True)
        return (file for file in files if first <= file.second <= last)

    def count(self, inboxes: Iterable[Inbox[R]], first: str, last: str) -> int:
        """Returns the approximate number of files of these seconds, by their names alone."""
        return sum(
            directory.count()
            if first[:6] < month < last[:6] and isinstance(directory, ReadMonth)
            else sum(first <= name[:STAMP_LENGTH] <= last for name in self._names(directory))
            for month, directories in self._months(inboxes, first, last).items()
            for directory in directories
        )

    def unread(self, inboxes: Iterable[Inbox[R]]) -> list[InboxFile[R]]:
        """Returns the unread files, newest second first. The archive holds none and is not read."""
        files = [self._placed(inbox.hot, name) for inbox in inboxes for name, _ in inbox.unread(fresh=True)]
        return sorted(filter(None, files), key=attrgetter("second"), reverse=True)

    def heads(self, files: Iterable[InboxFile[R]], before: Position | None = None) -> Iterator[R]:
        """Yields the heads of these files, newest first; with `before`, those after this position."""
        for second, same_second in groupby(files, key=attrgetter("second")):
            if before is None or second <= before[0]:
                found = self._distinct(same_second)
                found.sort(key=age, reverse=True)
                yield from (head for head in found if before is None or (second, *age(head)) < before)

    def find(self, inboxes: Sequence[Inbox[R]], entity_id: str) -> tuple[InboxFile[R], R] | None:
        """Returns the file with this id and its head, None if there is none; see `Inbox.likely`."""
        for thorough in (False, True):
            for directory, name in chain.from_iterable(box.likely(entity_id, thorough=thorough) for box in inboxes):
                known = self._head(directory, name)
                if known is not None and known[1].id == entity_id and (file := self._placed(directory, name)):
                    return file, known[1]
        return None

    def _months(self, inboxes: Iterable[Inbox[R]], first: str, last: str) -> dict[str, list[Directory[R]]]:
        """Returns the directories that may hold files of these seconds, by month (`202611`); under "" the hot
        directories and archive directories with other names."""
        found: defaultdict[str, list[Directory[R]]] = defaultdict(list)
        for inbox in inboxes:
            for directory in inbox.directories():
                match = None if directory is inbox.hot else _MONTH.fullmatch(directory.path.name)
                month = "".join(match.groups()) if match is not None else ""
                if not month or first[:6] <= month <= last[:6]:
                    found[month].append(directory)
        return found

    def _merged(self, directories: Iterable[Directory[R]]) -> Iterator[InboxFile[R]]:
        return heapq.merge(*map(self._dated, directories), key=attrgetter("second"), reverse=True)

    def _dated(self, directory: Directory[R]) -> Iterator[InboxFile[R]]:
        """Yields a directory's files, newest second first."""
        names = self._names(directory)
        ours = sorted(filter(OUR_NAME.fullmatch, names), reverse=True)
        named = (InboxFile(name[:STAMP_LENGTH], directory, name) for name in ours)
        others = set(names).difference(ours) if len(ours) < len(names) else ()
        parsed = filter(None, [self._placed(directory, name) for name in sorted(others)])
        dated = sorted(parsed, key=attrgetter("second"), reverse=True)
        return heapq.merge(named, dated, key=attrgetter("second"), reverse=True)

    def _placed(self, directory: Directory[R], name: str) -> InboxFile[R] | None:
        if OUR_NAME.fullmatch(name):
            return InboxFile(name[:STAMP_LENGTH], directory, name)
        known = self._head(directory, name)
        return None if known is None else InboxFile(stamp(known[1].created_at), directory, name)

    def _names(self, directory: Directory[R]) -> Sequence[str]:
        """Returns the file names in a directory, cached while it is certainly unchanged."""
        return self._listed.get(settled_times(directory.path), lambda: _listed(directory.path), key=directory.path)

    def _distinct(self, files: Iterable[InboxFile[R]]) -> list[R]:
        """Returns the heads of the files, one per inode: after a crash a file may also be in the archive."""
        known = (self._head(file.directory, file.name) for file in files)
        return list({found[2]: head for found, head in filter(None, known)}.values())

    def _head(self, directory: Directory[R], name: str) -> tuple[Signature, R] | None:
        """Returns the file's signature and head; None if it is gone, no regular file, or unreadable (quarantined)."""
        path = f"{directory.path}/{name}"
        current = _signature_of_file(path)
        if current is None:
            return None
        head: R | None = self._heads.get(current, lambda: _head_of(directory, name), key=path)
        return None if head is None else (current, head)


def position(file: InboxFile[R], head: R) -> Position:
    """Returns a file's position in the order of `MergedInbox.heads`."""
    return file.second, head.created_at, head.id


def _signature_of_file(path: str) -> Signature | None:
    """Returns the signature of a regular file; None if it is gone or something else."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return signature(status) if stat.S_ISREG(status.st_mode) else None


def _listed(path: Path) -> list[str]:
    """Returns the names of mail in a directory. `_head` checks their file types, of few of perhaps a million."""
    with storage_errors(path, FileNotFoundError), suppress(FileNotFoundError):
        return [name for name in os.listdir(path) if name.endswith(".md") and not name.startswith(".")]  # noqa: PTH208
    return []


def _head_of(directory: Directory[R], name: str) -> R | None:
    entity, body = directory.load(name), directory.codec.body
    if entity is None or body is None or len(getattr(entity, body)) <= HEAD_CHARACTERS:
        return entity
    return replace(entity, **{body: getattr(entity, body)[:HEAD_CHARACTERS]})


# When mail went from whom to whom, as the headers say.
#
# An index notes it for the files of an archive's month that somebody asked about, each with the signature that its file
# had. It is never trusted alone: one lstat(2) tells whether the file is still the same, else it is read again. So
# nobody needs a lock, the last one to write wins, and whoever deletes the index loses nothing but time.


class Envelope(NamedTuple):
    """A message without its content: the fields of `Message` by the same names."""

    id: str
    sender_id: str
    receiver_id: str
    message_type: str
    priority: str
    subject: str
    created_at: datetime
    read_at: datetime | None

    @classmethod
    def of(cls, message: Message) -> Envelope:
        return cls(*attrgetter(*cls._fields)(message))


_SENT = attrgetter("created_at", "id")


class MergedMailbox(MergedInbox["Message"]):
    """Mailboxes merged for views."""

    def __init__(self) -> None:
        super().__init__()
        self._noted: dict[str, EnvelopesOfMonth] = {}

    def envelopes(self, files: Iterable[InboxFile[Message]]) -> Iterator[Envelope]:
        """Yields the envelopes of these files, newest first. What was read for that is noted by `note_envelopes`."""
        for _, same_second in groupby(files, key=attrgetter("second")):
            known = (self._envelope(file.directory, file.name) for file in same_second)
            yield from sorted({found[2]: it for found, it in filter(None, known)}.values(), key=_SENT, reverse=True)

    def note_envelopes(self) -> None:
        """Writes the indexes of the months of which files had to be read. Never raises: without an index they are read
        again by the next process."""
        for noted in [*self._noted.values()]:
            if noted.is_out_of_date:
                noted.write(self._names(noted.month))

    def _envelope(self, directory: Directory[Message], name: str) -> tuple[Signature, Envelope] | None:
        if not isinstance(directory, ReadMonth):
            known = self._head(directory, name)
            return known and (known[0], Envelope.of(known[1]))
        path = f"{directory.path}/{name}"
        current = _signature_of_file(path)
        if current is None:
            return None
        noted = self._noted.get(str(directory.path))
        if noted is None:
            noted = self._noted[str(directory.path)] = EnvelopesOfMonth(directory)
        found = noted.envelopes.get(name)
        if found is None or found[0] != current:
            message = directory.load(name)
            if message is None:
                return None
            found = noted.envelopes[name] = current, Envelope.of(message)
            noted.is_out_of_date = True
        return found


class EnvelopesOfMonth:
    """The index of the envelopes of one month: JSON, a row for each file, with its name and signature. `envelopes` are
    those by name."""

    def __init__(self, month: ReadMonth[Message]) -> None:
        self.month = month
        files, place = month.files, month.path.relative_to(month.files.base)
        self._path = files.base / INDEXES / f"{place}.envelopes"
        self.envelopes: dict[str, tuple[Signature, Envelope]] = {}
        self.is_out_of_date = False
        with suppress(StorageError, ValueError, TypeError, RecursionError):
            for name, modified, size, inode, *said, created, read in json.loads(files.read(self._path) or b"[]"):
                read_at = datetime.fromisoformat(read) if read else None
                envelope = Envelope._make((*said, datetime.fromisoformat(created), read_at))
                self.envelopes[name] = (modified, size, inode), envelope

    def write(self, names: Iterable[str]) -> None:
        """Writes the index of the files that are still here, `names`."""
        self.is_out_of_date = False
        self.envelopes = {name: self.envelopes[name] for name in names if name in self.envelopes}
        rows = [
            (name, *found, *it[:-2], format_time(it.created_at), it.read_at and format_time(it.read_at))
            for name, (found, it) in self.envelopes.items()
        ]
        with suppress(StorageError):
            self.month.files.replace(self._path, json.dumps(rows, separators=(",", ":")).encode(), durable=False)
