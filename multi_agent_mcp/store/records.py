"""Small files of their own: a JSON value that can be determined again, a secret key, the relay's state."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.files.locks import RELAY
from multi_agent_mcp.system.file_status import Signature, signature_of
from multi_agent_mcp.system.files import storage_errors
from multi_agent_mcp.system.process import is_alive


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


# Secret keys in files: an agent's in `secrets/{agent_id}.key`, the console's in `.console/key`.


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


# The state that this machine's relay records for other processes (docs/protocol.md, Several machines).

SHARE = ".share"
BLOCK_BYTES = 512
"""The unit of `st_blocks` in stat(2)."""
RELAY_SOCKET = f"{SHARE}/relay.sock"
TOUCH_SECONDS, STALE_SECONDS = 5.0, 15.0
"""A working relay touches its file at the first interval; a file older than the second means that it does not work."""


class RelayState:
    """`.share/state.json`: `connected`, `since`, `replaced`, `queued`, `conflicts`, `machines` …, by the relay."""

    def __init__(self, files: Files) -> None:
        self.locks = files.locks
        self._path = files.base / SHARE / "state.json"
        self._record = Record(files, self._path)
        self._noted: Mapping[str, Any] = {}

    def note(self, facts: Mapping[str, Any]) -> None:
        """Writes the facts if they have changed; else only touches the file, which wakes no process that watches it.
        Raises `StorageError`."""
        if facts != self._noted:
            try:
                self._record.write(facts, durable=False)
            except StorageError:
                self._overwrite(facts)
                raise
            self._noted = facts
        elif time.time() - self.noted_at > TOUCH_SECONDS:
            with storage_errors(self._path):
                os.utime(self._path)

    def _overwrite(self, facts: Mapping[str, Any]) -> None:
        """Writes the facts into the file's existing blocks if they fit there, which works on a full disk, and touches
        the file. A concurrent reader may find no valid state. Never raises."""
        data = f"{json.dumps(facts)}\n".encode()
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                status = os.fstat(descriptor)
                if len(data) <= status.st_blocks * BLOCK_BYTES:
                    os.pwrite(descriptor, data.ljust(status.st_size), 0)
                os.utime(descriptor)
            finally:
                os.close(descriptor)

    def read(self) -> dict[str, Any]:
        """Returns the recorded state with `relay` (a relay works) and `hangs` (one runs, but does not work). Without a
        working relay the other machines' state is unknown: none is `up`, and this one is not `connected`."""
        found = self._record.read()
        state: dict[str, Any] = found if isinstance(found, dict) else {}
        is_held = self.locks.is_held(RELAY)
        if is_held and time.time() - self.noted_at < STALE_SECONDS:
            return {**state, "relay": True, "hangs": False}
        hangs = is_held and is_noted_alive(state)  # else one is just starting
        machines = {name: {**facts, "up": False} for name, facts in state.get("machines", {}).items()}
        return {**state, "relay": False, "hangs": hangs, "connected": False, "machines": machines}

    @property
    def noted_at(self) -> float:
        """The time of the relay's last record or touch, in seconds since the epoch; 0: never."""
        try:
            return self._path.stat().st_mtime
        except OSError:
            return 0.0


def is_noted_alive(state: Mapping[str, Any]) -> bool:
    """Returns whether the relay process that recorded this state is still alive."""
    return "pid" in state and is_alive(int(state["pid"]), state.get("pid_started_at"))
