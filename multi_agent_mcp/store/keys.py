"""Secrets, each in a file of its own: an agent's in `secrets/{agent_id}.key`, the console's in `.console/key`."""

from __future__ import annotations

import secrets
from pathlib import Path

from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.system.file_status import Signature, signature_of


class KeyFile:
    """One secret, a line of ASCII that only its owner may read."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path
        self._known: tuple[Signature, str] | None = None

    def read(self) -> str | None:
        """The key; None when there is none. The file is read again only when it has changed: every message is signed.
        Raises `StorageError`."""
        found = signature_of(self.path)
        if self._known is not None and found == self._known[0]:
            return self._known[1]
        data = self.files.read(self.path)
        key = None if data is None else data.decode("ascii", errors="replace").strip()
        self._known = None if found is None or key is None else (found, key)
        return key

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

    def remove(self) -> None:
        """Takes the key away."""
        self.files.remove(self.path, sync=True)
