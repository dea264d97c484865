"""The files of one directory as its index keeps them: which they are, and what is read of each, which is no more than
says whether it is done with."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.codec.frontmatter import Unreadable
from multi_agent_mcp.store.directory_index import Entry
from multi_agent_mcp.store.entity_files import EntityFiles
from multi_agent_mcp.store.files.containment import PEEK_BYTES, peek
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.system.file_status import Signature, in_place, signature
from multi_agent_mcp.system.writing import storage_errors

E = TypeVar("E", bound=Entity)

logger = logging.getLogger(__name__)


class IndexedFiles(EntityFiles[E]):
    """The files `*.md` of one directory. Dot-files and other suffixes are not ours.

    `closed` is a pattern (with a group of that name) that, found in a file's header, says the file is done with and
    need not be parsed to be counted out; anything it does not match is parsed. `grouped` likewise (its group is called
    `group`) says what such a file belongs to. `named` tells which file names are ours. Of an entity that was parsed,
    `over` says what closes it, and the index keeps what `indexed` makes of it.
    """

    def __init__(
        self,
        files: Files,
        path: Path,
        entity_type: type[E],
        *,
        closed: re.Pattern[bytes] | None = None,
        grouped: re.Pattern[bytes] | None = None,
        named: Callable[[str], object] | None = None,
        indexed: Callable[[E], E] = lambda entity: entity,
        over: Callable[[E], str] = lambda _: "",
        **options: Any,
    ) -> None:
        super().__init__(files, path, entity_type, **options)
        self._closed = closed
        self._grouped = grouped
        self._named = named
        self._indexed = indexed
        self._over = over
        self.skipped_names: set[str] = set()
        """Files that the disk would not give out just now (EIO)."""

    def names(self) -> list[str]:
        """The names of the files, in no order; nothing else of them is looked at."""
        with storage_errors(self.path, FileNotFoundError), contextlib.suppress(FileNotFoundError):
            found = [name for name in os.listdir(self.path) if name[-3:] == ".md" and name[0] != "."]  # noqa: PTH208
            return found if self._named is None else [*filter(self._named, found)]
        return []

    def each(self) -> Iterator[tuple[str, E]]:
        """Every entity with its file's name, one at a time, in no order; nothing is remembered."""
        return ((name, entity) for item, _ in self.listing() if (entity := self.load(name := item.name)) is not None)

    def open_among(self, names: Iterable[str]) -> Iterator[tuple[str, E, int]]:
        """Those of these files that are open, as the index keeps them, and when each was last changed: the time that
        nobody can set (nanoseconds). Each is looked at, the index is not made."""
        self.require_inside()
        with storage_errors(self.path), in_place(self.path) as place:
            for name in names:
                data, status = peek(name, place)
                entity = None if self._closed_by(data) is not None else self._whole(data, name) or self.load(name)
                if entity is not None and not self._over(entity):
                    yield name, self._indexed(entity), status.st_ctime_ns if status is not None else 0

    def is_closed(self, name: str) -> bool:
        """Whether a file's header closes it at this moment."""
        return self._closed_by(peek(f"{self.path}/{name}")[0]) is not None

    def listing(self) -> Iterator[tuple[os.DirEntry[str], int]]:
        """Our files, and the descriptor of the directory."""
        self.require_inside()
        try:
            with storage_errors(self.path, FileNotFoundError), in_place(self.path) as place, os.scandir(place) as found:
                for item in found:
                    if self.is_ours(item.name) and item.is_file(follow_symlinks=False):
                        yield item, place
        except FileNotFoundError:
            return  # the directory is made by the first file put into it

    def is_ours(self, name: str) -> bool:
        if not name.endswith(".md") or name.startswith("."):
            return False
        return self._named is None or bool(self._named(name))

    def entry(self, name: str, place: int | None = None) -> Entry[E] | None:
        """None for what is no file (any more)."""
        data, status = peek(name if place is not None else f"{self.path}/{name}", place)
        with contextlib.suppress(FileNotFoundError):
            status = status or os.lstat(self.path / name)
        if status is None or not stat.S_ISREG(status.st_mode):
            return None
        found = signature(status)
        if (closed := self._closed_by(data)) is not None:
            return Entry(found, None, *closed)
        if len(data) == status.st_size:  # all of it
            with contextlib.suppress(Unreadable):
                return self._entry_of(found, self.decode(data, name[:-3], status.st_mtime))
        return self._loaded(name, found)

    def _whole(self, data: bytes, name: str) -> E | None:
        """The entity of a file that begins so and surely is no longer, if nothing of it depends on when it was made."""
        if not data or len(data) % PEEK_BYTES == 0 or b"\ncreated_at: '2" not in data:
            return None
        with contextlib.suppress(Unreadable):
            return self.decode(data, name[:-3], 0)
        return None

    def _loaded(self, name: str, found: Signature) -> Entry[E] | None:
        try:
            entity = self.load(name)
        except StorageError as error:
            if not _is_bad_sector(error):
                raise
            # It must not hide the others, and may be readable again: it stays where it is and is tried at every look.
            logger.warning("%s is passed over: %s", self.path / name, error)
            self.skipped_names.add(name)
            return None
        if entity is None:
            return Entry(found, None, "") if (self.path / name).exists() else None
        return self._entry_of(found, entity)

    def _entry_of(self, found: Signature, entity: E) -> Entry[E]:
        closed = self._over(entity)
        return Entry(found, None if closed else self._indexed(entity), closed)

    def _closed_by(self, data: bytes) -> tuple[str, str] | None:
        """What closed a file that begins so, and what it belongs to; None for one that is open as far as its header
        tells."""
        if self._closed is None or (end := data.find(b"\n---")) < 0:
            return None
        found = self._closed.search(data, 0, end + 1)
        if found is None:
            return None
        group = self._grouped.search(data, 0, end + 1) if self._grouped is not None else None
        return found["closed"].decode(errors="replace"), group["group"].decode(errors="replace") if group else ""


def _is_bad_sector(error: StorageError) -> bool:
    """Whether the disk failed for this one file; what fails for any (no descriptors, no memory) is no reason to count
    it out."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO
