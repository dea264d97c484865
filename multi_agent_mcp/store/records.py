"""Single files: a JSON value that can be determined again, a secret key, the relay's state, claimed idempotency keys,
intents; and append-only ones."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from multi_agent_mcp.domain.entity import new_id
from multi_agent_mcp.domain.json_lines import newest_first
from multi_agent_mcp.domain.times import format_time, now, parse_time
from multi_agent_mcp.errors import Reason, StorageError
from multi_agent_mcp.store.authority import HUB, NOW
from multi_agent_mcp.store.directory import Quarantine
from multi_agent_mcp.store.durable_files import BLOCK_BYTES, INDEXES, Files, read_file
from multi_agent_mcp.store.locks import RELAY, mutex
from multi_agent_mcp.system.file_status import Memory, careful, signature_of
from multi_agent_mcp.system.files import storage_errors

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Message

logger = logging.getLogger(__name__)


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

    def facts(self) -> dict[str, Any]:
        """The value, which is an object; an empty one also if a person wrote something else."""
        found = self.read()
        return found if isinstance(found, dict) else {}

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
        self._known = Memory()

    def read(self) -> str | None:
        """Returns the key; None if there is none. It is cached until the file changes, as every message is signed.
        Raises `StorageError`."""
        return self._known.get(signature_of(self.path), self._read)

    def _read(self) -> str | None:
        data = self.files.read(self.path)
        return None if data is None else data.decode("ascii", errors="replace").strip()

    def ensure(self, made: Callable[[], str] = secrets.token_urlsafe) -> str:
        """Returns the key, and creates one if there is none, of 256 random bits; concurrent callers get the same
        one."""
        if (key := self.read()) is not None:
            return key
        key = made()
        try:
            self.files.create(self.path, f"{key}\n".encode("ascii"))
        except FileExistsError:
            return self.ensure(made)
        return key

    def remove(self) -> None:
        """Removes the key."""
        self.files.remove(self.path, sync=True)


# The state that this machine's relay records for other processes (docs/protocol.md, Several machines).

SHARE = ".share"
STAT_BLOCK_BYTES = 512
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
                if len(data) <= status.st_blocks * STAT_BLOCK_BYTES:
                    os.pwrite(descriptor, data.ljust(status.st_size), 0)
                os.utime(descriptor)
            finally:
                os.close(descriptor)

    def read(self) -> dict[str, Any]:
        """Returns the recorded state with `relay` (a relay works) and `hangs` (one runs, but does not work). Without a
        working relay the other machines' state is unknown: none is `up`, and this one is not `connected`."""
        state = self._record.facts()
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
    from multi_agent_mcp.system.process import is_alive  # here and below: few commands look at processes

    return "pid" in state and is_alive(int(state["pid"]), state.get("pid_started_at"))


# Idempotency keys: messages that a sender sends again with the same key are stored once.
#
# `.claims/{sender_id}/{digest}.json` keeps a key for `REMEMBERED_DAYS`; once a day, a new claim removes the sender's
# expired ones.

REMEMBERED_DAYS = 30
SWEPT_EVERY_SECONDS = 86_400.0
SWEPT_AT_ONCE = 2_000  # 0.1 s; the rest goes another day


def claim(files: Files, key: str, messages: list[Message]) -> tuple[list[Message], bool]:
    """Claims a key for messages of one sender; returns the messages to store, those of the first attempt if the key is
    known, and whether the key is new.

    The claim fixes ids and times before anything is stored, so a second attempt writes the same files, and only those
    that the first did not write. Raises `StorageError`.
    """
    first = messages[0]
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    path = files.base / ".claims" / first.sender_id / f"{digest}.json"
    claimed = {
        "created_at": format_time(first.created_at),
        "broadcast_id": first.metadata.get("broadcast_id"),
        "ids": {message.receiver_id: message.id for message in messages},
    }
    try:
        files.create(path, json.dumps(claimed).encode())
        _sweep(files, path.parent)
    except FileExistsError:
        data = files.read(path)
        try:
            return _as_claimed(first, json.loads(data or b"")), False
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise StorageError("claim_damaged", path=path.name) from error
    return messages, True


def _sweep(files: Files, directory: Path) -> None:
    """Removes expired claims. Never raises: a claim too many does no harm."""
    swept, now = directory / ".swept", time.time()
    with suppress(OSError, StorageError):
        if swept.exists() and 0 <= now - swept.stat().st_mtime < SWEPT_EVERY_SECONDS:
            return
        files.replace(swept, b"", durable=False)
        border = now - REMEMBERED_DAYS * 86_400
        with os.scandir(directory) as found:
            old = (item.path for item in found if item.name.endswith(".json") and item.stat().st_mtime < border)
            for path in islice(old, SWEPT_AT_ONCE):
                Path(path).unlink(missing_ok=True)


def _as_claimed(template: Message, claim: Mapping[str, Any]) -> list[Message]:
    """Returns the messages of the first attempt, by its claim."""
    metadata = {key: value for key, value in template.metadata.items() if key != "broadcast_id"}
    if claim["broadcast_id"]:
        metadata["broadcast_id"] = claim["broadcast_id"]
    created_at = parse_time(claim["created_at"]) or template.created_at
    return [
        replace(template, id=message_id, receiver_id=receiver_id, created_at=created_at, metadata=metadata)
        for receiver_id, message_id in claim["ids"].items()
    ]


# Intents: records of operations that change several files as a whole, written before the first file is changed.
#
# An operation is decided as soon as its `.intents/{intent_id}.json` exists. A process that finds the intent of one that
# died applies it. The file is removed when the operation is complete.

_UNREADABLE = object()


class Intent(NamedTuple):
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
        self._mutex = mutex("intents")

    def write(self, kind: str, facts: Mapping[str, Any]) -> Intent:
        """Writes a new intent, durably: it will be applied, by this process or by another one."""
        from multi_agent_mcp.system.process import own_start

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
        from multi_agent_mcp.system.process import is_alive

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


# An append-only text file, read by lines from its end or from a line on, without loading all of it.

COUNTED_ANEW_BYTES = 1 << 20
"""The number of new bytes from which on a count of lines is saved, so that the next one continues there."""


class LineFile:
    """The lines of the file `path`, none while it does not exist. Methods raise `StorageError`."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path
        self._counted = Record(files, files.base / INDEXES / f"{path.relative_to(files.base)}.json")

    def last(self, count: int) -> list[str]:
        """Returns the last `count` lines, oldest first."""
        data = b""
        for file in self._opened():
            position = file.seek(0, os.SEEK_END)
            while position and data.count(b"\n") <= count:
                start = max(position - BLOCK_BYTES, 0)
                file.seek(start)
                data = file.read(position - start) + data
                position = start
        return _lines(data)[-count:] if count else []

    def since(self, number: int) -> list[str]:
        """Returns the lines from this number on; the first line is 0."""
        return [_text(line) for file in self._opened() for line in islice(file, number, None)]

    def count(self) -> int:
        """Returns the number of lines."""
        lines, end = self._noted()
        for file in self._opened():
            size = file.seek(0, os.SEEK_END)
            if size < end:  # it was truncated
                lines, end = 0, 0
            file.seek(end)
            last = b""
            while block := file.read(BLOCK_BYTES):
                lines, end, last = lines + block.count(b"\n"), end + len(block), block
            if last and not last.endswith(b"\n"):
                return lines + 1
            if end - self._noted()[1] > COUNTED_ANEW_BYTES:
                self._note(lines, end)
        return lines

    def _noted(self) -> tuple[int, int]:
        noted = self._counted.read()
        found = isinstance(noted, list) and len(noted) == 2 and all(isinstance(number, int) for number in noted)
        return (noted[0], noted[1]) if found else (0, 0)

    def _note(self, lines: int, end: int) -> None:
        try:
            self._counted.write([lines, end], durable=False)
        except StorageError:
            return  # the lines are counted again

    def _opened(self) -> Iterator[BinaryIO]:
        with storage_errors(self.path, FileNotFoundError):
            self.files.containment.require(self.path.parent)
            try:
                file = open(self.path, "rb", opener=careful)  # noqa: SIM115 - closed below
            except FileNotFoundError:
                return
            with file:
                yield file


def _lines(data: bytes) -> list[str]:
    return [_text(line) for line in data.split(b"\n")[: None if not data.endswith(b"\n") else -1]] if data else []


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode(errors="replace")


ROTATE_BYTES = 1 << 20
_LINES = json.JSONEncoder(ensure_ascii=False)


class Journal:
    """An append-only file of JSON lines; invalid lines are skipped. With `rotates` (for derived data) the file is
    renamed to `….1` past `ROTATE_BYTES`. With `durable` its lines survive a power cut."""

    def __init__(self, files: Files, path: Path, *, rotates: bool = False, durable: bool = False) -> None:
        self.files = files
        self.path = path
        self.rotates = rotates
        self.durable = durable
        self._older = path.with_name(f"{path.name}.1")

    def append(self, **facts: Any) -> None:
        """Appends a line. Raises `StorageError`."""
        # a lone surrogate, as from an argument that is not UTF-8, becomes JSON's escape for it
        line = _LINES.encode(facts).encode(errors="backslashreplace")
        end = self.files.append(self.path, line, sync=self.durable)
        if self.rotates and end > ROTATE_BYTES:
            self._rotate()

    def _rotate(self) -> None:
        """Renames the file if it is still full: another process may just have renamed it and begun a new one."""
        with self.files.locks.held(f"journal-{self.path.stem}"), storage_errors(self.path):
            if self.path.exists() and self.path.stat().st_size > ROTATE_BYTES:
                self.files.move(self.path, self._older)

    def newest_first(self, *needles: bytes, without: bytes | None = None) -> Iterator[dict[str, Any]]:
        """Yields the entries, newest first. Lines that contain `without`, or none of the `needles` if any are given,
        are left out and not parsed. Raises `StorageError`; derived data that cannot be read counts as missing."""
        for path in (self.path, self._older):
            try:
                yield from newest_first(self.files.blocks_from_end(path), *needles, without=without)
            except StorageError as error:
                if not self.rotates:
                    raise
                logger.warning("%s is passed over: %s", path, error)


# The audit log: the accountable actions of people and agents, one file a day (docs/format.md, The tree).

_FILE = re.compile(r"(?P<day>[0-9]{8})([.][^.]+)?[.]jsonl")


class AuditLog:
    """The files `audit/{YYYYMMDD}.jsonl`, and `audit/{YYYYMMDD}.{machine}.jsonl` of other machines; days are in UTC."""

    def __init__(self, files: Files, directory: Path) -> None:
        self.files = files
        self.directory = directory

    def add(self, at: datetime, tool: str, **facts: object) -> None:
        """Appends an entry, durably. Raises `StorageError`."""
        journal = Journal(self.files, self.directory / f"{_day(at)}.jsonl", durable=True)
        journal.append(at=format_time(at), tool=tool, **facts)

    def newest_first(self, tool: str, since: datetime, until: datetime) -> Iterator[tuple[datetime, dict[str, Any]]]:
        """Yields the time and the facts of each entry of `tool` in the period, from all machines: newest day first,
        and within a day each machine's entries newest first."""
        for name in reversed(self.files.names(self.directory)):
            if (found := _FILE.fullmatch(name)) is None or not _day(since) <= found["day"] <= _day(until):
                continue
            for entry in Journal(self.files, self.directory / name).newest_first(json.dumps(tool).encode()):
                at = parse_time(entry.get("at"))
                if entry.get("tool") == tool and at is not None and since <= at <= until:
                    yield at, entry


def _day(at: datetime) -> str:
    return format_time(at)[:10].replace("-", "")


# Logs of the delivery of messages and notifications: rings and, between machines, steps through the hub
# (docs/protocol.md, Delivery states).

Entry = Mapping[str, Any]


class StepLog(Journal):
    """A log whose entries have `state`, `at`, and `messages` (ids of messages and notifications). It may be deleted."""

    def __init__(self, files: Files, path: Path) -> None:
        super().__init__(files, path, rotates=True)

    def add(self, state: str, at: datetime, items: Collection[str], **facts: Any) -> None:
        """Appends an entry. Raises `StorageError`."""
        self.append(state=state, at=format_time(at), messages=list(items), **facts)

    def steps(self) -> Mapping[str, list[Entry]]:
        """Returns the entries about each message or notification, oldest first: id → `{"state", "at", "reason"?,
        "machine"?}`."""
        from multi_agent_mcp.domain.delivery import item_ids_of  # here and below: who only counts mail rings nobody

        about: dict[str, list[Entry]] = {}
        for entry in reversed(list(self.newest_first())):
            step = {key: entry[key] for key in ("state", "at", "reason", "machine") if entry.get(key) is not None}
            for item_id in item_ids_of(entry):
                about.setdefault(item_id, []).append(step)
        return about


class TravelLog(StepLog):
    """`.share/travel.jsonl`: the way of mail between machines. The state of an entry is `queued` (on this machine, with
    the `reason`), `on_hub`, `refused` (it is never sent, with the `reason`) or `arrived` (from a `machine`)."""


class DeliveryLog(StepLog):
    """`.doorbell/{agent_id}.jsonl`: the outcome of every attempt to ring an agent. The state of an entry is `rung`,
    `submitted` or `deferred`. An entry may have a `reason`; one that is not deferred also has `pane` and `attempt`.
    Only the time of the next ring depends on this log."""

    def rings(self) -> Iterator[Entry]:
        """Yields the entries that are not deferred, newest first, without parsing the others, which may be many."""
        return self.newest_first(without=b'"deferred"')

    def without_deferral(self, items: Collection[str], reason: str | None) -> list[str]:
        """Returns those items whose last entry is not a deferral for this reason. Unread items are tried again and
        again: an entry for every attempt would make the log grow with the square of their number. Only lines that name
        one of the items are parsed, and none older than the last entry of each."""
        from multi_agent_mcp.domain.delivery import item_ids_of

        unseen, deferred = set(items), set[str]()
        for entry in self.newest_first(*(json.dumps(item_id, ensure_ascii=False).encode() for item_id in items)):
            about = unseen.intersection(item_ids_of(entry))
            if (entry.get("state"), entry.get("reason")) == ("deferred", reason):
                deferred |= about
            unseen -= about
            if not unseen:
                break
        return [item_id for item_id in items if item_id not in deferred]


# Edits by people that conflict with an earlier change by another machine: its version is kept, the edit is set aside
# (docs/protocol.md, Several machines).

_MARK = re.compile(rb"^%s: .*\n" % HUB.encode(), re.MULTILINE)
EDITED_ELSEWHERE = Reason("edited_elsewhere")


class Conflicts:
    """The conflicting edits of a session: copies in quarantines, and a log of their paths and times,
    `.share/conflicts.jsonl`. All methods may raise `StorageError`."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._journal = Journal(files, files.base / SHARE / "conflicts.jsonl", durable=True)

    def keep_file(self, path: Path) -> None:
        """Copies an edited file into the quarantine beside it. The file itself stays until it is replaced. Once the
        copy is mended and moved back, it is based on what is there then, whatever it was based on."""
        if (data := self.files.read(path)) is not None:
            based = _MARK.sub(f"{HUB}: {NOW}\n".encode(), data, count=1)
            self._add(Quarantine(self.files, path.parent).keep(path.name, based, EDITED_ELSEWHERE))

    def keep(self, name: str, data: bytes) -> None:
        """Stores an edited part of a file in the session's quarantine, under this name or a similar one."""
        self._add(Quarantine(self.files, self.files.base).keep(name, data, EDITED_ELSEWHERE))

    def standing(self) -> list[dict[str, str]]:
        """Returns the conflicts whose copy still exists, newest first: `path` in the session's directory, and `at`."""
        known = {str(entry.get("path")): str(entry.get("at")) for entry in self._journal.newest_first()}
        return [{"path": path, "at": at} for path, at in known.items() if os.path.lexists(self.files.base / path)]

    def _add(self, placed: Path) -> None:
        self._journal.append(at=format_time(now()), path=str(placed.relative_to(self.files.base)))
