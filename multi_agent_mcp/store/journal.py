"""Append-only files: lines, JSON lines, the audit log, delivery logs, conflicting edits."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from multi_agent_mcp.domain.delivery import item_ids_of
from multi_agent_mcp.domain.text import newest_first
from multi_agent_mcp.domain.times import format_time, now, parse_time
from multi_agent_mcp.errors import Reason, StorageError
from multi_agent_mcp.store.authority import HUB, NOW
from multi_agent_mcp.store.directory import Quarantine
from multi_agent_mcp.store.durable_files import BLOCK_BYTES, INDEXES, Files
from multi_agent_mcp.store.records import SHARE, Record
from multi_agent_mcp.system.file_status import careful
from multi_agent_mcp.system.files import storage_errors

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
        are left out and not parsed."""
        for path in (self.path, self._older):
            yield from newest_first(self.files.read(path) or b"", *needles, without=without)


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
        unseen, deferred = set(items), set[str]()
        for entry in self.newest_first(*(json.dumps(item_id, ensure_ascii=False).encode() for item_id in items)):
            about = unseen.intersection(item_ids_of(entry))
            if (entry.get("state"), entry.get("reason")) == ("deferred", reason):
                deferred |= about
            unseen -= about
            if not unseen:
                break
        return [item_id for item_id in items if item_id not in deferred]


# Edits by hand that conflict with an earlier change by another machine: its version is kept, the edit is set aside
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
        copy is mended and moved back, it is based on what stands then, whatever it was based on."""
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
