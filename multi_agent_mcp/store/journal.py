"""A file of JSON lines that is only appended to: the doorbell's diary, the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from multi_agent_mcp.store.files import Files

ROTATE_BYTES = 1 << 20


class Journal:
    """Lines that cannot be read are skipped. Past a megabyte the file becomes `….1` and a new one is begun."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path
        self._older = path.with_name(f"{path.name}.1")

    def append(self, **facts: Any) -> None:
        self.files.append(self.path, json.dumps(facts, ensure_ascii=False))
        if self.path.stat().st_size > ROTATE_BYTES:
            self.path.replace(self._older)

    def newest_first(self) -> Iterator[dict[str, Any]]:
        for path in (self.path, self._older):
            for line in reversed(_lines(path)):
                try:
                    facts = json.loads(line)
                except ValueError:
                    continue
                if isinstance(facts, dict):
                    yield facts


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
