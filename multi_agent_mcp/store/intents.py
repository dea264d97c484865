"""Intents: what is to be done as a whole although it takes several files, written down before the first of them.

`.intents/{intent_id}.json` is the one file that holds together what must not come apart: an operation is there as soon
as its intent is, and whoever finds the intent of a process that died carries it out. It is removed when all is done.
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
from multi_agent_mcp.system.disk import storage_errors
from multi_agent_mcp.system.process import is_alive, own_start

_UNREADABLE = object()


@dataclass(frozen=True)
class Intent:
    """`facts` say all there is to do, ids and times included, so that doing it twice does nothing twice. `again` is
    true for one that somebody else may have begun."""

    id: str
    kind: str
    facts: Mapping[str, Any]
    again: bool = False


class Intents:
    """The intents of one session directory. Asking whether any were left behind costs one look at a directory that is
    nearly always empty."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path
        self._under_way: set[str] = set()
        self._mutex = Mutex("intents")

    def write(self, kind: str, facts: Mapping[str, Any]) -> Intent:
        """Durable when it returns: from now on it will be carried out, by this process or by another one."""
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
        """All is done, or nothing was."""
        with storage_errors(self._file(intent.id)):
            self._file(intent.id).unlink(missing_ok=True)
        self.rest(intent)

    def rest(self, intent: Intent) -> None:
        """This process is not at it any more: should it still be there, it was left behind."""
        with self._mutex:
            self._under_way.discard(intent.id)

    def left_behind(self) -> list[Intent]:
        """What nobody is at: its process died, or gave up on a disk that refused. What nobody can read is passed over
        without a word, as every command would say it again: `doctor` tells."""
        return [intent for name in self._names() if isinstance(intent := self._left(name), Intent)]

    def unreadable(self) -> list[Path]:
        """Files that say nothing anybody could carry out."""
        return [self._file(name) for name in self._names() if self._left(name) is _UNREADABLE]

    def _names(self) -> list[str]:
        try:
            self.files.containment.require(self.path)
            with storage_errors(self.path, FileNotFoundError), os.scandir(self.path) as found:
                return sorted(item.name.removesuffix(".json") for item in found if item.name.endswith(".json"))
        except FileNotFoundError:
            return []

    def _left(self, intent_id: str) -> Intent | object | None:
        """None for what somebody is at, and for what is done meanwhile."""
        try:
            record = json.loads(read_file(self._file(intent_id))[0])
            pid, kind, facts = int(record["pid"]), str(record["kind"]), dict(record["facts"])
            if intent_id in self._under_way or (pid != os.getpid() and is_alive(pid, record["pid_started_at"])):
                return None
        except FileNotFoundError:
            return None
        except (OSError, ArithmeticError, ValueError, KeyError, TypeError, RecursionError):
            return _UNREADABLE
        return Intent(intent_id, kind, facts, again=True)

    def _file(self, intent_id: str) -> Path:
        return self.path / f"{intent_id}.json"
