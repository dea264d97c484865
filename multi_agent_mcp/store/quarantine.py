"""Unreadable files are moved to the sub-directory `quarantine/`, each with its reason (docs/protocol.md, Files)."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

from multi_agent_mcp.errors import Reason, StorageError
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.files.locks import Mutex
from multi_agent_mcp.system.writing import spelled
from multi_agent_mcp.texts import catalogue

DIRECTORY = "quarantine"
REASON_SUFFIX = ".reason.txt"
ORDER = ("en", "ja")
"""The languages of a reason's lines, in order: a session may change its language. Older versions wrote only English."""
LONGEST_NAME = 200  # in bytes; with number and suffix it stays below the 255 that file systems allow


def reason_in(data: bytes, language: str) -> str:
    """Returns the reason in this language, from the content of the file beside a quarantined one."""
    lines = data.decode(errors="replace").splitlines() or [""]
    number = ORDER.index(language)
    return lines[number] if number < len(lines) else lines[-1]


class Quarantine:
    """The quarantine of one directory. Its files never hide or block others."""

    def __init__(self, files: Files, beside: Path) -> None:
        self.files = files
        self.path = beside / DIRECTORY
        self._mutex = Mutex("quarantine")

    def set_aside(self, path: Path, reason: Reason) -> None:
        """Moves a file here and writes the reason beside it, one line in each language. If several readers do so at
        once, one moves it."""
        name = os.fsencode(path.name)
        if len(name) > LONGEST_NAME:
            name = name[:LONGEST_NAME] + f".{secrets.token_hex(4)}{path.suffix}".encode()
        try:
            (placed,) = self.files.relocate([(path, self.path / os.fsdecode(name))])
        except StorageError:
            if not os.path.lexists(path):
                return  # another reader has set it aside
            # Linux refuses hard links to another user's file (fs.protected_hardlinks), but not to rename it.
            placed = self.path / f"{Path(os.fsdecode(name)).stem}.{secrets.token_hex(4)}{path.suffix}"
            self.files.move(path, placed)
        self._explain(placed, reason)

    def keep(self, name: str, data: bytes, reason: Reason) -> Path:
        """Stores bytes that are about to be overwritten, under this name or one with a digest, with the reason beside
        them. The same bytes are stored once. Returns the path. Raises `StorageError`."""
        other = f"{Path(name).stem}.{hashlib.sha256(data).hexdigest()[:8]}{Path(name).suffix}"
        for placed in (self.path / name, self.path / other):
            try:
                self.files.create(placed, data)
            except FileExistsError:
                if self.files.read(placed) != data:  # else a process stored it and was killed before it continued
                    continue
            break
        self._explain(placed, reason)
        return placed

    def _explain(self, placed: Path, reason: Reason) -> None:
        words = "".join(f"{catalogue(language).reason(reason)}\n" for language in ORDER)
        self.files.replace(placed.with_name(f"{placed.name}{REASON_SUFFIX}"), words.encode())

    def take_news(self) -> int:
        """Returns the number of files set aside, by any process, since the last call. Never raises."""
        told_path = self.path / ".told"
        with self._mutex, suppress(StorageError):
            names = (name for name in self.files.names(self.path) if name.endswith(REASON_SUFFIX))
            reasons = {" ".join(spelled(name).splitlines()) for name in names}
            told = set((self.files.read(told_path) or b"").decode(errors="replace").splitlines())
            if reasons != told:
                self.files.replace(told_path, "\n".join(sorted(reasons)).encode(), durable=False)
            return len(reasons - told)
        return 0
