"""Disk usage of a session, by kind of file."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

from multi_agent_mcp.store.files.walk import Node
from multi_agent_mcp.store.quarantine import DIRECTORY

ASIDE = frozenset({"archive", "logs", DIRECTORY})
"""Subdirectories of a kind that are counted separately."""


class Usage:
    """The number of files and their size on the disk, by kind: `ipc`, `ipc/archive`, `executions/logs`, …"""

    def __init__(self) -> None:
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def add(self, node: Node) -> None:
        kind = _kind(node.name.rpartition("/")[0])
        self._files[kind] += not node.is_directory
        self._bytes[kind] += node.disk_bytes

    def files(self, *kinds: str) -> int:
        return sum(self._files[kind] for kind in kinds)

    def as_answer(self) -> list[dict[str, Any]]:
        """The kinds with their numbers of files and bytes, largest first."""
        return [{"kind": kind, "files": self._files[kind], "bytes": size} for kind, size in self._bytes.most_common()]


@lru_cache(maxsize=64)  # the files of a directory are adjacent
def _kind(directory: str) -> str:
    first, *deeper = directory.split("/")
    aside = [] if first.startswith(".") else [part for part in deeper if part in ASIDE]
    return "/".join([first or ".", *aside[:1]])
