"""The index of a directory's files at one moment. It is immutable: an update makes a new one, so that code that
iterates over the old one is not disturbed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.system.file_status import Signature

E = TypeVar("E")
Order = Callable[[E], Any]
"""A sort key of open entities; equal ones are sorted by file name."""


class Entry(NamedTuple, Generic[E]):
    """The index entry of a file. `closed` is its label: what closed it (`done`, the time it was read at), "" while it
    is open. `entity` is None for a closed file (read mail, a finished task) and for one that is still being written.
    `group` is what a closed file belongs to (the task of an execution), or ""."""

    signature: Signature
    entity: E | None
    closed: str
    group: str = ""


class Index(Generic[E]):
    """The entries of a directory: `open` has names and entities of the open files, sorted; the counts are of the closed
    files by label, and by group and label."""

    def __init__(self, entries: dict[str, Entry[E]] | None = None, order: Order[E] = lambda _: None) -> None:
        self.entries = entries or {}
        self._order = order
        found = self.entries.values()
        self.open = [(name, entry.entity) for name, entry in self.entries.items() if entry.entity and not entry.closed]
        self.open.sort(key=self._position)
        self.closed_counts = Counter(entry.closed for entry in found if entry.closed)
        self.group_counts = Counter((entry.group, entry.closed) for entry in found if entry.group)
        self._named: tuple[list[str], Callable[[str], str]] | None = None

    def named(self, key: str, key_of: Callable[[str], str]) -> list[str]:
        """Returns the names with this key. They are sorted on the first call, and kept sorted in later indexes."""
        names, _ = self._named = self._named or (sorted(self.entries, key=key_of), key_of)
        return names[bisect_left(names, key, key=key_of) : bisect_right(names, key, key=key_of)]

    def changed(self, looked_at: Mapping[str, Entry[E] | None]) -> Index[E]:
        """Returns a new index with these entries replaced, or removed if None; others cost next to nothing."""
        new = copy(self)
        new.entries, new.open = self.entries.copy(), self.open.copy()
        new.closed_counts, new.group_counts = self.closed_counts.copy(), self.group_counts.copy()
        new._named = self._named and (self._named[0].copy(), self._named[1])
        for name, entry in looked_at.items():
            if (before := new.entries.pop(name, None)) is not None:
                new._count(name, before, -1)
            if entry is not None:
                new.entries[name] = entry
                new._count(name, entry, 1)
        return new

    def _count(self, name: str, entry: Entry[E], by: int) -> None:
        if self._named is not None:
            _place(self._named[0], name, by, self._named[1])
        if entry.entity and not entry.closed:
            _place(self.open, (name, entry.entity), by, self._position)
        if entry.closed:
            _add(self.closed_counts, entry.closed, by)
        if entry.group:
            _add(self.group_counts, (entry.group, entry.closed), by)

    def _position(self, item: tuple[str, E]) -> Any:
        return self._order(item[1]), item[0]


def _place(items: list[Any], item: Any, by: int, key: Callable[[Any], Any]) -> None:
    """Inserts an item into a sorted list (`by` > 0) or removes it; keys may be equal, items are not."""
    if by > 0:
        insort(items, item, key=key)
    else:
        del items[items.index(item, bisect_left(items, key(item), key=key))]


def _add(counts: Counter[Any], key: Any, by: int) -> None:
    counts[key] += by
    if not counts[key]:
        del counts[key]
