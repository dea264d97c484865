"""`doctor`: what is wrong with a session directory, one line per finding, with what mends it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.services.doctor import integrity as truth
from multi_agent_mcp.services.doctor import processes, storage, tree
from multi_agent_mcp.services.doctor import team as people
from multi_agent_mcp.services.doctor.finding import PROBLEM, CheckContext, Finding, in_words

Check = Callable[[CheckContext], Iterator[Finding]]

CHECKS: dict[str, Check] = {
    "registry": people.registry,
    "keys": people.keys,
    "hierarchy": people.hierarchy,
    "panes": people.panes,
    "tree": tree.directories,
    "links": tree.links,
    "modes": tree.modes,
    "unreadable": tree.unreadable,
    "files": tree.quarantined,
    "leftovers": tree.leftovers,
    "interrupts": truth.interrupts,
    "undertakings": storage.undertakings,
    "disk": storage.bad_sectors,
    "hard_links": storage.hard_links,
    "sessions": processes.sessions,
    "locks": processes.locks,
    "supervisor": processes.windows,
    "waiting": processes.waits,
    "events": processes.events,
}
VERIFY: dict[str, Check] = {"signatures": truth.signatures}
"""Looks at every message there is, so only when asked for."""


class Doctor:
    """Looks, and changes nothing unless it is told to repair."""

    def __init__(self, patient: CheckContext) -> None:
        self.patient = patient

    def examine(self, *, verify: bool = False) -> list[Finding]:
        """Everything found, problems first. A check that itself breaks is a finding."""
        checks = {**CHECKS, **(VERIFY if verify else {})}
        found: dict[tuple[str, str], Finding] = {}
        for name, check in checks.items():
            for finding in self._run(name, check):
                found.setdefault((finding.subject, finding.finding), finding)  # what breaks every check is told once
        return sorted(found.values(), key=lambda finding: finding.level != PROBLEM)

    def repair(self, findings: list[Finding]) -> list[Finding]:
        """Mends what doctor can mend by itself. Returns what was mended; what failed is found again."""
        mended = []
        for finding in findings:
            if finding.mend is None:
                continue
            try:
                finding.mend()
            except (Refusal, OSError) as error:
                why = in_words(error) if isinstance(error, Refusal) else str(error)
                mended.append(replace(finding, finding=f"{finding.finding}; the repair failed: {why}"))
            else:
                mended.append(replace(finding, repair=f"done: {finding.repair}"))
        return mended

    def _run(self, name: str, check: Check) -> list[Finding]:
        found: list[Finding] = []
        try:
            found.extend(check(self.patient))
        except OSError as error:
            path = Path(os.fsdecode(error.filename)).name if error.filename else name
            refusal = StorageError(path=path, reason=error.strerror or str(error))
            found.append(Finding(name, PROBLEM, "-", in_words(refusal)))
        except Refusal as refusal:
            found.append(Finding(name, PROBLEM, "-", in_words(refusal)))
        return found
