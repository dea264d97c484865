"""Everything in several inboxes, newest first, for people who look: parsed as far as asked, and only once.

The names carry the second (`20261121_214601_…`), so the order is known from them; files that were put there under names
of their own are parsed first. What was parsed is remembered by the file's signature, with the beginning of its body.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.times import stamp
from multi_agent_mcp.store.addresses import OUR_NAME, STAMP_LENGTH, file_names, fitting
from multi_agent_mcp.store.directory import RACY_NS, Directory, Signature
from multi_agent_mcp.store.inbox import Inbox, age

R = TypeVar("R", bound=Any)  # an Entity that is Readable; Python has no intersection types

HEAD_CHARACTERS = 300

Position = tuple[str, datetime, str]


class InboxFile(NamedTuple, Generic[R]):
    """A file and the second it belongs to (empty: its name does not say)."""

    second: str
    folder: Directory[R]
    name: str


class MergedInbox(Generic[R]):
    """Looks through inboxes and marks nothing read. A head is an entity with at most `HEAD_CHARACTERS` of its body."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Signature, R]] = {}
        self._listed: dict[str, tuple[int, list[InboxFile[R]]]] = {}

    def everything(self, inboxes: Iterable[Inbox[R]]) -> list[InboxFile[R]]:
        """Every file, newest second first. Only those with names of their own are parsed."""
        folders = (folder for inbox in inboxes for folder in inbox.folders())
        return self._dated(letter for folder in folders for letter in self._listing(folder))

    def unread(self, inboxes: Iterable[Inbox[R]]) -> list[InboxFile[R]]:
        """As `everything`, but only what is not read; the archive holds none of it and is not looked at."""
        return self._dated(_letter(inbox.hot, name) for inbox in inboxes for name, _ in inbox.unread(fresh=True))

    def heads(self, letters: Iterable[InboxFile[R]], before: Position | None = None) -> Iterator[R]:
        """The heads of these letters, newest first, those below the position `before` if there is one."""
        for second, same_second in groupby(letters, key=attrgetter("second")):
            if before is None or second <= before[0]:
                found = self._distinct(same_second)
                found.sort(key=age, reverse=True)
                yield from (head for head in found if before is None or (second, *age(head)) < before)

    def find(self, inboxes: Sequence[Inbox[R]], entity_id: str) -> tuple[InboxFile[R], R] | None:
        """The letter with this id and its head: by its name if we named it, else among the heads of all that may be
        it. What lies in an archive under a name of our form was named by its id when it was moved there; in the hot
        directory it may be somebody's copy of another file."""
        letters = self.everything(inboxes)
        ours = set(fitting((letter.name for letter in letters), entity_id))
        hot = {inbox.hot.path for inbox in inboxes}
        likely = (letter for letter in letters if letter.name in ours)
        others = (letter for letter in letters if letter.folder.path in hot or not OUR_NAME.fullmatch(letter.name))
        for letter in chain(likely, others):
            known = self._head(letter)
            if known is not None and known[1].id == entity_id:
                return letter, known[1]
        return None

    def _listing(self, folder: Directory[R]) -> list[InboxFile[R]]:
        """The directory's files by name; a directory that is surely unchanged is not listed again (see `Folder`)."""
        path, began, mtime = str(folder.path), time.time_ns(), folder.mtime()
        known = self._listed.get(path)
        if known is not None and known[0] == mtime:
            return known[1]
        letters = [_letter(folder, name) for name in sorted(file_names(folder.path), reverse=True)]
        if began - mtime > RACY_NS and folder.mtime() == mtime:
            self._listed[path] = mtime, letters
        return letters

    def _dated(self, letters: Iterable[InboxFile[R]]) -> list[InboxFile[R]]:
        """In order, with the second of those whose names do not tell it."""
        dated = []
        for letter in letters:
            if letter.second:
                dated.append(letter)
            elif (known := self._head(letter)) is not None:
                dated.append(letter._replace(second=stamp(known[1].created_at)))
        dated.sort(key=attrgetter("second"), reverse=True)
        return dated

    def _distinct(self, letters: Iterable[InboxFile[R]]) -> list[R]:
        """A file that a crash has left in the hot directory and in the archive is there twice, by the same inode."""
        known = (self._head(letter) for letter in letters)
        return list({signature[2]: head for signature, head in filter(None, known)}.values())

    def _head(self, letter: InboxFile[R]) -> tuple[Signature, R] | None:
        """None when the file has gone, or could not be read and now lies in quarantine."""
        path = f"{letter.folder.path}/{letter.name}"
        try:
            status = os.stat(path)  # noqa: PTH116 - a Path for each of 20 000 files takes longer than looking at them
        except OSError:
            return None
        signature = status.st_mtime_ns, status.st_size, status.st_ino
        known = self._known.get(path)
        if known is not None and known[0] == signature:
            return known
        entity = letter.folder.load(letter.name)
        if entity is None:
            return None
        body = letter.folder.codec.body
        head = replace(entity, **{body: getattr(entity, body)[:HEAD_CHARACTERS]}) if body else entity
        self._known[path] = signature, head
        return signature, head


def position(letter: InboxFile[R], head: R) -> Position:
    """Where a letter stands in the order of `MergedInbox.heads`."""
    return letter.second, head.created_at, head.id


def _letter(folder: Directory[R], name: str) -> InboxFile[R]:
    return InboxFile(name[:STAMP_LENGTH] if OUR_NAME.fullmatch(name) else "", folder, name)
