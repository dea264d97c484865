"""Edits by hand that came too late, because another machine had changed the same thing: its version is kept, the edit
is set aside (docs/protocol.md, Several machines)."""

from __future__ import annotations

import os
from pathlib import Path

from multi_agent_mcp.domain.times import format_time, now
from multi_agent_mcp.errors import Reason
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.journal import Journal
from multi_agent_mcp.store.quarantine import Quarantine
from multi_agent_mcp.store.relay_state import SHARE

REASON = Reason("edited_elsewhere")


class Conflicts:
    """They lie in quarantines; `.share/conflicts.jsonl` says where and since when. What raises, raises
    `StorageError`."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._journal = Journal(files, files.base / SHARE / "conflicts.jsonl", durable=True)

    def keep_file(self, path: Path) -> None:
        """Copies an edited file into the quarantine beside it. It stays in place, for readers, until it is replaced."""
        if (data := self.files.read(path)) is not None:
            self._add(Quarantine(self.files, path.parent).keep(path.name, data, REASON))

    def keep(self, name: str, data: bytes) -> None:
        """Puts what was edited in a part of a file into the session's quarantine, under a name like this."""
        self._add(Quarantine(self.files, self.files.base).keep(name, data, REASON))

    def standing(self) -> list[dict[str, str]]:
        """Those that nobody has taken away yet, newest first: `path` in the session's directory, and `at`."""
        known = {str(entry.get("path")): str(entry.get("at")) for entry in self._journal.newest_first()}
        return [{"path": path, "at": at} for path, at in known.items() if os.path.lexists(self.files.base / path)]

    def _add(self, placed: Path) -> None:
        self._journal.append(at=format_time(now()), path=str(placed.relative_to(self.files.base)))
