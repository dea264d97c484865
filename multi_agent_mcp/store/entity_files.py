"""Reads and writes the entity files of one directory: leniently read, set aside when unreadable, written whole."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.domain.times import from_timestamp
from multi_agent_mcp.errors import Reason
from multi_agent_mcp.store.codec.frontmatter import Unreadable, codec
from multi_agent_mcp.store.files.containment import read_file
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.quarantine import Quarantine
from multi_agent_mcp.system.file_status import Signature
from multi_agent_mcp.system.writing import spelled, storage_errors

E = TypeVar("E", bound=Entity)

SETTLING_SECONDS = 0.1
EMPTY_FILE_GRACE_SECONDS = 5.0


class EntityFiles(Generic[E]):
    """Files of one entity type by name. `defaults` are the values of keys that a hand-written file omits. `place` holds
    values that a file may omit too, but not contradict: then it is misplaced. `adopt` completes an entity that was
    read, given the stem of its file's name."""

    def __init__(
        self,
        files: Files,
        path: Path,
        entity_type: type[E],
        *,
        place: Mapping[str, str] | None = None,
        adopt: Callable[[E, str], E] = lambda entity, _: entity,
        **defaults: Any,
    ) -> None:
        self.files = files
        self.path = path
        self.quarantine = Quarantine(files, path)
        self.codec = codec(entity_type)
        self._place = place or {}
        self._adopt = adopt
        self._defaults = {**defaults, **self._place}

    def load(self, name: str) -> E | None:
        """Returns the entity; None if the file is gone or still being written, or was unreadable and quarantined."""
        path, stem = f"{self.path}/{name}", os.path.splitext(name)[0]  # noqa: PTH122 - a `Path` takes ten times as long
        for attempt in range(2):
            self.require_inside()
            try:
                data, status = _read(path)
            except (FileNotFoundError, IsADirectoryError):
                return None
            except PermissionError as error:
                self.quarantine.set_aside(Path(path), Reason("unreadable", error=error))
                return None
            try:
                return self.decode(data, stem, status.st_mtime)
            except Unreadable as error:
                if self._still_written(status):
                    return None
                if attempt == 0 and _age(status) < SETTLING_SECONDS:
                    time.sleep(SETTLING_SECONDS)  # a `cp` may still be writing it
                    continue
                self.quarantine.set_aside(Path(path), error.reason)
        return None

    def create(self, name: str, entity: E, *, modified: int | None = None) -> None:
        """Creates a file, exclusively and durably; raises `FileExistsError`. `modified` as in `Files.create`."""
        self.files.create(self.path / name, self.codec.encode(entity), modified=modified)

    def replace(
        self,
        name: str,
        entity: E,
        *,
        sync: bool = True,
        modified: int | None = None,
        unchanged: Signature | None = None,
    ) -> None:
        """Replaces a file; see `Files.replace`."""
        data = self.codec.encode(entity)
        self.files.replace(self.path / name, data, sync=sync, modified=modified, unchanged=unchanged)

    def remove(self, name: str, *, sync: bool = False) -> None:
        """Removes a file; see `Files.remove`."""
        self.files.remove(self.path / name, sync=sync)

    def require_inside(self) -> None:
        """Raises `StorageError` if a symbolic link in the path leads out of the session's directory."""
        with storage_errors(self.path):
            self.files.containment.require(self.path)

    def decode(self, data: bytes, stem: str, modified: float) -> E:
        """Returns the entity in a file's bytes. The stem of its name and its modification time (seconds since the
        epoch) replace a missing id and time. Raises `Unreadable`."""
        facts = {"id": spelled(stem), "created_at": from_timestamp(modified), **self._defaults}
        entity = self.codec.decode(data, **facts)
        for name, value in self._place.items():
            if (said := getattr(entity, name)) != value:
                raise Unreadable("misplaced", name=name, value=f"{said!r:.80}", owner=value)
        return self._adopt(entity, stem)

    def _still_written(self, status: os.stat_result) -> bool:
        """Returns whether a file is new and still empty: a `cp` or an editor is writing it."""
        return status.st_size == 0 and _age(status) < EMPTY_FILE_GRACE_SECONDS


def _age(status: os.stat_result) -> float:
    """Returns the seconds between now and a file's modification time, which is in the future if the clock was set back
    since."""
    return abs(time.time() - status.st_mtime)


def _read(path: str) -> tuple[bytes, os.stat_result]:
    with storage_errors(path, FileNotFoundError, PermissionError, IsADirectoryError):
        return read_file(path)
