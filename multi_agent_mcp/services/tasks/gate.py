"""Tasks that somebody else has to look at whatever their conditions are: they change protected files, or checks that
nobody has approved (docs/protocol.md, Approval)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.patterns import matcher
from multi_agent_mcp.domain.proof import REVIEW, reviewer_of, reviews_in
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.tasks.diffs import ordered, reaches, shown_path
from multi_agent_mcp.session import Service
from multi_agent_mcp.system.diffs import LINK
from multi_agent_mcp.system.git import git
from multi_agent_mcp.system.working_tree import uncommitted

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.tasks.checks import Checks
    from multi_agent_mcp.services.tasks.delivered import DeliveredWork
    from multi_agent_mcp.services.tasks.diffs import Diffs
    from multi_agent_mcp.services.team.approvals import Approvals


@dataclass(eq=False)
class Gate(Service):
    """Says which tasks need a review because of what they change."""

    checks: Checks
    diffs: Diffs
    approvals: Approvals

    def asks_for_review(self, task: Task, why: Mapping[str, Any]) -> bool:
        """Whether a review becomes one of the task's conditions because of what it delivers (`why`)."""
        if not why or task.assignee_id is None or reviews_in(task.done_when):
            return False
        return self._has_reviewer(task.assignee_id)

    def _has_reviewer(self, assignee_id: str) -> bool:
        return reviewer_of(REVIEW, assignee_id, self.workspace.registry.all()) is not None

    def unseen(self, task: Task, commit: str) -> list[str]:
        """The protected files that a merge of what the done task delivered would change although no review has seen
        that, where somebody could review it. Raises `GitFailed`."""
        if "proof" not in self.session.features or not self._has_reviewer(str(task.assignee_id)):
            return []
        return self.diffs.unseen(commit)

    def why(self, task: Task, work: DeliveredWork | None = None) -> dict[str, Any]:
        """Which `protected` files the task changes by this `work`, or by now, and whether `checks_changed` since a
        person approved them; empty without `proof`."""
        if "proof" not in self.session.features:
            return {}
        protected = self._protected(task, work)
        changed = {"checks_changed": True} if task.checks and self.approvals.look().state != "approved" else {}
        return ({"protected": protected} if protected else {}) | changed

    def _protected(self, task: Task, work: DeliveredWork | None) -> list[str]:
        records = self.checks.records
        if not (patterns := self.checks.settings().protected):
            return []
        try:
            work = work or (None if task.final else records.look(task))  # it may have changed since the last report
            _, protected = ordered(self.diffs.of(task, work, now=True).files, patterns)
            return sorted(map(shown_path, protected | self._to_be_committed(task, patterns)))
        except Refusal:  # nobody knows what it changes: in a worktree that may be anything
            return ["?"] if records.workplaces.directory(str(task.assignee_id)) is not None else []

    def _to_be_committed(self, task: Task, patterns: Sequence[str]) -> set[str]:
        """The files among these that our server commits with the report."""
        place = None if task.final else self.checks.records.workplaces.commit_place(str(task.assignee_id))
        if place is None:
            return set()
        fresh = git(place.tree, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
        is_protected = matcher(patterns)
        return {
            path
            for path in filter(None, [*uncommitted(place.tree), *fresh])
            if is_protected(path) or reaches(patterns, path, LINK if Path(place.tree, path).is_symlink() else None)
        }
