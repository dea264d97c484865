"""A file of JSON lines that is only appended to: the delivery log, the audit log."""

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
    """Lines that cannot be read are skipped. One that `rotates` (what it holds is derived) becomes `….1` past a
    megabyte, and a new one is begun. One that is `durable` keeps its lines through a power cut."""

    def __init__(self, files: Files, path: Path, *, rotates: bool = False, durable: bool = False) -> None:
        self.files = files
        self.path = path
        self.rotates = rotates
        self.durable = durable
        self._older = path.with_name(f"{path.name}.1")

    def append(self, **facts: Any) -> None:
        """Adds a line. Raises `StorageError`."""
        # a lone surrogate, as of an argument that was no UTF-8, becomes JSON's escape for it
        line = _LINES.encode(facts).encode(errors="backslashreplace")
        end = self.files.append(self.path, line, sync=self.durable)
        if self.rotates and end > ROTATE_BYTES:
            self._rotate()

    def _rotate(self) -> None:
        """Of several processes that find it full one moves it: the next would overwrite it with what was just begun."""
        with self.files.locks.held(f"journal-{self.path.stem}"), storage_errors(self.path):
            if self.path.exists() and self.path.stat().st_size > ROTATE_BYTES:
                self.files.move(self.path, self._older)

    def newest_first(self, *needles: bytes, without: bytes | None = None) -> Iterator[dict[str, Any]]:
        """The entries; given `needles`, only those whose lines hold one of these bytes, and never one that holds
        `without`. The others are not parsed."""
        for path in (self.path, self._older):
            yield from newest_first(self.files.read(path) or b"", *needles, without=without)
