"""The audit log: what people and agents did that must be accounted for, a file a day (docs/format.md, The tree)."""

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
    """`audit/{YYYYMMDD}.jsonl`, of another machine `audit/{YYYYMMDD}.{machine}.jsonl`; days are those of UTC."""

    def __init__(self, files: Files, directory: Path) -> None:
        self.files = files
        self.directory = directory

    def add(self, at: datetime, tool: str, **facts: object) -> None:
        """Adds a line, durably. Raises `StorageError`."""
        journal = Journal(self.files, self.directory / f"{_day(at)}.jsonl", durable=True)
        journal.append(at=format_time(at), tool=tool, **facts)

    def newest_first(self, tool: str, since: datetime, until: datetime) -> Iterator[tuple[datetime, dict[str, Any]]]:
        """What `tool` wrote in the period, on all machines, and when; the lines of one machine newest first, day by
        day."""
        for name in reversed(self.files.names(self.directory)):
            if (found := _FILE.fullmatch(name)) is None or not _day(since) <= found["day"] <= _day(until):
                continue
            for entry in Journal(self.files, self.directory / name).newest_first(json.dumps(tool).encode()):
                at = parse_time(entry.get("at"))
                if entry.get("tool") == tool and at is not None and since <= at <= until:
                    yield at, entry


def _day(at: datetime) -> str:
    return format_time(at)[:10].replace("-", "")
