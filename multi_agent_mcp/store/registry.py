"""`agents.json`: the agents of a session and their panes. Several processes update it; no field is ever lost."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.entity import differing_in_case, is_name
from multi_agent_mcp.errors import AgentNotFound, AlreadyExists, Reason, StorageError
from multi_agent_mcp.store.authority import ALONE, HUB, Authority, Shared, Superseded, digest8, mark, revision_in
from multi_agent_mcp.store.codec import Unreadable, require_tree
from multi_agent_mcp.store.directory import SETTLING_SECONDS
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.records import Conflicts
from multi_agent_mcp.system.file_status import Memory, is_settled, signature_of

logger = logging.getLogger(__name__)

_FIELDS = {name: hint for name, hint in get_type_hints(Agent).items() if name != "extra"}


NEWER = "newer_fields"
"""The key of what a newer version shares of an agent, apart from the fields that are used here: none of it runs."""
UNSET = dict.fromkeys((
    "id", "role", "type", "name", "parent_id", "status", "session_name", "window_index", "pane_index", "pane_id",
    "socket_path", "pane_pid", "command", "created_at",
))  # fmt: skip
"""What every record has, in this order, for programs that read the file: null until it is known."""
AGENTS_MAX = 1_000
"""The number of agents up to which those of other machines are added: every process reads all of them."""


class KnownAgents(dict[str, Agent]):
    """The agents by id, removed ones included, as one reading of the registry found them."""

    @cached_property
    def active(self) -> Mapping[str, Agent]:
        return {key: agent for key, agent in self.items() if not agent.removed}


class _OfThread(threading.local):
    """What one thread has read; see `Registry.read_once`."""

    reads_once = False
    agents: KnownAgents | None = None


_KEPT = frozenset({"secrets", "ipc", "tasks", "notifications", "conversations", "questions", "handoffs"})
"""What a new registry of the same agents finds again, so that a lost one takes nothing else along."""
SHARED = (
    "role", "type", "name", "parent_id", "status", "created_at", "public_key", "former_public_keys",
    "machine", "machines", "skills",
)  # fmt: skip
"""The fields of an agent that machines share. All others belong to its home machine (its pane, the commands run and
typed there), so that no other machine can start a program."""


class Registry:
    """The agents of a session. Reads are cached by the file's signature; updates merge fields under a lock. Fields that
    machines share are agreed with the authority first.

    Every update is written to `agents.json.bak` first. A file that can no longer be parsed (truncated by an editor or a
    full disk) is kept as `agents.json.damaged` and restored from the backup, with a warning in the log.
    """

    def __init__(self, files: Files, path: Path, authority: Authority = ALONE) -> None:
        self.files = files
        self.path = path
        self.authority = authority
        self._backup = path.with_name(f"{path.name}.bak")
        self._read = Memory()
        self._thread = _OfThread()

    @contextmanager
    def read_once(self) -> Iterator[None]:
        """Makes this thread read the file once within the context, and again after a change of its own, so that one
        call sees one state of the team."""
        outer, self._thread.reads_once, self._thread.agents = self._thread.reads_once, True, None
        try:
            yield
        finally:
            self._thread.reads_once, self._thread.agents = outer, None

    def active(self) -> Mapping[str, Agent]:
        """Returns the agents without removed ones; the same object while `all` returns the same one."""
        return self.all().active

    def all(self) -> KnownAgents:
        """Returns the agents by id, removed ones included (their history still names them); the same object while the
        file is unchanged."""
        agents = self._thread.agents
        if agents is None:
            looked_at, found = time.time_ns(), signature_of(self.path)
            state = found if found is not None and is_settled(found[0], looked_at) else None
            agents = self._read.get(state, self._made)
            self._thread.agents = agents if self._thread.reads_once else None
        return agents

    def _made(self) -> KnownAgents:
        records = self._read_or_restore()["agents"]
        agents = KnownAgents({key: self._agent(key, record) for key, record in records.items() if is_name(key)})
        for key in records.keys() - agents.keys():
            logger.warning("agents.json names an agent that cannot be one: %r", key)
        return agents

    def misfits(self) -> list[tuple[str, str, Any]]:
        """Returns agent id, key and value of each field whose value has the wrong type and is ignored."""
        return [
            (agent_id, name, record[name])
            for agent_id, record in self._read_or_restore()["agents"].items()
            for name, fits in _CHECKS.items()
            if record.get(name) is not None and not fits(record[name])
        ]

    def get(self, agent_id: str) -> Agent:
        """Returns an agent; raises `AgentNotFound`, also for removed agents."""
        agent = self.active().get(agent_id)
        if agent is None:
            raise AgentNotFound(agent_id=agent_id)
        return agent

    def add(self, agent: Agent, prepare: Callable[[Agent], AbstractContextManager[Agent]] = nullcontext) -> Agent:
        """Registers an agent; raises `AlreadyExists` for a known id. A removed agent returns with its files and key.

        `prepare` is entered under the lock once the id is known to be free: it makes the agent's other files and
        returns the completed record. A refusal is raised within its context.
        """
        with self.files.locks.held("agents"):
            self._thread.agents = None
            self.require_free(agent.id)
            with prepare(agent) as complete:
                record, is_mine = self._registered(complete)
            if not is_mine:
                raise AlreadyExists("agent_exists", agent_id=agent.id)
            return self._agent(agent.id, record)

    def _registered(self, agent: Agent) -> tuple[dict[str, Any], bool]:
        """Writes the agent's record; returns the record now stored, and whether it is this agent's, not that of another
        machine's agent with the same id."""
        records = self._read_or_restore()
        known = records["agents"].get(agent.id)
        given = {key: value for key, value in asdict(agent).items() if key != "extra" and value is not None}
        fresh = _agent(agent.id, known or {}).changed_by_person(given)
        record = {**UNSET, **(known or {}), **agent.extra, **fresh}
        is_mine = True
        try:
            record = self._agree(agent.id, known, record)
        except Superseded as other:  # it has our key only if our own attempt died between the hub and the file
            theirs = (_json_object(other.current.data) or {}).get("public_key")
            is_mine = theirs is not None and theirs == agent.public_key
            record = taken_over(record, other.current) if is_mine else self._take_over(agent.id, known, other.current)
        records["agents"][agent.id] = record
        self._write(records)
        return record, is_mine

    def require_free(self, agent_id: str) -> None:
        """Raises `AlreadyExists` for a known id, and for one that differs from a known one only in case."""
        known = self.all()
        if agent_id in known and not known[agent_id].removed:
            raise AlreadyExists("agent_exists", agent_id=agent_id)
        if (other := differing_in_case(agent_id, known)) is not None:
            raise AlreadyExists("differs_in_case", name=agent_id, known=other)

    def update(self, agent_id: str, **changed: Any) -> Agent:
        """Sets these fields of one agent and returns it; other fields stay as they are on disk. Raises
        `AgentNotFound`."""
        return self.revise(agent_id, lambda _: changed)

    def revise(self, agent_id: str, change: Callable[[Agent], Mapping[str, Any]]) -> Agent:
        """As `update`, with the fields that `change` returns for the agent as it is under the lock."""
        with self.files.locks.held("agents"):
            records = self._read_or_restore()
            if agent_id not in records["agents"]:
                raise AgentNotFound(agent_id=agent_id)
            record = records["agents"][agent_id]
            while _differs(record, changed := change(_agent(agent_id, record))):
                try:
                    record = self._agree(agent_id, record, {**record, **changed})
                except Superseded as newer:
                    record = self._take_over(agent_id, record, newer.current)
                records["agents"][agent_id] = record
                self._write(records)
            return self._agent(agent_id, record)

    def accept(self, values: Iterable[tuple[str, Shared, int | None]]) -> list[Agent]:
        """Applies the hub's values of agents, written together, and returns those agents of which the revision was not
        known: each value with its agent's id and `was` as in `SharedCollection.accept`. A value that is no record is
        replaced by the one that is here; if there is none, or there are `AGENTS_MAX`, it is passed over."""
        with self.files.locks.held("agents"):
            records = self._read_or_restore()
            agents, before = records["agents"], {**records["agents"]}
            try:
                accepted = [each[0] for each in values if self._accept(agents, *each)]
            finally:
                if agents != before:
                    self._write(records)
            return [self._agent(agent_id, agents[agent_id]) for agent_id in accepted]

    def _accept(self, agents: dict[str, Any], agent_id: str, shared: Shared, was: int | None) -> bool:
        known = agents.get(agent_id)
        if known is not None and revision_in(known.get(HUB)) >= shared.revision:
            return False
        is_record = _json_object(shared.data) is not None
        if known is None and (not is_record or len(agents) >= AGENTS_MAX or differing_in_case(agent_id, agents)):
            return False  # a file system may take two ids that differ in case for one
        is_older = was is not None and known is not None and revision_in(known.get(HUB)) > was
        if known is not None and (is_older or not is_record):
            marked = {**known, HUB: mark(shared)}
            with suppress(Superseded):  # the newer value comes, too
                agents[agent_id] = self._agree(agent_id, marked, marked, push=True)
            return False
        agents[agent_id] = self._take_over(agent_id, known, shared)
        return True

    def edited(self, first: int = 1) -> list[str]:
        """Returns the ids of agents whose record was edited by a person or has a revision before `first`; see
        `push`."""
        records = self._read_or_restore()["agents"]
        return [
            key
            for key, record in records.items()
            if is_name(key) and (is_edited(record) or revision_in(record.get(HUB)) < first)
        ]

    def push(self, agent_id: str, first: int = 1) -> None:
        """Sends a record to the hub that was edited by a person, or that has a revision before `first`, which is one of
        a former hub. If the hub has a newer value, that is taken over instead."""
        with self.files.locks.held("agents"):
            records = self._read_or_restore()
            record = records["agents"][agent_id]
            before = record if revision_in(record.get(HUB)) >= first else None
            try:
                records["agents"][agent_id] = self._agree(agent_id, before, record, push=True)
            except Superseded as newer:
                records["agents"][agent_id] = self._take_over(agent_id, record, newer.current)
            finally:
                self._write(records)

    def _take_over(self, agent_id: str, record: dict[str, Any] | None, shared: Shared) -> dict[str, Any]:
        """Returns the record with the hub's value. A person's edit that the hub does not have is set aside."""
        if record is not None and is_edited(record) and shared_part(record) != shared.data:
            Conflicts(self.files).keep(f"{agent_id}.json", shared_part(record))
        return taken_over(record, shared)

    def shared_values(self) -> Iterator[tuple[str, bytes, int]]:
        """Yields every record as it is sent: its key, its bytes, and the revision in its mark."""
        for agent_id, record in self._read_or_restore()["agents"].items():
            yield f"agent.{agent_id}", shared_part(record), revision_in(record.get(HUB))

    def _agree(
        self, agent_id: str, before: dict[str, Any] | None, after: dict[str, Any], *, push: bool = False
    ) -> dict[str, Any]:
        """Agrees a change of the shared fields with the authority, and returns the record to write. Raises `Superseded`
        and `HubUnreachable`."""
        data = shared_part(after)
        if self.authority.here is None or (not push and before is not None and shared_part(before) == data):
            return after
        if before is None or HUB not in before:
            revision = self.authority.create(f"agent.{agent_id}", data, revision_in(after.get(HUB)) or None)
        else:
            revision = self.authority.swap(f"agent.{agent_id}", revision_in(before[HUB]), data)
        return after if revision is None else {**after, HUB: mark(Shared(revision, data))}

    def move_home(self, machine: str, *, former: str | None = None) -> None:
        """Makes this machine the home of all agents that have none, or whose home it was under its `former` name, when
        the session becomes shared."""
        for agent in self.all().values():
            if agent.machine is None or agent.machine == former:
                known = [*agent.extra.get("machines", ()), *filter(None, [agent.machine]), machine]
                self.update(agent.id, machine=machine, machines=list(dict.fromkeys(known)))

    def create(self) -> None:
        """Makes an empty registry if none can be read; unreadable files are kept as `….damaged`."""
        with self.files.locks.held("agents"):
            if any(_parse(self.files.read(path)) is not None for path in (self.path, self._backup)):
                return
            for path in (self.path, self._backup):
                self._keep_damaged(path)
            self._write({"agents": {}})

    def damaged(self) -> list[str]:
        """Returns the names of the damaged registries that were kept."""
        names = self.files.names(self.path.parent)
        return [name for name in names if name.startswith(f"{self.path.name}.") and name.endswith(".damaged")]

    def _agent(self, key: str, record: Mapping[str, Any]) -> Agent:
        """Returns the agent as this machine may use it: of an agent with another home only the shared fields, so that
        nothing is run, examined or typed into for it, even if its record still has fields from before it moved."""
        machine, here = record.get("machine"), self.authority.here
        if here is not None and machine not in (None, here):
            record = {name: value for name, value in record.items() if name in SHARED}
        return _agent(key, record)

    def _write(self, records: dict[str, Any]) -> None:
        data = (json.dumps(records, ensure_ascii=False, indent=2) + "\n").encode()
        self.files.replace(self._backup, data)
        self.files.replace(self.path, data)
        self._thread.agents = None

    def _read_or_restore(self) -> dict[str, Any]:
        records = self._settled()
        if records is not None:
            return records
        backup = self.files.read(self._backup)
        records = _parse(backup)
        if records is None or backup is None:
            raise self._lost()
        self._keep_damaged(self.path)
        self.files.replace(self.path, backup)
        logger.warning("agents.json could not be read; it was restored from agents.json.bak")
        return records

    def _lost(self) -> StorageError:
        """The refusal when neither the file nor its backup can be read, with what is left of the session."""
        names = self.files.names(self.path.parent) if self.path.parent.is_dir() else []
        left = [name for name in names if name in _KEPT and any((self.path.parent / name).rglob("*.*"))]
        if not left and not self.path.exists():
            return StorageError("session_gone", path=self.path.parent)
        kept = tuple(f"{name}/" for name in left) or Reason("nothing")
        return StorageError("registry_lost", path=self.path.name, kept=kept)

    def _settled(self) -> dict[str, Any] | None:
        """Returns the file's records; None if it is missing or damaged. A damaged file is read again after a moment, as
        an editor may be writing it in place."""
        for pause in (SETTLING_SECONDS, 0):
            data = self.files.read(self.path)
            records = _parse(data)
            if records is not None or data is None:
                return records
            time.sleep(pause)
        return None

    def _keep_damaged(self, path: Path) -> None:
        if path.exists():
            self.files.relocate([(path, path.with_name(f"{path.name}.damaged"))])


def shared_part(record: Mapping[str, Any]) -> bytes:
    """Returns the shared fields of a record as JSON, as they are sent, with those of a newer version."""
    known = {key: record[key] for key in SHARED if record.get(key) is not None}
    newer = record.get(NEWER)
    return json.dumps({**(newer if isinstance(newer, dict) else {}), **known}, ensure_ascii=False).encode()


def is_edited(record: Mapping[str, Any]) -> bool:
    """Returns whether a record differs from the hub's value under its revision."""
    return str(record.get(HUB, "")).partition(" ")[2] != digest8(shared_part(record))


def taken_over(record: Mapping[str, Any] | None, shared: Shared) -> dict[str, Any]:
    """Returns a record with its shared fields, unless the hub's value has none, and its mark replaced by the hub's
    value."""
    said = _json_object(shared.data)
    if said is None:
        return {**(record or {}), HUB: mark(shared)}
    kept = {key: value for key, value in (record or {}).items() if key not in (*SHARED, NEWER)}
    newer = {key: value for key, value in said.items() if key not in SHARED and key not in _FIELDS}
    found = {**{key: said[key] for key in SHARED if key in said}, **({NEWER: newer} if newer else {}), **kept}
    return {**found, HUB: mark(Shared(shared.revision, shared_part(found)))}


def _json_object(data: bytes) -> dict[str, Any] | None:
    """Returns the object that another machine has sent; None if it is none, or cannot be written to a file."""
    try:
        value = json.loads(data)
        require_tree(value)
        json.dumps(value, ensure_ascii=False).encode()  # no lone surrogate
    except (ValueError, RecursionError, Unreadable):
        return None
    return value if isinstance(value, dict) else None


def _parse(data: bytes | None) -> dict[str, Any] | None:
    """Returns the records; None if they are missing or damaged."""
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


def _differs(record: Mapping[str, Any], changed: Mapping[str, Any]) -> bool:
    return any(record.get(key) != value for key, value in changed.items())


def _agent(key: str, record: Mapping[str, Any]) -> Agent:
    known = {name: record[name] for name, fits in _CHECKS.items() if fits(record.get(name))}
    extra = {name: value for name, value in record.items() if name not in _FIELDS}
    for name in _LISTS & extra.keys():
        if not _is_list(extra[name]):
            del extra[name]
    return Agent(**{**known, "id": key}, extra=extra)


def _check(hint: Any) -> Callable[[Any], bool]:
    """Returns whether values have the type of a field, as a function. Others stay in the file, but are ignored."""
    kind = (
        next(item for item in (*get_args(hint), hint) if item is not NoneType)
        if get_origin(hint) is UnionType
        else hint
    )
    whole, inner = get_origin(kind), get_args(kind)
    if whole is dict:
        return lambda value: isinstance(value, dict) and all(isinstance(item, inner[1]) for item in value.values())
    if whole is list:
        return lambda value: isinstance(value, list) and all(isinstance(item, inner) for item in value)
    return lambda value: isinstance(value, kind) and not isinstance(value, bool)


_CHECKS = {name: _check(hint) for name, hint in _FIELDS.items()}
_LISTS, _is_list = frozenset({"machines", "former_public_keys"}), _check(list[str])
"""Keys beside the fields whose value another machine may have sent, and what it has to be."""
