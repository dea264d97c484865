"""What names each file of an inbox: its id, or its path where another file is found by that id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from multi_agent_mcp.domain.entity import Readable
from multi_agent_mcp.store.archived_names import DIGITS, OUR_NAME, file_names

R = TypeVar("R", bound=Readable)


class Addresses(Generic[R]):
    """The files of an inbox as they are at one moment."""

    def __init__(self, path: Path, find: Callable[[str], tuple[Path, R] | None], within: Callable[[Path], str]) -> None:
        self._path = path
        self._find = find
        self._within = within

    def of(self, path: Path, entity: R) -> str:
        """What `Inbox.find` finds this very file by."""
        name, entity_id = path.name, entity.id
        ours = path.parent == self._path and OUR_NAME.fullmatch(name)
        if ours and not entity_id.endswith(".md") and self._digits and self._digits[name[DIGITS]] == 1:
            return entity_id  # nearly always: ids that we gave are not in the archive, too
        found = self._find(entity_id)
        return entity_id if found is not None and found[0] == path else self._within(path)

    @cached_property
    def _digits(self) -> Counter[str]:
        """How many files of the hot directory have a name with these digits; empty if one has another kind of name,
        and may bear any id."""
        names = file_names(self._path)
        return Counter(name[DIGITS] for name in names) if all(map(OUR_NAME.fullmatch, names)) else Counter()
