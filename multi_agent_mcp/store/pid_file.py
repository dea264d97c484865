"""The process id of a program that others look for, in a file (`.hooks/{agent_id}.armed`)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from multi_agent_mcp.store.files.containment import read_file
from multi_agent_mcp.store.files.durable_files import Files

_PID = re.compile(rb"[0-9]{1,18}")


class PidFile:
    """Derived, may be deleted: its program then counts as not running."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, files: Files) -> None:
        """Writes the id of this process. Raises `StorageError`."""
        files.replace(self.path, f"{os.getpid()}\n".encode(), durable=False)

    def read(self) -> int | None:
        """The process id; None where there is no file, or none that makes sense."""
        try:
            words = read_file(self.path)[0].split()
        except OSError:
            return None
        return int(words[0]) if words and _PID.fullmatch(words[0]) else None

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
