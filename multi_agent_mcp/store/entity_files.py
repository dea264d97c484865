"""The entity files of one directory, one by one: read leniently, set aside when nobody can, written whole."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Generic, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.domain.times import from_timestamp
from multi_agent_mcp.store.disk import spelled, storage_errors
from multi_agent_mcp.store.enclosure import read_file
from multi_agent_mcp.store.files import Files
from multi_agent_mcp.store.frontmatter import Unreadable, codec
from multi_agent_mcp.store.quarantine import Quarantine

E = TypeVar("E", bound=Entity)

SETTLING_SECONDS = 0.1
EMPTY_FILE_GRACE_SECONDS = 5.0


class EntityFiles(Generic[E]):
    """Files of one type by their names. `defaults` stand in for keys a hand-written file leaves out."""

    def __init__(self, files: Files, path: Path, entity_type: type[E], **defaults: Any) -> None:
        self.files = files
        self.path = path
        self.quarantine = Quarantine(files, path)
        self.codec = codec(entity_type)
        self._defaults = defaults

    def load(self, name: str) -> E | None:
        """The whole entity. None when the file has gone, or could not be read and now lies in quarantine."""
        path = self.path / name
        for attempt in range(2):
            self.require_inside()
            try:
                data, status = _read(path)
            except (FileNotFoundError, IsADirectoryError):
                return None
            except PermissionError as error:
                self.quarantine.set_aside(path, f"not readable: {error.strerror}")
                return None
            try:
                return self._decode(data, path.stem, status)
            except Unreadable as error:
                if self._still_written(status):
                    return None
                if attempt == 0 and time.time() - status.st_mtime < SETTLING_SECONDS:
                    time.sleep(SETTLING_SECONDS)  # a `cp` may be in the middle of it
                    continue
                self.quarantine.set_aside(path, str(error))
        return None

    def create(self, name: str, entity: E) -> None:
        """Exclusive and durable; raises `FileExistsError`."""
        self.files.create(self.path / name, self.codec.encode(entity))

    def replace(self, name: str, entity: E, *, sync: bool = True) -> None:
        """As `Files.replace`."""
        self.files.replace(self.path / name, self.codec.encode(entity), sync=sync)

    def mtime(self) -> int:
        """The directory's own modification time in nanoseconds; 0 while there is none."""
        try:
            return self.path.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def require_inside(self) -> None:
        """Raises `StorageError` when a symbolic link on the way here leads out of the session's directory."""
        with storage_errors(self.path):
            self.files.enclosure.require(self.path)

    def _decode(self, data: bytes, stem: str, status: os.stat_result) -> E:
        """An entity from a file's bytes; its name and modification time stand in for a missing id and time."""
        facts = {"id": spelled(stem), "created_at": from_timestamp(status.st_mtime), **self._defaults}
        return self.codec.decode(data, **facts)

    def _still_written(self, status: os.stat_result) -> bool:
        """A file that was just made and is still empty: somebody's `cp` or editor is at work."""
        return status.st_size == 0 and time.time() - status.st_mtime < EMPTY_FILE_GRACE_SECONDS


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    with storage_errors(path, FileNotFoundError, PermissionError, IsADirectoryError):
        return read_file(path)
