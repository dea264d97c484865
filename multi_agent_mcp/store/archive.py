"""The archive of a directory, `archive/{YYYY-MM}/`: what is over moves there (docs/format.md, Where things are).

What is in a month is noted in a file in `.index/`, so that no process has to examine every archived file. Whoever moves
a file into a month adds its line there, under the archive's lock. The note is derived data, and trusted only while the
month's directory has the modification time that the last line says: after a person's change, or one without a line, the
next reader makes it again. A person's change within the same tick of the kernel's clock as one of ours is seen with the
next change."""

from __future__ import annotations

import heapq
import json
import mmap
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Entity, id8
from multi_agent_mcp.domain.times import month_of
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.directory import ARCHIVE, Directory
from multi_agent_mcp.store.durable_files import INDEXES, Files
from multi_agent_mcp.system.file_status import Memory, careful, is_own_directory, is_settled, modified_at, settled_times
from multi_agent_mcp.system.files import storage_errors

E = TypeVar("E", bound=Entity)


class Month(Directory[E]):
    """One month of an archive, with its index. A subclass says what the index's lines hold. `lock` is the name of the
    archive's lock."""

    SUFFIX = ""

    def __init__(self, files: Files, path: Path, entity_type: type[E], *, lock: str, **options: Any) -> None:
        super().__init__(files, path, entity_type, **options)
        self._lock = lock
        self._index_path = files.base / INDEXES / f"{path.relative_to(files.base)}{self.SUFFIX}"

    def _noted_at(self) -> int:
        """Returns the modification time for which the index is good; -1 if there is none."""
        raise NotImplementedError

    def _is_current(self) -> bool:
        return self._noted_at() == modified_at(self.path)

    @contextmanager
    def _opened(self) -> Iterator[mmap.mmap]:
        """Yields the bytes of the index, made again if it is out of date. Raises OSError or ValueError if there is
        none that can be trusted, as on a disk that is read-only."""
        if not self._is_current():
            self._rebuild()
        with self._mapped() as data:
            yield data

    @contextmanager
    def _mapped(self) -> Iterator[mmap.mmap]:
        """Yields the bytes of the index as it is. Raises OSError, or ValueError for an empty file."""
        descriptor = careful(str(self._index_path), os.O_RDONLY)
        try:
            with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
                yield data
        finally:
            os.close(descriptor)

    def _rebuild(self) -> None:
        """Makes the index. Raises ValueError if it cannot be written or trusted."""
        try:
            with self.files.locks.held(self._lock):
                if self._is_current():
                    return  # the one that had moved a file has just added its line
                mtime, began = modified_at(self.path), time.time_ns()
                data = self._content(mtime)
                if data is None or not is_settled(mtime, began) or modified_at(self.path) != mtime:
                    raise ValueError(self.path)
                self.files.replace(self._index_path, data, durable=False)
        except StorageError as error:
            raise ValueError(self.path) from error

    def _content(self, mtime: int) -> bytes | None:
        """Returns the index of the directory as it is; None if it cannot be represented."""
        raise NotImplementedError

    # A line is added after the file has moved, and says the modification time that the directory has then. If the
    # process is killed between the two, or a person moves a file, the time in the last line is not the directory's,
    # and the next reader makes the index again from the files: it is never wrong, at worst absent. That is why no line
    # is fsynced, and why only whoever found the index good before the move may add one (`noting`): a line behind a
    # stale index would bless it. Both happen under the archive's lock, so no other move of ours comes between them.
    def _append(self, lines: Iterable[str]) -> None:
        """Adds lines for files that were just moved here. Never raises: without them the index is made again."""
        with suppress(StorageError, UnicodeEncodeError):
            self.files.append(self._index_path, "".join(f"{line}\n" for line in lines))


class ArchiveRow(NamedTuple):
    """A finished entity: the name of its file, what it ended as (`done`), what it belongs to (the task of an
    execution) or "", and when it came here, in nanoseconds since the epoch."""

    name: str
    label: str
    group: str
    at: int


class FinishedMonth(Month[E]):
    """One month of finished entities. Each line of the index is JSON, in the order in which they came: the fields of
    the row, the directory's modification time after the move (-1 if more came with it), and how many there were then,
    by label. So counting reads the last line, and a page of the newest reads as many lines as it shows."""

    SUFFIX = ".jsonl"

    def __init__(self, *args: Any, rated: Callable[[E], tuple[str, str]], **options: Any) -> None:
        """`rated` returns the label and the group of an entity."""
        super().__init__(*args, **options)
        self._rated = rated
        self._groups: tuple[int, Counter[tuple[str, str]]] = -1, Counter()

    def newest_first(self, label: str | None = None, group: str | None = None) -> Iterator[ArchiveRow]:
        """Yields the rows (with this label, of this group), the one that came last first."""
        return (row for row in self._rows() if label in (None, row.label) and group in (None, row.group))

    def counts(self) -> Counter[str]:
        """Returns the number of entities by label."""
        with suppress(OSError, ValueError), self._opened():
            if (last := self._last()) is not None:
                return Counter(last[5])
        return Counter(row.label for row in self._listed())

    def group_counts(self) -> Counter[tuple[str, str]]:
        """Returns the number of entities by group and label."""
        mtime = modified_at(self.path)
        if self._groups[0] != mtime:
            self._groups = mtime, Counter((row.group, row.label) for row in self._rows() if row.group)
        return self._groups[1]

    @contextmanager
    def noting(self, moved: Sequence[tuple[str, E, int]]) -> Iterator[None]:
        """Notes entities whose files are moved here within the context: the names, and their modification times. The
        caller holds the archive's lock."""
        last = self._last()
        if last is not None:
            is_good = last[4] == modified_at(self.path)
        else:
            is_good = not self._index_path.exists() and not is_own_directory(self.path)
        yield
        if is_good:
            rows, came = [], last[3] if last else 0
            for name, entity, at in moved:
                came = max(at, came)
                rows.append(ArchiveRow(name, *self._rated(entity), came))
            self._append(_lines(rows, modified_at(self.path), Counter(last[5] if last else {})))

    def _noted_at(self) -> int:
        last = self._last()
        return last[4] if last else -1

    def _last(self) -> list[Any] | None:
        """Returns the last line's values; None if there is none."""
        with suppress(OSError, ValueError), self._mapped() as data:
            found = json.loads(data[_last_line(data, len(data)) :]) if data[-1:] == b"\n" else None
            if isinstance(found, list) and [*map(type, found)] == [str, str, str, int, int, dict]:
                return found
        return None

    def _rows(self) -> Iterator[ArchiveRow]:
        try:
            with self._opened() as data:
                end = len(data)
                while end > 0:
                    begin = _last_line(data, end)
                    row = ArchiveRow(*json.loads(data[begin:end])[:4])
                    if self.is_ours(row.name):
                        yield row
                    end = begin
        except (OSError, ValueError, TypeError):
            yield from reversed(self._listed())

    def _content(self, mtime: int) -> bytes | None:
        lines = [f"{line}\n" for line in _lines(self._listed(), mtime, Counter())]
        return "".join(lines).encode() if lines else None

    def _listed(self) -> list[ArchiveRow]:
        """Returns the rows of the files that are here, the one that came first first. Those that the old index knows
        and that have not changed since are not read again."""
        known = self._known()
        rows = []
        for name, status, place in self._listing():
            row = known.get(name)
            if row is None or row.at != status.st_mtime_ns:
                entity = self.load(name, place)
                if entity is None:
                    continue
                row = ArchiveRow(name, *self._rated(entity), status.st_mtime_ns)
            rows.append(row)
        return sorted(rows, key=lambda row: (row.at, row.name))

    def _known(self) -> dict[str, ArchiveRow]:
        with suppress(StorageError, ValueError, TypeError):
            lines = (self.files.read(self._index_path) or b"").splitlines()
            return {row.name: row for row in (ArchiveRow(*json.loads(line)[:4]) for line in lines)}
        return {}


def _lines(rows: Sequence[ArchiveRow], mtime: int, counts: Counter[str]) -> Iterator[str]:
    """Yields the lines of rows that came together, after those of `counts`. Only the last one says that all of them are
    there: a killed process may have written some."""
    for number, row in enumerate(rows, 1):
        counts[row.label] += 1
        yield json.dumps([*row, mtime if number == len(rows) else -1, counts], separators=(",", ":"))


def _last_line(data: mmap.mmap, end: int) -> int:
    """Returns where the last line that ends at `end` begins."""
    return data.rfind(b"\n", 0, end - 1) + 1


# The file names in one month of an inbox's archive, found by the first eight digits of an id, which they contain.

_OURS = r"[0-9]{8}_[0-9]{6}_[0-9a-f]{8}(?:\.[0-9]+)?\.md"
OUR_NAME = re.compile(_OURS)
_OUR_NAMES = re.compile(rf"(?:{_OURS}/)*+(?:{_OURS})?")
STAMP_LENGTH = 15
DIGITS = slice(STAMP_LENGTH + 1, STAMP_LENGTH + 9)
STRANGERS = "~"
"""The key of names that are not of our form; it sorts after all digits and letters."""
_ARCHIVED_NAME = re.compile(r"\d{8}_\d{6}_(?P<key>[A-Za-z0-9]{1,8})(\.\d+)?\.md")
"""The name of an archived file, with the beginning of its id, be it one of ours or one written by a person."""
ADDED_MAX = 1_000
"""How many added lines an index may have, which are searched one by one, before it is sorted again; or a tenth of the
sorted ones."""
LINE_BYTES = 60


class ReadMonth(Month[E]):
    """One month of an inbox's archive. A name of our form is taken to contain its file's id, without reading it.

    The first line of the index says the directory's modification time, the number of sorted names and the length of
    the first list. Two lists follow, of the same names: sorted by the digits of their id, and by name; so a search is
    binary, and reads a few lines of however many there are. Then come the names that were added since, each with the
    modification time after its move."""

    SUFFIX = ".names"

    def named_for(self, entity_id: str, *, strangers: bool = False) -> list[str]:
        """Returns the names that we would give a file with this id; with `strangers`, also all names that are not of
        our form."""
        return self._keyed(id8(entity_id), *([STRANGERS] if strangers else []))

    def _keyed(self, *keys: str) -> list[str]:
        try:
            with self._opened() as data:
                head = _Head.of(data)
                found = [name for key in keys for name in _search(data, head, key.encode())]
                found += [name for name in _added(data, head) if _key(name) in keys]
                return [name for name in found if "/" not in name]
        except (OSError, ValueError):
            return sorted(name for name in self.names() if _key(name) in keys)

    def newest_first(self, last: str | None = None) -> Iterator[str]:
        """Yields the names that begin with their second (`YYYYMMDD_HHMMSS`) in descending order, without those of a
        later second than `last`; for the others see `strangers`."""
        try:
            with self._opened() as data:
                head = _Head.of(data)
                added = [name for name in _added(data, head) if last is None or name[:STAMP_LENGTH] <= last]
                names = heapq.merge(_backwards(data, head, last), sorted(added, reverse=True), reverse=True)
                yield from (name for name in names if _key(name) != STRANGERS)
        except (OSError, ValueError):
            listed = (name for name in self.names() if last is None or name[:STAMP_LENGTH] <= last)
            yield from sorted((name for name in listed if _key(name) != STRANGERS), reverse=True)

    def strangers(self) -> list[str]:
        """Returns the names, given by people, that say neither a time nor an id."""
        return self._keyed(STRANGERS)

    def count(self) -> int:
        """Returns the number of files."""
        with suppress(OSError, ValueError), self._opened() as data:
            head = _Head.of(data)
            return head.files + len(_added(data, head))
        return len(self.names())

    @contextmanager
    def noting(self, names: Sequence[str]) -> Iterator[None]:
        """Notes files that are moved here within the context. The caller holds the archive's lock."""
        is_good = self._may_grow()
        yield
        if is_good:
            self._add(names)

    def _add(self, names: Sequence[str]) -> None:
        mtime = modified_at(self.path)
        if not self._index_path.exists():
            with suppress(StorageError):
                self.files.replace(self._index_path, _Head.line(0, 0, 0, 0), durable=False)
        # Only the last line says that all of them are there: a killed process may have written some.
        self._append(f"{mtime if name is names[-1] else -1} {name}" for name in names)

    def _may_grow(self) -> bool:
        """Returns whether the index is good; not if it is time to sort it again."""
        if not self._index_path.exists():
            return not is_own_directory(self.path)
        with suppress(OSError, ValueError), self._mapped() as data:
            head = _Head.of(data)
            is_short = len(data) - head.added < max(ADDED_MAX, head.files // 10) * LINE_BYTES
            return is_short and _noted_at(data, head) == modified_at(self.path)
        return False

    def _noted_at(self) -> int:
        with suppress(OSError, ValueError), self._mapped() as data:
            return _noted_at(data, _Head.of(data))
        return -1

    def _content(self, mtime: int) -> bytes | None:
        names = file_names(self.path)
        lines = sorted(f"{_key(name)} {name}\n" for name in names)
        if any(line.count("\n") > 1 for line in lines):
            return None
        try:
            keyed, named = "".join(lines).encode(), "".join(f"{name}\n" for name in sorted(names)).encode()
            return _Head.line(mtime, len(names), len(keyed), len(named)) + keyed + named
        except UnicodeEncodeError:
            return None


class _Head(NamedTuple):
    """The directory's modification time, the number of sorted names, and the offsets where the list by digits, that by
    name and the added names begin."""

    mtime: int
    files: int
    by_digits: int
    by_name: int
    added: int

    @classmethod
    def of(cls, data: mmap.mmap) -> _Head:
        """Raises ValueError."""
        data.seek(0)
        mtime, count, keyed, named = map(int, data.readline().split())
        begin = data.tell()
        return cls(mtime, count, begin, begin + keyed, begin + keyed + named)

    @staticmethod
    def line(mtime: int, count: int, keyed: int, named: int) -> bytes:
        return f"{mtime} {count} {keyed} {named}\n".encode()


def _added(data: mmap.mmap, head: _Head) -> list[str]:
    """Returns the names that were added since the index was sorted."""
    lines = data[head.added :].decode(errors="replace").splitlines()
    return [line.partition(" ")[2] for line in lines]


def _noted_at(data: mmap.mmap, head: _Head) -> int:
    """Returns the modification time for which the index is good. Raises ValueError for one that was cut off."""
    if len(data) == head.added:
        return head.mtime
    if data[-1:] != b"\n":
        raise ValueError(head)
    begin = max(data.rfind(b"\n", head.added, len(data) - 1) + 1, head.added)
    return int(data[begin:].split(b" ", 1)[0])


def _key(name: str) -> str:
    found = _ARCHIVED_NAME.fullmatch(name)
    return STRANGERS if found is None else found["key"]


def _search(data: mmap.mmap, head: _Head, key: bytes) -> Iterator[str]:
    """Yields the names of the lines `{key} {name}` with this key."""
    data.seek(_first(data, head.by_digits, head.by_name, lambda line: data[line : line + len(key)] >= key))
    while data.tell() < head.by_name and (found := data.readline()).startswith(key + b" "):
        yield found[len(key) + 1 : -1].decode()


def _backwards(data: mmap.mmap, head: _Head, last: str | None) -> Iterator[str]:
    """Yields the lines of the list by name, last first, without those of a later second than `last`."""
    begin, end = head.by_name, head.added
    if last is not None:
        latest = last.encode()
        end = _first(data, begin, end, lambda line: data[line : line + STAMP_LENGTH] > latest)
    while end > begin:
        line = data.rfind(b"\n", begin - 1, end - 1) + 1
        yield data[line : end - 1].decode(errors="replace")  # a damaged line names no existing file
        end = line


def _first(data: mmap.mmap, begin: int, end: int, holds: Callable[[int], bool]) -> int:
    """Returns the offset of the first line for which `holds` is true, by bisection; it is true for all lines after."""
    low, high = begin, end
    while low < high:
        line = data.rfind(b"\n", begin - 1, (low + high) // 2) + 1
        if holds(line):
            high = line
        else:
            low = data.find(b"\n", line) + 1
    return low


def file_names(path: Path) -> list[str]:
    """Returns the names of the regular files `*.md` in a directory, without dot-files; [] if it does not exist."""
    try:
        with storage_errors(path, FileNotFoundError), os.scandir(path) as found:
            return [
                item.name
                for item in found
                if item.name.endswith(".md") and not item.name.startswith(".") and item.is_file(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []


def are_ours(names: Iterable[str]) -> bool:
    """Returns whether all names are of our form; four times as fast as matching each."""
    return _OUR_NAMES.fullmatch("/".join(names)) is not None


def fitting(names: Iterable[str], entity_id: str) -> list[str]:
    """Returns those names that we would give a file with this id: `…_{id8}.md`, or `…_{id8}.1.md` if it was taken."""
    digits = f"_{id8(entity_id)}."
    return [name for name in names if name.startswith(digits, STAMP_LENGTH)]


M = TypeVar("M", bound=Month[Any])


class Archive(Generic[M]):
    """The archive of one directory, by month. `made` makes the month of a path; `lock` is the name of its lock."""

    def __init__(self, path: Path, lock: str, made: Callable[[Path], M]) -> None:
        self.path = path / ARCHIVE
        self.lock = lock
        self._made = made
        self._listed = Memory()
        self._months: dict[str, M] = {}

    def months(self) -> list[M]:
        """Returns the months, newest first."""
        return self._listed.get(settled_times(self.path), lambda: [self._month(name) for name in self._names()])

    def month(self, moment: datetime) -> M:
        """Returns the month for what belongs to this moment, also before it has a directory."""
        return self._month(month_of(moment))

    def _month(self, name: str) -> M:
        if name not in self._months:
            self._months[name] = self._made(self.path / name)
        return self._months[name]

    def _names(self) -> list[str]:
        if not is_own_directory(self.path):
            return []
        with storage_errors(self.path):
            return sorted((item.name for item in self.path.iterdir() if is_own_directory(item)), reverse=True)
