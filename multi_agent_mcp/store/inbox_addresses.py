"""By what each file of an inbox is addressed: its id, or its path where another file is found by that id."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from multi_agent_mcp.domain.entity import Readable
from multi_agent_mcp.store.archived_names import DIGITS, OUR_NAME
from multi_agent_mcp.store.directory_index import Index

R = TypeVar("R", bound=Readable)


class Addresses(Generic[R]):
    """The files of an inbox as they are at one moment: those in `path` by its index."""

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
        """What `Inbox.find` finds this very file by."""
        if path.parent == self._path and not entity.id.endswith(".md") and self._is_alone(path.name):
            return entity.id  # nearly always: ids that we gave are not in the archive, too
        found = self._find(entity.id)
        return entity.id if found is not None and found[0] == path else self._within(path)

    def _is_alone(self, name: str) -> bool:
        """Whether no other file of the hot directory has a name with these digits, nor one of another form, which may
        bear any id."""
        digits = _digits(name)
        return digits != "" and self._index.named(digits, _digits) == [name] and not self._index.named("", _digits)


def _digits(name: str) -> str:
    """Of an id, where a name is of our form; "" for another one."""
    return name[DIGITS] if OUR_NAME.fullmatch(name) else ""
