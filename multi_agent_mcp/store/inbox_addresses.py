"""The addresses of an inbox's files: a file's id, or its path if the id finds another file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from multi_agent_mcp.domain.entity import Readable
from multi_agent_mcp.store.archived_names import DIGITS, OUR_NAME
from multi_agent_mcp.store.directory_index import Index

R = TypeVar("R", bound=Readable)


class Addresses(Generic[R]):
    """The addresses at one moment. `index` is that of the hot directory `path`; `find` finds a file by its id, and
    `within` makes a path relative to the inbox."""

    def __init__(
        self,
        path: Path,
        index: Index[R],
        find: Callable[[str], tuple[Path, R] | None],
        within: Callable[[Path], str],
    ) -> None:
        self._path = path
        self._index = index
        self._find = find
        self._within = within

    def of(self, path: Path, entity: R) -> str:
        """Returns the address by which `Inbox.find` finds this file."""
        if path.parent == self._path and not entity.id.endswith(".md") and self._is_alone(path.name):
            return entity.id  # the usual case: an id given by us is not also in the archive
        found = self._find(entity.id)
        return entity.id if found is not None and found[0] == path else self._within(path)

    def _is_alone(self, name: str) -> bool:
        """Returns whether no other file in the hot directory has a name with the same digits or one that is not of our
        form and could have any id."""
        digits = _digits(name)
        return digits != "" and self._index.named(digits, _digits) == [name] and not self._index.named("", _digits)


def _digits(name: str) -> str:
    """Returns the digits of the id in a name of our form, else ""."""
    return name[DIGITS] if OUR_NAME.fullmatch(name) else ""
