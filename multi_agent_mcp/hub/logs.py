"""Applies parts of logs, written by other machines, to the files: execution logs of their agents and their audits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.entity import agent_id as parse_agent_id
from multi_agent_mcp.hub import subjects
from multi_agent_mcp.hub.stream import OFFSET, Stored
from multi_agent_mcp.system.file_status import signature_of

if TYPE_CHECKING:
    from multi_agent_mcp.hub.subjects import Names
    from multi_agent_mcp.store.workspace import Workspace

LOGS_BYTES, BLOCK_BYTES = 512 << 20, 4096
"""The most that the logs of one machine occupy on another one's disk, and the least that a file does."""
_DAY = re.compile(r"\d{8}")
_EXECUTION = re.compile(r"exec_[0-9a-f]{12}")


@dataclass(eq=False)
class LogParts:
    """Writes parts of logs to the files of one session. `is_home` says whether a machine is or was an agent's home."""

    workspace: Workspace
    names: Names
    machine: str
    is_home: Callable[[str, str], bool]
    full: set[str] = field(default_factory=set)
    """The machines whose logs have reached `LOGS_BYTES` here: nothing is added to them."""
    _occupied: dict[str, int] = field(default_factory=dict)
    _gaps: list[str] = field(default_factory=list)
    _asked_again: set[str] = field(default_factory=set)

    def has(self, stored: Stored) -> bool:
        """Returns whether a value is part of a log."""
        return stored.subject.startswith(f"{self.names.root}.log.")

    def agent_of(self, stored: Stored) -> str | None:
        """Returns the agent whose execution it is about; None for an audit. Raises `ValueError`."""
        _, kind, owner, stem = self._parsed(stored)
        return owner if kind == subjects.LOG and stem else None

    def apply(self, stored: Stored, *, restoring: bool) -> None:
        """Adds a part to a log. An offset continues what is there, or the parts before it are asked for again
        (`gaps_to_fill`). Raises `ValueError`, also for a machine whose logs are `full`, and `StorageError`."""
        machine, kind, owner, stem = self._parsed(stored)
        if machine == self.machine and not restoring:
            return
        if kind == subjects.AUDIT and _DAY.fullmatch(owner):
            mine = machine == self.machine
            path = self.workspace.path / "audit" / (f"{owner}.jsonl" if mine else f"{owner}.{machine}.jsonl")
        elif kind == subjects.LOG and _EXECUTION.fullmatch(stem) and self.is_home(machine, owner):
            path = self.workspace.path / "executions" / parse_agent_id(owner) / "logs" / f"{stem}.log"
        else:
            return
        size = (signature_of(path) or (0, 0))[1]
        if not 0 <= (offset := int(stored.headers[OFFSET])) <= size:
            if 0 < offset < LOGS_BYTES:
                self._gaps.append(stored.subject)
            raise ValueError(offset)
        grows = _on_disk(max(size, offset + len(stored.data))) - _on_disk(size)
        if machine != self.machine and self._of(machine) + grows > LOGS_BYTES:
            self.full.add(machine)
            raise ValueError("logs")
        self.workspace.files.extend(path, offset, stored.data)
        self._occupied[machine] = self._occupied.get(machine, 0) + grows

    def gaps_to_fill(self) -> list[str]:
        """Returns the subjects of logs of which a part came that does not continue what is there, to be applied again
        as a whole. Each is returned once: if a part is missing on the hub, too, the rest is passed over."""
        gaps = [subject for subject in dict.fromkeys(self._gaps) if subject not in self._asked_again]
        self._gaps.clear()
        self._asked_again.update(gaps)
        return gaps

    def ask_again_later(self, gap: str) -> None:
        """Has a log be asked for again later, as the hub could not be asked."""
        self._asked_again.discard(gap)

    def _parsed(self, stored: Stored) -> tuple[str, str, str, str]:
        """Returns what a part of a log is: its machine and kind, the agent (or day) and the execution. Raises
        `ValueError`."""
        _, machine, kind, name = stored.subject.removeprefix(f"{self.names.root}.log.").split(".")
        owner, _, stem = subjects.unquoted(name).partition("/")
        return machine, kind, owner, stem

    def _of(self, machine: str) -> int:
        """Returns how many bytes the logs of a machine occupy here, as they were when this relay began and have grown
        since."""
        if machine not in self._occupied:
            base, names = self.workspace.path, self.workspace.files.names
            homes = (each.id for each in self.workspace.registry.all().values() if each.machine == machine)
            directories = [base / "executions" / name / "logs" for name in homes]
            kept = [where / name for where in directories for name in names(where)]
            kept += [base / "audit" / name for name in names(base / "audit") if name.endswith(f".{machine}.jsonl")]
            self._occupied[machine] = sum(_on_disk((signature_of(path) or (0, 0))[1]) for path in kept)
        return self._occupied[machine]


def _on_disk(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES
