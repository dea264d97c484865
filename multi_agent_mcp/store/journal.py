"""An append-only file of JSON lines: the delivery log, the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.json_lines import newest_first
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.system.writing import storage_errors

ROTATE_BYTES = 1 << 20
_LINES = json.JSONEncoder(ensure_ascii=False)


class Journal:
    """An append-only file of JSON lines; invalid lines are skipped. With `rotates` (for derived data) the file is
    renamed to `….1` past `ROTATE_BYTES`. With `durable` its lines survive a power cut."""

    def __init__(self, files: Files, path: Path, *, rotates: bool = False, durable: bool = False) -> None:
        self.files = files
        self.path = path
        self.rotates = rotates
        self.durable = durable
        self._older = path.with_name(f"{path.name}.1")

    def append(self, **facts: Any) -> None:
        """Appends a line. Raises `StorageError`."""
        # a lone surrogate, as from an argument that is not UTF-8, becomes JSON's escape for it
        line = _LINES.encode(facts).encode(errors="backslashreplace")
        end = self.files.append(self.path, line, sync=self.durable)
        if self.rotates and end > ROTATE_BYTES:
            self._rotate()

    def _rotate(self) -> None:
        """Renames the file if it is still full: another process may just have renamed it and begun a new one."""
        with self.files.locks.held(f"journal-{self.path.stem}"), storage_errors(self.path):
            if self.path.exists() and self.path.stat().st_size > ROTATE_BYTES:
                self.files.move(self.path, self._older)

    def newest_first(self, *needles: bytes, without: bytes | None = None) -> Iterator[dict[str, Any]]:
        """Yields the entries, newest first. Lines that contain `without`, or none of the `needles` if any are given,
        are left out and not parsed."""
        for path in (self.path, self._older):
            yield from newest_first(self.files.read(path) or b"", *needles, without=without)
