"""`agents.json`: who takes part, where their panes are. Several processes update it; no field is ever lost."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.ids import agent_id as parse_agent_id
from multi_agent_mcp.domain.ids import differing_in_case
from multi_agent_mcp.errors import AgentNotFound, AlreadyExists, InvalidId, StorageError
from multi_agent_mcp.store.files.containment import read_file
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.system.disk import storage_errors

logger = logging.getLogger(__name__)

_FIELDS = [spec.name for spec in fields(Agent) if spec.name != "extra"]
Signature = tuple[int, int, int]


class _Thread(threading.local):
    """What one thread knows; see `Registry.read_once`."""

    reads_once = False
    agents: Mapping[str, Agent] | None = None


class Registry:
    """The agents of a session. Reads are cached by the file's signature; updates merge fields under a lock.

    Every update is written to `agents.json.bak` first. A file that cannot be parsed any more (cut off by an editor or
    a full disk) is kept as `agents.json.damaged` and restored from there, said aloud.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path
        self._backup = path.with_name(f"{path.name}.bak")
        self._cached: tuple[Signature, Mapping[str, Agent]] | None = None
        self._thread = _Thread()

    @contextmanager
    def read_once(self) -> Iterator[None]:
        """Within, this thread looks at the file once, and again after a change of its own: one call sees one team."""
        outer, self._thread.reads_once, self._thread.agents = self._thread.reads_once, True, None
        try:
            yield
        finally:
            self._thread.reads_once, self._thread.agents = outer, None

    def all(self) -> Mapping[str, Agent]:
        """Agent id → agent, removed ones included (their history still names them)."""
        agents = self._thread.agents
        if agents is None:
            agents = self._current()
            self._thread.agents = agents if self._thread.reads_once else None
        return agents

    def _current(self) -> Mapping[str, Agent]:
        signature = self._signature()
        if signature is not None and self._cached is not None and self._cached[0] == signature:
            return self._cached[1]
        records = self._read_or_restore()
        agents = {key: _agent(key, record) for key, record in records["agents"].items() if _is_name(key)}
        if (current := self._signature()) == signature and current is not None:
            self._cached = (current, agents)
        return agents

    def active(self) -> Mapping[str, Agent]:
        return {key: agent for key, agent in self.all().items() if not agent.removed}

    def get(self, agent_id: str) -> Agent:
        """Raises `AgentNotFound`, also for removed agents."""
        agent = self.all().get(agent_id)
        if agent is None or agent.removed:
            raise AgentNotFound(agent_id=agent_id)
        return agent

    def add(self, agent: Agent) -> Agent:
        """Raises `AlreadyExists` for a known id; a removed agent is taken back with its files and its key."""
        with self.files.locks.held("agents"):
            self._thread.agents = None
            self.require_free(agent.id)
            records = self._read_or_restore()
            known = records["agents"].get(agent.id)
            fresh = {key: value for key, value in asdict(agent).items() if key != "extra" and value is not None}
            records["agents"][agent.id] = {**(known or {}), **agent.extra, **fresh}
            self._write(records)
            return _agent(agent.id, records["agents"][agent.id])

    def require_free(self, agent_id: str) -> None:
        """Raises `AlreadyExists` for a known id, and for one that differs from a known one in case only."""
        known = self.all()
        if agent_id in known and not known[agent_id].removed:
            raise AlreadyExists("agent_exists", agent_id=agent_id)
        if (other := differing_in_case(agent_id, known)) is not None:
            raise AlreadyExists("differs_in_case", name=agent_id, known=other)

    def update(self, agent_id: str, **changed: Any) -> Agent:
        """Sets these fields of one agent and leaves every other field as it is on disk."""
        with self.files.locks.held("agents"):
            records = self._read_or_restore()
            if agent_id not in records["agents"]:
                raise AgentNotFound(agent_id=agent_id)
            record = records["agents"][agent_id]
            if any(record.get(key) != value for key, value in changed.items()):
                record.update(changed)
                self._write(records)
            return _agent(agent_id, record)

    def create(self) -> None:
        """Makes an empty registry if there is none."""
        with self.files.locks.held("agents"):
            if not self.path.exists() and not self._backup.exists():
                self._write({"agents": {}})

    def _write(self, records: dict[str, Any]) -> None:
        data = (json.dumps(records, ensure_ascii=False, indent=2) + "\n").encode()
        self.files.replace(self._backup, data)
        self.files.replace(self.path, data)
        self._thread.agents = None

    def _read_or_restore(self) -> dict[str, Any]:
        records = _parse(self._bytes(self.path))
        if records is not None:
            return records
        backup = self._bytes(self._backup)
        records = _parse(backup)
        if records is None or backup is None:
            raise StorageError("registry_lost", path=self.path.name)
        if self.path.exists():
            self.files.relocate([(self.path, self.path.with_name(f"{self.path.name}.damaged"))])
        self.files.replace(self.path, backup)
        logger.warning("agents.json could not be read; it was restored from agents.json.bak")
        return records

    def _bytes(self, path: Path) -> bytes | None:
        with storage_errors(path, FileNotFoundError):
            try:
                self.files.containment.require(path.parent)
                return read_file(path)[0]
            except FileNotFoundError:
                return None

    def _signature(self) -> Signature | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


def _parse(data: bytes | None) -> dict[str, Any] | None:
    """The records, or None when they are missing or damaged."""
    try:
        records: Any = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    if not isinstance(records, dict):
        return None
    agents = records.get("agents")
    if not isinstance(agents, dict) or not all(isinstance(record, dict) for record in agents.values()):
        return None
    return records


def _is_name(key: str) -> bool:
    try:
        parse_agent_id(key)
    except InvalidId:
        logger.warning("agents.json names an agent that cannot be one: %r", key)
        return False
    return True


def _agent(key: str, record: Mapping[str, Any]) -> Agent:
    known = {name: record[name] for name in _FIELDS if record.get(name) is not None}
    extra = {name: value for name, value in record.items() if name not in _FIELDS}
    return Agent(**{**known, "id": key}, extra=extra)
