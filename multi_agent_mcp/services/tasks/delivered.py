"""What tasks deliver from worktrees: one commit each, recorded in `.workspaces/tasks/{task_id}.json` whenever the
assignee says that its task is done (docs/protocol.md, Worktrees).

The record names the lines of history that the task had then, so that a reassignment or a rejection ends it by being
written into the task: no process has to remove it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.history import Line, new_value, old_value
from multi_agent_mcp.domain.text import one_line, sanitize
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.services.team.workplaces import RECORDS
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.records import Record
from multi_agent_mcp.system.commits import commit_all, own_directory, shown_name
from multi_agent_mcp.system.file_status import common_directory, tree_of
from multi_agent_mcp.system.git import NO_HOOKS, GitFailed, git, is_ancestor
from multi_agent_mcp.system.working_tree import uncommitted

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.team.workplaces import Workplaces

logger = logging.getLogger(__name__)

FILES_SHOWN = 20


@dataclass(frozen=True)
class DeliveredWork:
    """What a task delivers: the `commit` at which its agent's worktree was at the last report, on whatever `branch`
    (None for none), and how many files were `uncommitted` then, of which `files` names the first. `number`: how many
    lines the task's history had. `returned`: it could not be merged as it is; it is delivered again with a commit that
    contains this one, such as the project's with which it was in conflict, or the same again, to be reviewed. `ahead`:
    how many commits the project did not have then; with 0 nothing was committed for it. `by_server`: our server made
    the commit; `held_back`: why it did not commit the rest, in words."""

    task_id: str
    agent_id: str
    branch: str | None
    commit: str
    at: str
    uncommitted: int = 0
    returned: str | None = None
    files: tuple[str, ...] = ()
    number: int | None = None
    ahead: int | None = None
    by_server: bool = False
    held_back: str | None = None

    @classmethod
    def of(cls, facts: Any) -> DeliveredWork | None:
        """The record with these facts, of this version or another; None if they are none."""
        try:
            known = {spec.name: facts[spec.name] for spec in fields(cls) if spec.name in facts}
            return cls(**{**known, "files": tuple(known.get("files", ()))})
        except (TypeError, LookupError):  # written by a person
            return None

    def is_of(self, task: Task) -> bool:
        """Whether the task still delivers this: not if it was cancelled, given to another agent, or given back."""
        if task.status == "cancelled" or task.assignee_id != self.agent_id:
            return False
        later = () if self.number is None else task.history.since(self.number)
        return not any(_drops(line, self.agent_id) for line in later)


def _drops(line: Line, agent_id: str) -> bool:
    """Whether a change of the task ends what was delivered before: the work is another's, or is to be done again, as a
    check has failed or somebody wants it."""
    before, after = old_value(line, "status"), new_value(line, "status")
    is_returned = after == "todo" or (before == "review" and after == "in_progress")
    return "assignee_id" in line or line.get("delivered") is False or (is_returned and line.get("by") != agent_id)


@dataclass(eq=False)
class DeliveryRecords(Service):
    """The records of one session's tasks on this machine."""

    workplaces: Workplaces

    def look(self, task: Task) -> DeliveredWork | None:
        """What the task would deliver now; None if its agent has no worktree here. Raises as `place`."""
        if task.assignee_id is None or (place := self.place(task.assignee_id)) is None:
            return None
        files = uncommitted(place)
        return DeliveredWork(
            task_id=task.id,
            agent_id=str(task.assignee_id),
            branch=git(place, "symbolic-ref", "--quiet", "--short", "HEAD", ok=(0, 1)) or None,
            commit=git(place, "rev-parse", "--verify", "HEAD"),
            at=format_time(self.clock()),
            uncommitted=len(files),
            files=tuple(map(shown_name, files[:FILES_SHOWN])),
            number=len(task.history),
            ahead=int(git(place, "rev-list", "--count", "HEAD", "--not", "main-worktree/HEAD")),
        )

    def place(self, agent_id: str) -> Path | None:
        """Where the agent works in its worktree; None if it has none here. Raises `NotCommitted` if git would look at
        another repository there than the project's, whose commits nobody else has, and `GitFailed`."""
        found, project = self.workplaces.of(agent_id), tree_of(str(self.workspace.root))
        if found is None or project is None or not Path(found.path).is_dir():
            return None
        own_directory(found.path, common_directory(project))
        return Path(found.directory)

    def commit_and_look(self, task: Task, summary: str | None) -> DeliveredWork | None:
        """As `look`, after our server has committed what the agent has left, where it is to do so."""
        place, made, why = self.workplaces.commit_place(str(task.assignee_id)), None, None
        if place is not None and self.workplaces.directory(place.agent_id) is not None:
            words = (
                one_line(task.title),
                sanitize(summary or "").strip(),
                f"Task: {task.id}\nAgent: {task.assignee_id}",
            )
            try:
                made = commit_all(place, "\n\n".join(filter(None, words)))
            except Refusal as refusal:
                why = self.texts.sentence(refusal)
        if (found := self.look(task)) is None:
            return None
        known = self.of(task)
        is_ours = found.commit == made or (known is not None and known.by_server and known.commit == found.commit)
        return replace(found, by_server=is_ours, held_back=why if found.files else None)

    def report(self, task: Task, summary: str | None = None, *, failed: bool = False) -> None:
        """Records what the task delivers now, as its assignee says that it is done, in place of what was recorded
        before: nothing if it has `failed`. What is over stays as it is. Never raises: a report must not fail for
        it."""
        try:
            if task.final or not self._are_kept:
                return
            if failed:
                self._record(task.id).remove()
            elif (found := self.commit_and_look(task, summary)) is not None:
                self.note(found)
        except Refusal as refusal:
            logger.warning("what %s delivers is not known: %s", task.id, refusal)

    def finish(self, task: Task) -> None:
        """Records what a task that is done delivers, unless its assignee has reported it. Never raises."""
        try:
            if self._are_kept and self.of(task) is None and (found := self.look(task)) is not None:
                self.note(found)
        except Refusal as refusal:
            logger.warning("what %s delivers is not known: %s", task.id, refusal)

    def of(self, task: Task) -> DeliveredWork | None:
        """What the task delivers by its last report, or delivered; None if nothing, or that was dropped. What was
        examined before a task became done counts, whatever a killed process has recorded since."""
        found = DeliveredWork.of(self._record(task.id).read()) if self._are_kept else None
        if found is None or not found.is_of(task):
            return None
        return found if task.proven_head in (None, found.commit) else replace(found, commit=str(task.proven_head))

    def left_behind(self, task: Task) -> Sequence[str]:
        """The files that were not committed when the task was last reported."""
        found = self.of(task)
        return () if found is None else found.files

    def uncommitted_count(self, task: Task) -> int:
        """How many files were not committed, so that a task that is done did not deliver them."""
        found = self.of(task) if task.status == "done" else None
        return 0 if found is None else found.uncommitted

    @property
    def _are_kept(self) -> bool:
        """Whether anybody has a place of its own: it costs a stat(2) where nobody has."""
        return (self.workspace.path / RECORDS).is_dir()

    def is_returned(self, task: Task) -> bool:
        """Whether the task is done, and its assignee may deliver it again, as it could not be merged."""
        found = self.of(task) if task.status == "done" else None
        return found is not None and found.returned is not None

    def resolution(self, task: Task) -> DeliveredWork | None:
        """What a task that is done delivers now in place of what could not be merged; None for any other task. Raises
        `InvalidArguments` if that could not be merged either, and `GitFailed`."""
        known = self.of(task) if task.status == "done" else None
        if known is None or known.returned is None or (found := self.look(task)) is None:
            return None
        place = Path(str(self.workplaces.directory(known.agent_id)))
        if found.commit == known.commit != known.returned or not is_ancestor(place, known.returned, found.commit):
            raise InvalidArguments(
                "not_resolved", task_id=task.id, commit=found.commit[:10], returned=known.returned[:10]
            )
        return found

    def note(self, delivery: DeliveredWork) -> DeliveredWork:
        """Records it. A ref of ours holds its commit: git deletes what only a reflog has (git-gc(1)). No hook is asked:
        reporting runs no program of the repository's choice."""
        if (place := tree_of(str(self.workspace.root))) is not None:
            try:
                git(place, *NO_HOOKS, "update-ref", self._ref(delivery.task_id), delivery.commit)
            except GitFailed as failed:
                logger.warning("no ref holds what %s delivers: %s", delivery.task_id, failed)
        self._record(delivery.task_id).write(asdict(delivery))
        return delivery

    def release_merged(self) -> None:
        """Removes our refs to commits that the project has. Never raises."""
        try:
            if (place := tree_of(str(self.workspace.root))) is not None:
                ours = ("for-each-ref", "--merged=HEAD", "--format=delete %(refname)", f"{self._ref('')}*")
                if merged := git(place, *ours):
                    git(place, *NO_HOOKS, "update-ref", "--stdin", text=f"{merged}\n")
        except Refusal as refusal:
            logger.warning("refs to what is merged are left: %s", refusal)

    def _ref(self, task_id: str) -> str:
        return f"refs/multi-agent-mcp/{self.workspace.session}/{task_id}"

    def all(self) -> list[DeliveredWork]:
        """What all tasks deliver, the newest last."""
        names = self.workspace.files.names(self._place)
        tasks = [self.workspace.tasks.find(name.removesuffix(".json")) for name in names if name.endswith(".json")]
        found = [self.of(task) for task in tasks if task is not None]
        return sorted((one for one in found if one is not None), key=lambda one: (one.at, one.task_id))

    def reported(self) -> list[tuple[Task, DeliveredWork]]:
        """The last report of each task, also if it was dropped since."""
        names = (name.removesuffix(".json") for name in self.workspace.files.names(self._place))
        found = (
            (self.workspace.tasks.find(name), DeliveredWork.of(self._record(name).read())) for name in sorted(names)
        )
        return [(task, one) for task, one in found if task is not None and one is not None]

    def _record(self, task_id: str) -> Record:
        return Record(self.workspace.files, self._place / f"{task_id}.json")

    @property
    def _place(self) -> Path:
        return self.workspace.path / RECORDS / "tasks"
