"""The state that this machine's relay records for other processes (docs/protocol.md, Several machines)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.files.locks import RELAY
from multi_agent_mcp.store.json_file import Record
from multi_agent_mcp.system.process import is_alive
from multi_agent_mcp.system.writing import storage_errors

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
