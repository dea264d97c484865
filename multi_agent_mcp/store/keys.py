"""Secrets, each in a file of its own: an agent's in `secrets/{agent_id}.key`, the console's in `.console/key`."""

from __future__ import annotations

import secrets
from pathlib import Path

from multi_agent_mcp.store.files.durable_files import Files


class KeyFile:
    """One secret, a line of ASCII that only its owner may read."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path

    def read(self) -> str | None:
        """The key; None when there is none. Raises `StorageError`."""
        data = self.files.read(self.path)
        return None if data is None else data.decode("ascii", errors="replace").strip()

    def ensure(self) -> str:
        """The key; one of 256 random bits is made if there is none. Two processes at once get the same one."""
        if (key := self.read()) is not None:
            return key
        key = secrets.token_urlsafe(32)
        try:
            self.files.create(self.path, f"{key}\n".encode("ascii"))
        except FileExistsError:
            return self.ensure()
        return key
