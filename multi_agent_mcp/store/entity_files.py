"""Reads and writes the entity files of one directory: leniently read, set aside when unreadable, written whole."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.domain.times import from_timestamp
from multi_agent_mcp.errors import Reason, StorageError, UntrustedSession
from multi_agent_mcp.store.codec import Unreadable, codec
from multi_agent_mcp.store.files.containment import read_file
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.files.locks import Mutex
from multi_agent_mcp.system.file_status import Signature
from multi_agent_mcp.system.files import spelled, storage_errors
from multi_agent_mcp.texts import catalogue

# Unreadable files are moved to the sub-directory `quarantine/`, each with its reason (docs/protocol.md, Files).

DIRECTORY = "quarantine"
REASON_SUFFIX = ".reason.txt"
ORDER = ("en", "ja")
"""The languages of a reason's lines, in order: a session may change its language. Older versions wrote only English."""
LONGEST_NAME = 200  # in bytes; with number and suffix it stays below the 255 that file systems allow


def reason_in(data: bytes, language: str) -> str:
    """Returns the reason in this language, from the content of the file beside a quarantined one."""
    lines = data.decode(errors="replace").splitlines() or [""]
    number = ORDER.index(language)
    return lines[number] if number < len(lines) else lines[-1]


class Quarantine:
    """The quarantine of one directory. Its files never hide or block others."""

    def __init__(self, files: Files, beside: Path) -> None:
        self.files = files
        self.path = beside / DIRECTORY
        self._mutex = Mutex("quarantine")

    def set_aside(self, path: Path, reason: Reason) -> None:
        """Moves a file here and writes the reason beside it, one line in each language. If several readers do so at
        once, one moves it."""
        name = os.fsencode(path.name)
        if len(name) > LONGEST_NAME:
            name = name[:LONGEST_NAME] + f".{secrets.token_hex(4)}{path.suffix}".encode()
        try:
            (placed,) = self.files.relocate([(path, self.path / os.fsdecode(name))])
        except StorageError:
            if not os.path.lexists(path):
                return  # another reader has set it aside
            # Linux refuses hard links to another user's file (fs.protected_hardlinks), but not to rename it.
            placed = self.path / f"{Path(os.fsdecode(name)).stem}.{secrets.token_hex(4)}{path.suffix}"
            self.files.move(path, placed)
        self._explain(placed, reason)

    def keep(self, name: str, data: bytes, reason: Reason) -> Path:
        """Stores bytes that are about to be overwritten, under this name or one with a digest, with the reason beside
        them. The same bytes are stored once. Returns the path. Raises `StorageError`."""
        other = f"{Path(name).stem}.{hashlib.sha256(data).hexdigest()[:8]}{Path(name).suffix}"
        for placed in (self.path / name, self.path / other):
            try:
                self.files.create(placed, data)
            except FileExistsError:
                if self.files.read(placed) != data:  # else a process stored it and was killed before it continued
                    continue
            break
        self._explain(placed, reason)
        return placed

    def _explain(self, placed: Path, reason: Reason) -> None:
        words = "".join(f"{catalogue(language).reason(reason)}\n" for language in ORDER)
        self.files.replace(placed.with_name(f"{placed.name}{REASON_SUFFIX}"), words.encode())

    def take_news(self) -> int:
        """Returns the number of files set aside, by any process, since the last call. Never raises."""
        told_path = self.path / ".told"
        with self._mutex, suppress(StorageError):
            names = (name for name in self.files.names(self.path) if name.endswith(REASON_SUFFIX))
            reasons = {" ".join(spelled(name).splitlines()) for name in names}
            told = set((self.files.read(told_path) or b"").decode(errors="replace").splitlines())
            if reasons != told:
                self.files.replace(told_path, "\n".join(sorted(reasons)).encode(), durable=False)
            return len(reasons - told)
        return 0


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
        """Returns the entity; None if the file is gone or still being written, or was unreadable or somebody else's
        (docs/security.md, Other users' sessions) and quarantined."""
        path = f"{self.path}/{name}"
        for attempt in range(2):
            self.require_inside(name)
            try:
                data, status = _read(path)
            except (FileNotFoundError, IsADirectoryError):
                return None
            except PermissionError as error:
                self._set_aside(path, Reason("unreadable", error=error))
                return None
            try:
                self.files.containment.require_owner(status, path)
                return self.decode(data, id_in(name), status.st_mtime)
            except UntrustedSession as refusal:
                self._set_aside(path, refusal.values["reason"])
                return None
            except Unreadable as error:
                if self._still_written(status):
                    return None
                if attempt == 0 and _age(status) < SETTLING_SECONDS:
                    time.sleep(SETTLING_SECONDS)  # a `cp` may still be writing it
                    continue
                self._set_aside(path, error.reason)
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

    def require_inside(self, name: str = "") -> None:
        """Raises `StorageError` if a symbolic link in the path (of this file) leads out of the session's directory."""
        with storage_errors(self.path):
            self.files.containment.require(self.path / name.partition("/")[0] if "/" in name else self.path)

    def decode(self, data: bytes, stem: str, modified: float) -> E:
        """Returns the entity in a file's bytes. The stem of its name and its modification time (seconds since the
        epoch) replace a missing id and time. Raises `Unreadable`."""
        facts = {"id": spelled(stem), "created_at": from_timestamp(modified), **self._defaults}
        entity = self.codec.decode(data, **facts)
        for name, value in self._place.items():
            if (said := getattr(entity, name)) != value:
                raise Unreadable("misplaced", name=name, value=f"{said!r:.80}", owner=value)
        return self._adopt(entity, stem)

    def _set_aside(self, path: str, reason: Reason) -> None:
        Quarantine(self.files, Path(path).parent).set_aside(Path(path), reason)

    def _still_written(self, status: os.stat_result) -> bool:
        """Returns whether a file is new and still empty: a `cp` or an editor is writing it."""
        return status.st_size == 0 and _age(status) < EMPTY_FILE_GRACE_SECONDS


def id_in(name: str) -> str:
    """Returns the id that a file's name gives its entity: `{id}.md`, or `{id}/conversation.md` in a directory of its
    own."""
    return name.rpartition("/")[0] or os.path.splitext(name)[0]  # noqa: PTH122 - a `Path` takes ten times as long


def _age(status: os.stat_result) -> float:
    """Returns the seconds between now and a file's modification time, which is in the future if the clock was set back
    since."""
    return abs(time.time() - status.st_mtime)


def _read(path: str) -> tuple[bytes, os.stat_result]:
    with storage_errors(path, FileNotFoundError, PermissionError, IsADirectoryError):
        return read_file(path)
