"""A JSON value in a file of its own, for facts that can be established again: a damaged file counts as missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.files.durable_files import Files


class Record:
    """The file at `path`; derived, may be deleted."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path

    def read(self) -> Any:
        """The value; None when there is none that can be read."""
        try:
            return json.loads(self.files.read(self.path) or b"")
        except (StorageError, ValueError, RecursionError):
            return None

    def write(self, value: Any, *, durable: bool = True) -> None:
        """Replaces the value. Raises `StorageError`."""
        self.files.replace(self.path, f"{json.dumps(value)}\n".encode(), durable=durable)

    def remove(self) -> None:
        """Raises `StorageError`."""
        self.files.remove(self.path)
