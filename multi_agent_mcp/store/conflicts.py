"""Edits by hand that conflict with an earlier change by another machine: its version is kept, the edit is set aside
(docs/protocol.md, Several machines)."""

from __future__ import annotations

import os
from pathlib import Path

from multi_agent_mcp.domain.times import format_time, now
from multi_agent_mcp.errors import Reason
from multi_agent_mcp.store.entity_files import Quarantine
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.journal import Journal
from multi_agent_mcp.store.records import SHARE

REASON = Reason("edited_elsewhere")


class Conflicts:
    """The conflicting edits of a session: copies in quarantines, and a log of their paths and times,
    `.share/conflicts.jsonl`. All methods may raise `StorageError`."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._journal = Journal(files, files.base / SHARE / "conflicts.jsonl", durable=True)

    def keep_file(self, path: Path) -> None:
        """Copies an edited file into the quarantine beside it. The file itself stays until it is replaced."""
        if (data := self.files.read(path)) is not None:
            self._add(Quarantine(self.files, path.parent).keep(path.name, data, REASON))

    def keep(self, name: str, data: bytes) -> None:
        """Stores an edited part of a file in the session's quarantine, under this name or a similar one."""
        self._add(Quarantine(self.files, self.files.base).keep(name, data, REASON))

    def standing(self) -> list[dict[str, str]]:
        """Returns the conflicts whose copy still exists, newest first: `path` in the session's directory, and `at`."""
        known = {str(entry.get("path")): str(entry.get("at")) for entry in self._journal.newest_first()}
        return [{"path": path, "at": at} for path, at in known.items() if os.path.lexists(self.files.base / path)]

    def _add(self, placed: Path) -> None:
        self._journal.append(at=format_time(now()), path=str(placed.relative_to(self.files.base)))
