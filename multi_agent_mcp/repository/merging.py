"""Merges what a task delivered into the project's branch (docs/protocol.md, Worktrees).

The merge is computed without any working tree (git-merge-tree(1)). One compare-and-set of the branch makes it true; the
project's checkout, which was clean, follows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.text import one_line, quoted, some
from multi_agent_mcp.errors import InvalidArguments, StorageError
from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.session import Service
from multi_agent_mcp.system.checkout import follow, hooks_of, in_the_way, is_untouched, seen_by_hook
from multi_agent_mcp.system.git import NO_HOOKS, GitFailed, git, is_ancestor

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.repository.worktrees import Worktrees
    from multi_agent_mcp.services.mail import Messages
    from multi_agent_mcp.services.tasks.delivered import DeliveredWork
    from multi_agent_mcp.services.tasks.deliveries import Deliveries
    from multi_agent_mcp.services.tasks.gate import Gate

FILES_SHOWN = 100
NOBODY = ("-c", "user.name=multi-agent-mcp", "-c", "user.email=multi-agent-mcp@localhost")
"""Who commits a merge where git knows no name of the user."""
CONFLICTS = 1
"""git-merge-tree(1): the exit code of a merge with conflicts."""
_NOT_DONE = {"in_progress": "only_reported", "review": "not_reviewed_yet"}
"""What keeps a task from being merged that has delivered, by its status."""
MESSAGE_HOOK = "commit-msg"
NOT_RUN = ("pre-merge-commit", "prepare-commit-msg", "post-merge")
"""Hooks of a merge (githooks(5)) that look at the checkout in the middle of it, of which there is none here."""


@dataclass(frozen=True, kw_only=True)
class MoveBranch(Operation):
    """The project's branch moves from one commit to a merge that has it as its first parent, or to a descendant where
    `merge.ff` is `only`, and the checkout at `tree` follows."""

    KIND = "move_branch"

    tree: str
    ref: str
    old: str
    new: str


@dataclass(frozen=True)
class Merge:
    """What became of a merge: the commit that the branch has now, or the files in conflict and the message about them.
    `was_there`: it had been merged before. `hooks`: those that git-merge(1) would have run, and this does not."""

    delivery: DeliveredWork
    commit: str | None = None
    conflicts: tuple[str, ...] = ()
    message_id: str | None = None
    was_there: bool = False
    hooks: tuple[str, ...] = ()


@dataclass(eq=False)
class Merging(Service):
    worktrees: Worktrees
    messages: Messages
    operations: Operations
    deliveries: Deliveries
    gate: Gate

    def merge(self, actor: Agent, task: Task) -> Merge:
        """Merges the commit that the done task delivered. What conflicts goes to its author, by mail from `actor`; once
        the author has committed a merge of both, that is delivered again, with the task's checks and reviews, and
        merged. Raises `InvalidArguments` if nothing was delivered, it contains commits of tasks that are not done, the
        checkout is dirty or on no branch, or a setting of the person's git forbids it; then nothing has moved."""
        delivery = self.worktrees.delivery(task.id)
        if delivery is None or task.status != "done":
            key = "nothing_delivered" if delivery is None else _NOT_DONE.get(task.status, "nothing_delivered")
            raise InvalidArguments(key, task_id=task.id, status=task.status)
        if delivery.ahead == 0:
            raise InvalidArguments("nothing_committed", task_id=task.id, commit=delivery.commit[:10])
        with self.workspace.locks.held("worktrees"):
            if self.worktrees.is_merged(delivery):
                return Merge(delivery, git(self.worktrees.project, "rev-parse", "HEAD"), was_there=True)
            if (resolution := self._resolution(delivery)) is None:
                merged = self._merged(delivery, task)
        if resolution is not None:  # its checks run without the lock
            return self.merge(actor, self.deliveries.resolve(task, resolution))
        return merged if merged.commit is not None else self._sent_back(actor, task, merged)

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {MoveBranch: self.apply_move}

    def apply_move(self, operation: MoveBranch, run: Run) -> None:
        """Moves the branch if it is still where it was, then the checkout if it is on that branch. If git refuses the
        latter before a file is changed, the branch goes back and `GitFailed` is raised: nothing has moved; else
        `StorageError`: this is to be finished."""
        tree, ref, old, new = Path(operation.tree), operation.ref, operation.old, operation.new
        if git(tree, "rev-parse", ref) == old:
            if run.again:
                _require_room(tree, old, new)
            _move(tree, ref, old, new)
        if git(tree, "rev-parse", ref) != new or git(tree, "symbolic-ref", "--quiet", "HEAD", ok=(0, 1)) != ref:
            return
        try:
            follow(tree, old, new)
        except GitFailed as failed:
            if _went_back(tree, ref, old, new):
                raise
            raise StorageError(path=tree, reason=str(failed)) from failed

    def _merged(self, delivery: DeliveredWork, task: Task) -> Merge:
        self._require_only_done(delivery)
        self._require_seen(delivery, task)
        project = self.worktrees.project
        ref = _branch_of(project)
        old = git(project, "rev-parse", ref)
        if _only_fast_forward(project) and not is_ancestor(project, old, delivery.commit):
            self.worktrees.delivery_records.note(replace(delivery, returned=old))
            raise InvalidArguments("no_fast_forward", branch=ref.removeprefix("refs/heads/"), task_id=task.id)
        found = git(project, "merge-tree", "--write-tree", "--name-only", "-z", old, delivery.commit, ok=(0, CONFLICTS))
        tree, *names = found.split("\0")
        files = names[: names.index("")] if "" in names else names
        if files:
            _require_room(project, old, old)
            delivery = self.worktrees.delivery_records.note(replace(delivery, returned=old))
            return Merge(delivery, conflicts=tuple(files))
        _require_room(project, old, delivery.commit if _only_fast_forward(project) else tree)
        new = delivery.commit if _only_fast_forward(project) else self._committed(project, tree, old, delivery, task)
        self.operations.run(MoveBranch(tree=str(project), ref=ref, old=old, new=new))
        if git(project, "rev-parse", ref) != new:
            raise InvalidArguments("branch_moved", branch=ref.removeprefix("refs/heads/"))
        self.worktrees.delivery_records.release_merged()
        return Merge(delivery, new, hooks=tuple(hooks_of(project, NOT_RUN)))

    def _committed(self, project: Path, tree: str, old: str, delivery: DeliveredWork, task: Task) -> str:
        """Makes the merge commit as the person's git would: the hook `commit-msg` sees its message, and it is signed
        where `commit.gpgsign` says so."""
        where = delivery.branch or delivery.commit[:10]
        words = f"Merge {task.id}: {one_line(task.title)}\n\nBy {delivery.agent_id}, from {where}.\n"
        has_name = git(project, "var", "GIT_COMMITTER_IDENT", ok=(0, 128)) != ""
        signs = git(project, "config", "--type=bool", "--default=false", "commit.gpgsign") == "true"
        options = (*(("-S",) if signs else ()), "-p", old, "-p", delivery.commit, "-F", "-")
        try:
            words = seen_by_hook(project, MESSAGE_HOOK, words)
        except GitFailed as failed:
            raise InvalidArguments("hook_refused", hook=MESSAGE_HOOK, said=failed.values["said"]) from failed
        try:
            return git(project, *(() if has_name else NOBODY), "commit-tree", tree, *options, text=words)
        except GitFailed as failed:
            if not signs:
                raise
            raise InvalidArguments("not_signed", said=failed.values["said"]) from failed

    def _require_only_done(self, delivery: DeliveredWork) -> None:
        """Raises `InvalidArguments` if the delivered commit contains commits of other tasks, which are not done; its
        author may then deliver it again without them."""
        project = self.worktrees.project
        tasks = {
            task.id: task
            for task in [
                *self._reported_below(delivery),
                *self.worktrees.begun_below(delivery.agent_id, delivery.commit),
            ]
        }
        if open_ones := [task for task in tasks.values() if task.id != delivery.task_id]:
            base = git(project, "merge-base", "HEAD", delivery.commit, ok=(0, 1))
            self.worktrees.delivery_records.note(replace(delivery, returned=base or delivery.commit))
            named = ", ".join(f"{task.id} ({task.status})" for task in open_ones)
            facts = {"agent_id": delivery.agent_id, "tasks": named, "path": shlex.quote(str(project))}
            given_up = any(task.status == "cancelled" for task in open_ones)
            key = "contains_cancelled" if given_up else "contains_unfinished"
            raise InvalidArguments(key, task_id=delivery.task_id, commit=delivery.commit[:10], **facts)

    def _require_seen(self, delivery: DeliveredWork, task: Task) -> None:
        """Raises `InvalidArguments` if the delivered commit changes protected files and no review has seen that; its
        author may then deliver it again as it is."""
        if files := self.gate.unseen(task, delivery.commit):
            self.worktrees.delivery_records.note(replace(delivery, returned=delivery.commit))
            facts = {"agent_id": delivery.agent_id, "files": some(files)}
            raise InvalidArguments("protected_unseen", task_id=task.id, commit=delivery.commit[:10], **facts)

    def _reported_below(self, delivery: DeliveredWork) -> Iterator[Task]:
        """Tasks that are not done and have reported a commit that is contained. A commit that several have reported is
        that of the first."""
        project, reported = self.worktrees.project, self.worktrees.delivery_records.reported()
        done = [one for task, one in reported if task.status == "done"]
        for task, one in reported:
            if task.status == "done" or not is_ancestor(project, one.commit, delivery.commit):
                continue
            others = {other.commit for other in done if other.commit != one.commit or other.at <= one.at}
            before = [other for other in others if is_ancestor(project, other, one.commit)]
            if git(project, "rev-list", "--max-count=1", one.commit, "--not", "HEAD", *before):
                yield task

    def _resolution(self, delivery: DeliveredWork) -> DeliveredWork | None:
        """After a conflict: the first commit of its author that has merged what was delivered with what that was in
        conflict with; None if there is none, or no conflict."""
        project, returned = self.worktrees.project, delivery.returned
        worktree = self.worktrees.of(delivery.agent_id)
        if returned is None or worktree is None or is_ancestor(project, returned, delivery.commit):
            return None
        head = self.worktrees.head(worktree)
        later = git(project, "rev-list", "--reverse", "--first-parent", head, f"^{delivery.commit}", ok=(0, 128))
        for commit in later.split() if is_ancestor(project, delivery.commit, head) else ():
            if is_ancestor(project, returned, commit):
                return replace(delivery, commit=commit, returned=None, uncommitted=0, files=())
        return None

    def _sent_back(self, actor: Agent, task: Task, merged: Merge) -> Merge:
        files = "\n".join(f"- {one_line(name)}" for name in merged.conflicts[:FILES_SHOWN])
        branch = _branch_of(self.worktrees.project).removeprefix("refs/heads/")
        facts = {"task_id": task.id, "title": quoted(task.title), "files": files}
        facts |= {"branch": branch, "ref": shlex.quote(branch)}
        draft = Draft(
            content=self.texts("merge.conflict", **facts),
            receiver_id=merged.delivery.agent_id,
            subject=self.texts("subject.merge_conflict", title=quoted(task.title)),
            priority="high",
            metadata={"task_id": task.id, "conflicts": list(merged.conflicts[:FILES_SHOWN])},
            idempotency_key=f"conflict:{task.id}:{merged.delivery.commit}:{merged.delivery.returned}",
        )
        sent = self.messages.send(actor, draft)
        return replace(merged, message_id=sent.message_id)


def _branch_of(project: Path) -> str:
    """The branch that is checked out. Raises `InvalidArguments` if there is none."""
    ref = git(project, "symbolic-ref", "--quiet", "HEAD", ok=(0, 1))
    if not ref:
        raise InvalidArguments("no_branch", path=project)
    return ref


def _require_room(project: Path, old: str, new: str) -> None:
    """Raises `InvalidArguments` if files that git knows have changes that are not committed, or others are where `new`
    brings some."""
    git(project, "update-index", "-q", "--refresh", ok=(0, 1))
    listed = git(project, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=no").split("\0")
    if changed := [entry[3:] for entry in listed if entry]:
        raise InvalidArguments("checkout_dirty", path=project, files=some(changed))
    if found := in_the_way(project, old, new):
        raise InvalidArguments("file_in_the_way", path=project, files=some(found))
    git(project, "read-tree", "-m", "-u", "-n", old, new)


def _move(tree: Path, ref: str, old: str, new: str, *options: str) -> None:
    """Moves a branch by compare-and-set. Where it is afterwards counts, whatever git or a hook says. Raises
    `GitFailed`, also if the hook `reference-transaction` forbids it: the branch is the person's."""
    try:
        git(tree, *options, "update-ref", "-m", "multi-agent-mcp: merge", ref, new, old)
    except GitFailed:
        if git(tree, "rev-parse", ref) != new:
            raise


def _went_back(tree: Path, ref: str, old: str, new: str) -> bool:
    """Moves a branch back that the checkout could not follow, if nothing of it has changed; returns whether it did."""
    with suppress(GitFailed):
        if is_untouched(tree, old, new):
            _move(tree, ref, new, old, *NO_HOOKS)
            return True
    return False


def _only_fast_forward(project: Path) -> bool:
    return git(project, "config", "merge.ff", ok=(0, 1)) == "only"
