"""Everything in several inboxes, newest first, for people who look: parsed as far as asked, and only once.

The names carry the second (`20261121_214601_…`), so the order is known from them; files that were put there under names
of their own are parsed first. What was parsed is remembered by the file's signature, with the beginning of its body.
"""

from __future__ import annotations

import heapq
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain, groupby
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Readable
from multi_agent_mcp.domain.times import stamp
from multi_agent_mcp.store.archived_names import OUR_NAME, STAMP_LENGTH, ArchivedNames, file_names
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.inbox import Inbox, age
from multi_agent_mcp.system.file_status import Signature, modified_at, signature

R = TypeVar("R", bound=Readable)

HEAD_CHARACTERS = 300

Position = tuple[str, datetime, str]


class InboxFile(NamedTuple, Generic[R]):
    """A file and the second it belongs to (empty: its name does not say)."""

    second: str
    directory: Directory[R]
    name: str


class MergedInbox(Generic[R]):
    """Looks through inboxes and marks nothing read. A head is an entity with at most `HEAD_CHARACTERS` of its body."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Signature, R]] = {}
        self._listed: dict[str, tuple[int, list[InboxFile[R]]]] = {}

    def everything(self, inboxes: Sequence[Inbox[R]]) -> Iterator[InboxFile[R]]:
        """Every file, newest second first; of the archives only as many months are listed as are asked for. Only files
        with names of their own are parsed."""
        hot = self._dated(file for inbox in inboxes for file in self._listing(inbox.hot))
        months = sorted(self._months(inboxes).items(), reverse=True)
        archived = (self._dated(chain.from_iterable(map(self._listing, found)), month) for month, found in months)
        return heapq.merge(hot, chain.from_iterable(archived), key=attrgetter("second"), reverse=True)

    def count(self, inboxes: Sequence[Inbox[R]], first: str, last: str) -> int:
        """How many files are of a period, given its first and last second; months within it are not listed."""
        within, cut = [], [inbox.hot for inbox in inboxes]
        for month, found in self._months(inboxes).items():
            begin, end = _bounds(month)
            if first <= begin and end <= last:
                within += found
            elif begin <= last and first <= end:
                cut += found
        listed = self._dated(chain.from_iterable(map(self._listing, cut)))
        return sum(month.count() for month in within) + sum(first <= file.second <= last for file in listed)

    def _months(self, inboxes: Iterable[Inbox[R]]) -> dict[str, list[ArchivedNames[R]]]:
        months: defaultdict[str, list[ArchivedNames[R]]] = defaultdict(list)
        for inbox in inboxes:
            for month in inbox.months():
                months[month.path.name].append(month)
        return months

    def unread(self, inboxes: Iterable[Inbox[R]]) -> list[InboxFile[R]]:
        """As `everything`, but only what is not read; the archive holds none of it and is not looked at."""
        return self._dated(_inbox_file(inbox.hot, name) for inbox in inboxes for name, _ in inbox.unread(fresh=True))

    def heads(self, files: Iterable[InboxFile[R]], before: Position | None = None) -> Iterator[R]:
        """The heads of these files, newest first, those below the position `before` if there is one."""
        for second, same_second in groupby(files, key=attrgetter("second")):
            if before is None or second <= before[0]:
                found = self._distinct(same_second)
                found.sort(key=age, reverse=True)
                yield from (head for head in found if before is None or (second, *age(head)) < before)

    def find(self, inboxes: Sequence[Inbox[R]], entity_id: str) -> tuple[InboxFile[R], R] | None:
        """The file with this id and its head; see `Inbox.likely`."""
        for thorough in (False, True):
            for directory, name in chain.from_iterable(box.likely(entity_id, thorough=thorough) for box in inboxes):
                file = _inbox_file(directory, name)
                if (known := self._head(file)) is not None and known[1].id == entity_id:
                    return next(iter(self._dated([file]))), known[1]
        return None

    def _listing(self, directory: Directory[R]) -> list[InboxFile[R]]:
        """The directory's files by name; one that is surely unchanged is not listed again."""
        path, began, mtime = str(directory.path), time.time_ns(), modified_at(directory.path)
        known = self._listed.get(path)
        if known is not None and known[0] == mtime:
            return known[1]
        files = [_inbox_file(directory, name) for name in sorted(file_names(directory.path), reverse=True)]
        if directory.is_unchanged(mtime, began):
            self._listed[path] = mtime, files
        return files

    def _dated(self, files: Iterable[InboxFile[R]], month: str | None = None) -> list[InboxFile[R]]:
        """In order, with the second of those whose names do not tell it; in an archive it is one of the month."""
        dated = []
        for file in files:
            if file.second:
                dated.append(file)
            elif (known := self._head(file)) is not None:
                second = stamp(known[1].created_at)
                if month is not None:
                    begin, end = _bounds(month)
                    second = min(max(second, begin), end)
                dated.append(file._replace(second=second))
        dated.sort(key=attrgetter("second"), reverse=True)
        return dated

    def _distinct(self, files: Iterable[InboxFile[R]]) -> list[R]:
        """A file that a crash has left in the hot directory and in the archive is there twice, by the same inode."""
        known = (self._head(file) for file in files)
        return list({found[2]: head for found, head in filter(None, known)}.values())

    def _head(self, file: InboxFile[R]) -> tuple[Signature, R] | None:
        """None when the file has gone, or could not be read and now lies in quarantine."""
        path = f"{file.directory.path}/{file.name}"
        try:
            status = os.stat(path)  # noqa: PTH116 - a Path for each of 20 000 files takes longer than looking at them
        except OSError:
            return None
        current = signature(status)
        known = self._known.get(path)
        if known is not None and known[0] == current:
            return known
        entity = file.directory.load(file.name)
        if entity is None:
            return None
        body = file.directory.codec.body
        head = replace(entity, **{body: getattr(entity, body)[:HEAD_CHARACTERS]}) if body else entity
        self._known[path] = current, head
        return current, head


def _bounds(month: str) -> tuple[str, str]:
    """The first and the last second that a name in this month's directory may begin with."""
    digits = month.replace("-", "")
    return f"{digits}01_000000", f"{digits}31_235959"


def position(file: InboxFile[R], head: R) -> Position:
    """Where a file stands in the order of `MergedInbox.heads`."""
    return file.second, head.created_at, head.id


def _inbox_file(directory: Directory[R], name: str) -> InboxFile[R]:
    return InboxFile(name[:STAMP_LENGTH] if OUR_NAME.fullmatch(name) else "", directory, name)
