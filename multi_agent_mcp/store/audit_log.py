"""The audit log: the accountable actions of people and agents, one file a day (docs/format.md, The tree)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.journal import Journal

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
