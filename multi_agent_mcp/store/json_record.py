"""A small derived fact in a JSON file of its own: who loses it can do without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from multi_agent_mcp.store.files.containment import read_file
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.system.disk import storage_errors

DAMAGED = (OSError, ArithmeticError, ValueError, KeyError, TypeError, RecursionError)
"""What reading a record, or the fields of one, may raise: such a record is as good as none."""


class JsonRecord:
    """One JSON object at `path`."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path

    def read(self) -> Any:
        """Raises one of `DAMAGED` when there is none that can be read."""
        return json.loads(read_file(self._path)[0])

    def write(self, record: dict[str, Any]) -> None:
        """Replaces the record. Raises `StorageError`."""
        self._files.replace(self._path, json.dumps(record).encode())

    def remove(self) -> None:
        """Raises `StorageError`."""
        with storage_errors(self._path):
            self._path.unlink(missing_ok=True)
