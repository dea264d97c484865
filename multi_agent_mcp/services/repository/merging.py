"""Merges what a task delivered into the project's branch (docs/protocol.md, Worktrees).

The merge is computed without any working tree (git-merge-tree(1)). One compare-and-set of the branch makes it true; the
project's checkout, which was clean, follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.text import one_line, quoted
from multi_agent_mcp.errors import InvalidArguments, StorageError
from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.session import Service
from multi_agent_mcp.system.git import GitFailed, git

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.mail import Messages
    from multi_agent_mcp.services.repository.worktrees import Worktrees
    from multi_agent_mcp.services.tasks.delivered import Delivery

FILES_SHOWN = 100
NOBODY = ("-c", "user.name=multi-agent-mcp", "-c", "user.email=multi-agent-mcp@localhost")
"""Who commits a merge where git knows no name of the user."""
CONFLICTS = 1
"""git-merge-tree(1): the exit code of a merge with conflicts."""


@dataclass(frozen=True, kw_only=True)
class MoveBranch(Operation):
    """The project's branch moves from one commit to a merge that has it as its first parent, and the checkout at `tree`
    follows."""

    KIND = "move_branch"

    tree: str
    ref: str
    old: str
    new: str


@dataclass(frozen=True)
class Merge:
    """What became of a merge: the commit that the branch has now, or the files in conflict and the message about them.
    `was_there`: it had been merged before."""

    delivery: Delivery
    commit: str | None = None
    conflicts: tuple[str, ...] = ()
    message_id: str | None = None
    was_there: bool = False


@dataclass(eq=False)
class Merging(Service):
    worktrees: Worktrees
    messages: Messages
    operations: Operations

    def merge(self, actor: Agent, task: Task) -> Merge:
        """Merges the commit that was recorded when the task was done. What conflicts goes to its author, by mail from
        `actor`. Raises `InvalidArguments` if nothing was delivered, or the checkout is dirty or on no branch; then
        nothing has moved."""
        delivery = self.worktrees.delivery(task.id)
        if delivery is None or task.status != "done":
            raise InvalidArguments("nothing_delivered", task_id=task.id, status=task.status)
        with self.workspace.locks.held("worktrees"):
            delivery = self._resolved(delivery)
            if self.worktrees.is_merged(delivery):
                return Merge(delivery, git(self.worktrees.project, "rev-parse", "HEAD"), was_there=True)
            merged = self._merged(delivery, task)
        return merged if merged.commit is not None else self._sent_back(actor, task, merged)

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {MoveBranch: self.apply_move}

    def apply_move(self, operation: MoveBranch, run: Run) -> None:  # noqa: ARG002
        """Moves the branch if it is still where it was, then the checkout if it is still at the old commit."""
        tree, ref, old, new = operation.tree, operation.ref, operation.old, operation.new
        if git(tree, "rev-parse", ref) == old:
            git(tree, "update-ref", "-m", "multi-agent-mcp: merge", ref, new, old)
        is_behind = git(tree, "rev-parse", ref) == new and git(tree, "write-tree") == _tree(tree, old)
        if is_behind and _tree(tree, old) != _tree(tree, new):
            try:
                git(tree, "read-tree", "-m", "-u", old, new)
            except GitFailed as failed:  # the branch has moved: this must be finished, not forgotten
                raise StorageError(path=tree, reason=str(failed)) from failed

    def _merged(self, delivery: Delivery, task: Task) -> Merge:
        project = self.worktrees.project
        ref = _branch_of(project)
        _require_clean(project)
        old = git(project, "rev-parse", ref)
        found = git(project, "merge-tree", "--write-tree", "--name-only", "-z", old, delivery.commit, ok=(0, CONFLICTS))
        tree, *names = found.split("\0")
        files = names[: names.index("")] if "" in names else names
        if files:
            self.worktrees.records.note(replace(delivery, returned=old))
            return Merge(delivery, conflicts=tuple(files))
        new = self._committed(project, tree, old, delivery, task)
        git(project, "read-tree", "-m", "-u", "-n", old, new)  # would it overwrite a file that git does not know?
        self.operations.run(MoveBranch(tree=str(project), ref=ref, old=old, new=new))
        if git(project, "rev-parse", ref) != new:
            raise InvalidArguments("branch_moved", branch=ref.removeprefix("refs/heads/"))
        return Merge(delivery, new)

    def _committed(self, project: Path, tree: str, old: str, delivery: Delivery, task: Task) -> str:
        words = f"Merge {task.id}: {one_line(task.title)}\n\nBy {delivery.agent_id}, from {delivery.branch}."
        parents = ("-p", old, "-p", delivery.commit)
        has_name = git(project, "var", "GIT_COMMITTER_IDENT", ok=(0, 128)) != ""
        return git(project, *(() if has_name else NOBODY), "commit-tree", tree, *parents, "-m", words)

    def _resolved(self, delivery: Delivery) -> Delivery:
        """After a conflict: the delivery at the first commit of the author's branch that has what it was in conflict
        with; the same one if there is none yet."""
        if delivery.returned is None:
            return delivery
        project, branch = self.worktrees.project, f"refs/heads/{delivery.branch}"
        later = git(project, "rev-list", "--reverse", "--first-parent", f"{delivery.returned}..{branch}", ok=(0, 128))
        for commit in later.split():
            if _is_ancestor(project, delivery.returned, commit):
                return self.worktrees.records.note(replace(delivery, commit=commit, returned=None))
        return delivery

    def _sent_back(self, actor: Agent, task: Task, merged: Merge) -> Merge:
        files = "\n".join(f"- {one_line(name)}" for name in merged.conflicts[:FILES_SHOWN])
        branch = _branch_of(self.worktrees.project).removeprefix("refs/heads/")
        facts = {"task_id": task.id, "title": quoted(task.title), "branch": branch, "files": files}
        draft = Draft(
            content=self.texts("merge.conflict", **facts),
            receiver_id=merged.delivery.agent_id,
            subject=self.texts("subject.merge_conflict", title=quoted(task.title)),
            priority="high",
            metadata={"task_id": task.id, "conflicts": list(merged.conflicts[:FILES_SHOWN])},
        )
        sent = self.messages.send(actor, draft)
        return replace(merged, message_id=sent.message_id)


def _branch_of(project: Path) -> str:
    """The branch that is checked out. Raises `InvalidArguments` if there is none."""
    ref = git(project, "symbolic-ref", "--quiet", "HEAD", ok=(0, 1))
    if not ref:
        raise InvalidArguments("no_branch", path=project)
    return ref


def _require_clean(project: Path) -> None:
    """Raises `InvalidArguments` if files that git knows have changes that are not committed."""
    git(project, "update-index", "-q", "--refresh", ok=(0, 1))
    changed = git(project, "status", "--porcelain", "--untracked-files=no").splitlines()
    if changed:
        names = ", ".join(line[3:] for line in changed[:5]) + (", …" if len(changed) > 5 else "")
        raise InvalidArguments("checkout_dirty", path=project, files=names)


def _tree(place: str, commit: str) -> str:
    return git(place, "rev-parse", f"{commit}^{{tree}}")


def _is_ancestor(project: Path, first: str, second: str) -> bool:
    try:
        git(project, "merge-base", "--is-ancestor", first, second)
    except GitFailed:
        return False
    return True
