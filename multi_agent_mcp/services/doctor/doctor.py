"""The command `doctor`: runs the checks of a session and repairs their findings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.services.doctor import processes, team, tree
from multi_agent_mcp.services.doctor.finding import PROBLEM, CheckContext, Finding, Track, Usage, untracked

Check = Callable[[CheckContext], Iterator[Finding]]

CHECKS: dict[str, Check] = {
    "registry": team.registry,
    "keys": team.keys,
    "hierarchy": team.hierarchy,
    "panes": team.panes,
    "hosts": team.hosts,
    "hooks": team.hooks,
    "notify_command": team.notify_command,
    "misplaced": tree.misplaced,
    "disk": tree.unreadable,
    "tree": tree.tree,
    "notifications": tree.notifications,
    "undertakings": tree.operations,
    "hard_links": tree.hard_links,
    "sessions": processes.sessions,
    "locks": processes.locks,
    "supervisor": processes.windows,
    "waiting": processes.waits,
    "questions": processes.questions,
    "stuck": processes.stuck,
    "events": processes.events,
    "checks": team.checks,
    "telemetry": team.telemetry,
    "machines": team.machines,
    "worktrees": team.worktrees,
    "usage": team.usage,
}
VERIFY: dict[str, Check] = {"signatures": tree.signatures, "histories": tree.histories}
"""Checks that read every message and every task, and run only when asked for."""


class Doctor:
    """Examines a session; changes nothing unless asked to repair."""

    def __init__(self, context: CheckContext) -> None:
        self.context = context

    @property
    def usage(self) -> Usage:
        """The disk usage of the session's files, as of the last examination."""
        return self.context.usage

    def examine(self, *, verify: bool = False, track: Track = untracked) -> list[Finding]:
        """Runs the checks and returns all findings, problems first. A check that fails is a finding, too."""
        self.context = replace(self.context, track=track, usage=Usage())
        checks = {**CHECKS, **(VERIFY if verify else {})}
        found: dict[tuple[str, str], Finding] = {}
        for name, check in checks.items():
            for finding in self._run(name, check):
                found.setdefault(
                    (finding.subject, finding.finding), finding
                )  # a failure of several checks is reported once
        return sorted(found.values(), key=lambda finding: finding.level != PROBLEM)

    def repair(self, findings: list[Finding]) -> list[Finding]:
        """Repairs the findings that have a `fix`. Returns these findings, with the outcome of the repair."""
        repaired = []
        for finding in findings:
            if finding.fix is None:
                continue
            try:
                finding.fix()
            except (Refusal, OSError) as error:
                texts = self.context.texts
                why = texts.sentence(error) if isinstance(error, Refusal) else error
                words = texts("doctor.repair_failed", finding=finding.finding, reason=why)
                repaired.append(replace(finding, finding=words))
            else:
                repaired.append(replace(finding, repair=self.context.texts("doctor.repaired", repair=finding.repair)))
        return repaired

    def _run(self, name: str, check: Check) -> list[Finding]:
        found: list[Finding] = []
        try:
            found.extend(check(self.context))
        except OSError as error:
            path = Path(os.fsdecode(error.filename)).name if error.filename else name
            found.append(self._broken(name, StorageError(path=path, reason=error)))
        except Refusal as refusal:
            found.append(self._broken(name, refusal))
        return found

    def _broken(self, name: str, refusal: Refusal) -> Finding:
        kind = "storage" if isinstance(refusal, StorageError) else "refused"
        return self.context.found(name, PROBLEM, "-", kind, reason=self.context.texts.sentence(refusal))
