"""Intents: records of operations that change several files as a whole, written before the first file is changed.

An operation is decided as soon as its `.intents/{intent_id}.json` exists. A process that finds the intent of a process
that died applies it. The file is removed when the operation is complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.ids import new_id
from multi_agent_mcp.store.files.containment import read_file
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.files.locks import Mutex
from multi_agent_mcp.system.process import is_alive, own_start

_UNREADABLE = object()


@dataclass(frozen=True)
class Intent:
    """One operation, by its kind and its facts (`services/operations.py`)."""

    id: str
    kind: str
    facts: Mapping[str, Any]


class Intents:
    """The intents of one session directory. `left_behind` costs one listing of a directory that is nearly always
    empty."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path
        self._under_way: set[str] = set()
        self._mutex = Mutex("intents")

    def write(self, kind: str, facts: Mapping[str, Any]) -> Intent:
        """Writes a new intent, durably: it will be applied, by this process or by another one."""
        intent = Intent(new_id("int"), kind, facts)
        record = {"kind": kind, "facts": facts, "pid": os.getpid(), "pid_started_at": own_start()}
        with self._mutex:
            self._under_way.add(intent.id)
        try:
            self.files.create(self._file(intent.id), json.dumps(record, ensure_ascii=False).encode())
        except BaseException:
            self.rest(intent)
            raise
        return intent

    def forget(self, intent: Intent) -> None:
        """Removes an intent that was applied completely or not at all."""
        self.files.remove(self._file(intent.id))
        self.rest(intent)

    def rest(self, intent: Intent) -> None:
        """Ends this process's work on an intent: if its file still exists, it counts as left behind."""
        with self._mutex:
            self._under_way.discard(intent.id)

    def left_behind(self) -> list[Intent]:
        """Returns the intents that no process works on: theirs died, or the disk refused. Unreadable ones are skipped
        without a log line, which every command would repeat: `doctor` reports them."""
        return [intent for name in self._names() if isinstance(intent := self._left(name), Intent)]

    def unreadable(self) -> list[Path]:
        """Returns the files that do not describe an operation."""
        return [self._file(name) for name in self._names() if self._left(name) is _UNREADABLE]

    def _names(self) -> list[str]:
        return [name.removesuffix(".json") for name in self.files.names(self.path) if name.endswith(".json")]

    def _left(self, intent_id: str) -> Intent | object | None:
        """Returns the intent; None if a process works on it or it is complete, `_UNREADABLE` if it is invalid."""
        try:
            data, status = read_file(self._file(intent_id))
            if not self.files.containment.is_own(status):
                return _UNREADABLE
            record = json.loads(data)
            pid, kind, facts = int(record["pid"]), str(record["kind"]), dict(record["facts"])
            if intent_id in self._under_way or (pid != os.getpid() and is_alive(pid, record["pid_started_at"])):
                return None
        except FileNotFoundError:
            return None
        except (OSError, ArithmeticError, ValueError, KeyError, TypeError, RecursionError):
            return _UNREADABLE
        return Intent(intent_id, kind, facts)

    def _file(self, intent_id: str) -> Path:
        return self.path / f"{intent_id}.json"
