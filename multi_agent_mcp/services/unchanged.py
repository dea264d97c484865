"""Views that are asked for again and again are computed once while nothing changes (docs/protocol.md, Attention)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.system.file_status import Memory, TreeState, signature_of

if TYPE_CHECKING:
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions


T = TypeVar("T")
GOOD_FOR = timedelta(seconds=30)
"""How long a value may be shown although nothing changed: time itself makes agents stuck and mail late."""
LEFT_OUT = frozenset(
    {
        *(".locks", ".tmp", ".index", ".hooks", ".console", ".listed", ".search", ".usage", ".edits"),
        *("dashboard", "audit", ".supervisor"),
    }
)
"""What changes without any view telling of it; for the supervisor's directory see `WhileUnchanged`."""
GROWING = frozenset({".doorbell", ".share"})


class WhileUnchanged(Service):
    """Values by name, each kept while the session's files and the processes of its agent sessions stay as they were,
    and for `GOOD_FOR` at most. Of the record of looks at panes only what was seen counts: it is written again every few
    seconds with a new time."""

    def __init__(self, session: Session, sessions: Sessions) -> None:
        super().__init__(session)
        self._tree = TreeState(session.workspace.path, left_out=LEFT_OUT, growing=GROWING)
        self._sessions = sessions
        self._memory = Memory()
        self._locks: dict[str, Lock] = {}

    def get(self, name: str, make: Callable[[], T], *, of: Hashable = None, good_for: timedelta = GOOD_FOR) -> T:
        """The value of this name: the one that is kept, or a new one from `make`. It depends on the session's files, on
        running processes, and on `of`. Of several threads at once, one makes it."""
        with self._locks.setdefault(name, Lock()):
            return self._memory.get(self._state(of), make, key=name, clock=self.clock, good_for=good_for)

    def _state(self, of: Hashable) -> Hashable:
        files = self._tree.now()
        if files is None:
            return None
        return files, of, self._supervised(), *(session.id for session in self._sessions.everywhere())

    def _supervised(self) -> Hashable:
        """What the supervisor has noted: the files of its windows, and what it saw in panes."""
        seen = {name: value for name, value in self.workspace.pane_looks.facts().items() if name != "at"}
        looks, windows = self.workspace.pane_looks.path, list[str]()
        with suppress(StorageError):
            windows = [name for name in self.workspace.files.names(looks.parent) if name != looks.name]
        return repr(seen), *((name, signature_of(looks.parent / name)) for name in windows)
