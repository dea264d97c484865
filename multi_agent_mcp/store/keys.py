"""Secret keys in files: an agent's in `secrets/{agent_id}.key`, the console's in `.console/key`."""

from __future__ import annotations

import secrets
from pathlib import Path

from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.system.file_status import Signature, signature_of


class KeyFile:
    """The file of one secret key: a line of ASCII that only its owner may read."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path
        self._known: tuple[Signature, str] | None = None

    def read(self) -> str | None:
        """Returns the key; None if there is none. It is cached until the file changes, as every message is signed.
        Raises `StorageError`."""
        found = signature_of(self.path)
        if self._known is not None and found == self._known[0]:
            return self._known[1]
        data = self.files.read(self.path)
        key = None if data is None else data.decode("ascii", errors="replace").strip()
        self._known = None if found is None or key is None else (found, key)
        return key

    def ensure(self) -> str:
        """Returns the key, and creates one of 256 random bits if there is none; concurrent callers get the same key."""
        if (key := self.read()) is not None:
            return key
        key = secrets.token_urlsafe(32)
        try:
            self.files.create(self.path, f"{key}\n".encode("ascii"))
        except FileExistsError:
            return self.ensure()
        return key

    def remove(self) -> None:
        """Removes the key."""
        self.files.remove(self.path, sync=True)
