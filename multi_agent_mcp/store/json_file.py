"""A JSON value in its own file, for facts that can be determined again: a damaged file counts as missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.files.durable_files import Files


class Record:
    """The JSON value in the file `path`, which may be deleted at any time."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path

    def read(self) -> Any:
        """Returns the value; None if the file is missing or damaged."""
        try:
            return json.loads(self.files.read(self.path) or b"")
        except (StorageError, ValueError, RecursionError):
            return None

    def write(self, value: Any, *, durable: bool = True) -> None:
        """Replaces the value. Raises `StorageError`."""
        self.files.replace(self.path, f"{json.dumps(value)}\n".encode(), durable=durable)

    def remove(self) -> None:
        """Removes the file. Raises `StorageError`."""
        self.files.remove(self.path)
