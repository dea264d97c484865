"""Worktrees: each agent that wants one works in a git worktree of its own, on a branch of its own, beside the project
(docs/protocol.md, Worktrees).

What git knows is asked of git each time. Ours are the record of a worktree, `.workspaces/{agent_id}.json` (where it is,
and whether its setup has run), and of what a task delivered (`services/tasks/delivered.py`)."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.text import some
from multi_agent_mcp.errors import InvalidArguments, Refusal, StorageError
from multi_agent_mcp.programs import python
from multi_agent_mcp.repository.named_commits import of_task
from multi_agent_mcp.repository.settings import BY_SERVER, WORKTREE
from multi_agent_mcp.repository.unfinished import unfinished
from multi_agent_mcp.repository.unmerged_work import UnmergedWork, commit_named, unmerged_work
from multi_agent_mcp.repository.worktree import Holdings, Worktree, WorktreeState
from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.locks import CHECKING
from multi_agent_mcp.store.records import Record
from multi_agent_mcp.system.bounded_run import end_of_output
from multi_agent_mcp.system.commit_hooks import forget_signing, sign_commits
from multi_agent_mcp.system.commits import CommitPlace, own_directory, shown_name
from multi_agent_mcp.system.file_status import common_directory, tree_of
from multi_agent_mcp.system.git import (
    GitFailed,
    add_worktree,
    branch_in_the_way,
    forget_worktree,
    git,
    is_ancestor,
    plain_environment,
)
from multi_agent_mcp.system.process import directory_of
from multi_agent_mcp.system.temporary import clear_temporary, copy_included, is_left, temporary_of
from multi_agent_mcp.system.working_tree import (
    BESIDE,
    been_at,
    files_of,
    in_progress,
    is_locked,
    locks_of,
    lost_in_submodules,
    only_here,
    remove_aside,
    set_aside,
    uncommitted,
    unmerged,
)

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.tasks.delivered import DeliveredWork, DeliveryRecords
    from multi_agent_mcp.services.team.workplaces import Workplaces

FIRST_PORT, PORTS_EACH = 21_000, 50
PORT_BASE = "MULTI_AGENT_MCP_PORT_BASE"
SETUP_SECONDS = 1_800.0
SETUP_LINES, SETUP_CHARACTERS = 5, 200
SETUP_BYTES = 1 << 20
"""Of what a setup printed, the end, in its log."""
DIRTY_SHOWN = 20
_HELD = ("in_progress", "review")
"""The statuses of tasks whose agent needs its worktree."""
_UNDONE = {"bisect": "reset"}
"""The word with which a command of git that is not finished is given up, where that is not `--abort`."""


@dataclass(frozen=True, kw_only=True)
class AddWorktree(Operation):
    KIND = "add_worktree"

    agent_id: str
    tree: str
    path: str
    branch: str
    base: str
    port_base: int
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class RemoveWorktree(Operation):
    """The removal of a worktree that holds nothing, or with `discards` only ignored files; its branch was at `head`, ""
    for none."""

    KIND = "remove_worktree"

    agent_id: str
    tree: str
    path: str
    branch: str
    head: str
    discards: bool = False


@dataclass(eq=False)
class Worktrees(Service):
    """The worktrees of one session's agents on this machine."""

    operations: Operations
    delivery_records: DeliveryRecords
    sessions: Sessions
    workplaces: Workplaces

    def wants(self, agent: Agent) -> bool:
        """Whether the agent is to have a worktree: `workspace` of the agent, else of the team."""
        return bool(
            "worktrees" in self.session.features
            and (agent.extra.get("workspace") or self.session.settings.of("workspace")) == WORKTREE
        )

    def commit_place(self, agent_id: str) -> CommitPlace | None:
        """The agent's worktree if our server commits in it: `commit` of the agent, else of the team."""
        worktree, agent = self.of(agent_id), self.workspace.registry.all().get(agent_id)
        if worktree is None or agent is None:
            return None
        if (agent.extra.get("commit") or self.session.settings.of("commit")) != BY_SERVER:
            return None
        return CommitPlace(worktree.path, agent_id, common_directory(str(self.project)))

    def of(self, agent_id: str) -> Worktree | None:
        """The record of an agent's worktree, or None."""
        found: Worktree | None = _read(Worktree, self._record(agent_id))
        return found

    def section(self, agent: Agent, _task: Task | None) -> str | None:
        """The section of the briefing about the worktree in which an agent works."""
        return self.workplaces.prompt(agent.id).strip() or None

    def still_open(self) -> list[str]:
        """The agents that have a worktree."""
        return [worktree.agent_id for worktree in self.all()]

    def all(self) -> list[Worktree]:
        names = self.workspace.files.names(self._place)
        found = (self.of(name.removesuffix(".json")) for name in sorted(names) if name.endswith(".json"))
        return [one for one in found if one is not None]

    def state(self, worktree: Worktree) -> WorktreeState:
        """The worktree's state, for a view: its index is believed. Raises as `holdings`."""
        project, path = self.project, worktree.path
        if is_there := worktree.is_there:
            own_directory(path, common_directory(str(project)))
        head = self.head(worktree)
        behind, ahead = git(project, "rev-list", "--left-right", "--count", f"HEAD...{head}").split()
        dirty = tuple(uncommitted(path, quickly=True)[:DIRTY_SHOWN]) if is_there else ()
        return WorktreeState(worktree, head, int(ahead), int(behind), dirty, is_there)

    def holdings(self, worktree: Worktree) -> Holdings:
        """What would be lost with the worktree. Raises `GitFailed`, and `NotCommitted` if git would look elsewhere."""
        project, path = self.project, worktree.path
        if not worktree.is_there:
            return Holdings(worktree=worktree, unmerged=unmerged(project, None, worktree.branch))
        own_directory(path, common_directory(str(project)))
        files = files_of(path)
        return Holdings(
            worktree=worktree,
            unmerged=unmerged(project, path, worktree.branch),
            in_progress=in_progress(path),
            dirty=tuple(files.changed),
            submodules=tuple(lost_in_submodules(path, project)),
            ignored=tuple(only_here(path, files.ignored, project)),
            is_locked=is_locked(path),
            tasks=tuple(one.id for one in self.workspace.tasks.open(worktree.agent_id) if one.status in _HELD),
        )

    def head(self, worktree: Worktree) -> str:
        """The commit that the worktree is at, or was when its directory went. Raises `GitFailed`."""
        words = ("rev-parse", "--verify", "--quiet", "HEAD")
        found = git(worktree.path, *words, ok=(0, 1)) if worktree.is_there else ""
        return found or self._tip(worktree) or worktree.base

    def _tip(self, worktree: Worktree) -> str:
        """The newest commit of the worktree's branch; "" if there is no such branch."""
        branch = f"refs/heads/{worktree.branch}"
        return git(self.project, "rev-parse", "--verify", "--quiet", branch, ok=(0, 1))

    @cached_property
    def project(self) -> Path:
        """The working tree in which the session is, wherever this process works. Raises `InvalidArguments` outside of
        any."""
        if (tree := tree_of(str(self.workspace.root))) is None:
            raise InvalidArguments("no_repository", path=self.workspace.root.parent)
        return Path(tree)

    def environment(self, agent_id: str) -> dict[str, str]:
        """The variables that tell an agent's programs which ports are its own."""
        found = self.of(agent_id)
        return {} if found is None else {PORT_BASE: str(found.port_base)}

    def ensure(self, agent: Agent) -> Worktree:
        """The agent's worktree, made if it has none, and set up if that has not been done. Raises `InvalidArguments`,
        and `GitFailed`."""
        found = self.of(agent.id)
        if found is None or not found.is_there:
            found = self.add(agent)
        found = self.set_up(found)
        named = (str(self.workspace.root), self.workspace.session, agent.id)
        sign_commits(found.path, agent.id, [*python("multi_agent_mcp.repository.authorship"), *named])
        return found

    def add(self, agent: Agent) -> Worktree:
        """Makes the agent's worktree, or makes it again if its directory is gone. Raises as `ensure`."""
        with self.workspace.locks.held("worktrees"):
            found = self.of(agent.id)
            if found is not None and found.is_there:
                return found
            made: Worktree = self.operations.run(self._addition(agent, found))
            return made

    def set_up(self, worktree: Worktree) -> Worktree:
        """Runs `workspace_setup` in the worktree, until it has succeeded once. Raises `InvalidArguments`."""
        if worktree.setup == "done":
            return worktree
        if (command := self.session.settings.of("workspace_setup")) is not None:
            words = ["/bin/sh", "-c", command if isinstance(command, str) else shlex.join(command)]
            environment = plain_environment(**self._setup_environment(worktree))
            code, output = end_of_output(
                words, Path(worktree.directory), environment, seconds=SETUP_SECONDS, kept=SETUP_BYTES
            )
            self.workspace.files.replace(self._place / f"{worktree.agent_id}.log", output)
            if code != 0:
                self._note(replace(worktree, setup="failed"))
                lines = [line[:SETUP_CHARACTERS] for line in output.decode(errors="replace").splitlines()]
                raise InvalidArguments(
                    "setup_failed", agent_id=worktree.agent_id, code=code, lines=" / ".join(lines[-SETUP_LINES:])
                )
        return self._note(replace(worktree, setup="done"))

    def _is_worked_in(self, worktree: Worktree) -> bool:
        """Whether the program in the agent's pane, such as a host that asks something before it starts our server,
        works there."""
        agent = self.workspace.registry.all().get(worktree.agent_id)
        there = directory_of(agent.pane_pid) if agent is not None and agent.pane_pid is not None else None
        return there is not None and Path(there).is_relative_to(os.path.realpath(worktree.path))

    def remove(self, agent_id: str, *, discards: bool = False) -> Holdings:
        """Removes an agent's worktree and branch if nothing is lost thereby, with `discards` but ignored files; else it
        is kept, for the reasons of what is returned. Raises `InvalidArguments` if there is none, or the agent runs."""
        worktree = self.of(agent_id)
        if worktree is None:
            raise InvalidArguments("no_worktree", agent_id=agent_id)
        if self.sessions.alive(agent_id) or self._is_worked_in(worktree):
            raise InvalidArguments("worktree_in_use", agent_id=agent_id)
        with self.workspace.locks.held("worktrees"):
            holdings = self.holdings(worktree)
            if reasons := holdings.reasons(discards=discards):
                self._note(replace(worktree, kept=reasons[0]))
            else:
                where = {"tree": str(self.project), "path": worktree.path, "branch": worktree.branch}
                self.operations.run(
                    RemoveWorktree(agent_id=agent_id, **where, head=self._tip(worktree), discards=discards)
                )
            return holdings

    def why_kept(self, holdings: Holdings, *, discards: bool = False) -> list[str]:
        """A sentence for each reason why a worktree is kept, with the command that helps, and at last how a person
        throws everything away; nothing if it is not."""
        worktree, reasons = holdings.worktree, holdings.reasons(discards=discards)
        project, path = (shlex.quote(str(one)) for one in (self.project, worktree.path))
        facts = {"path": worktree.path, "place": path, "agent_id": worktree.agent_id, "project": project}
        held = {"dirty": holdings.dirty, "ignored": holdings.ignored, "submodules": holdings.submodules}
        begun = {"command": holdings.in_progress, "undo": _UNDONE.get(holdings.in_progress or "", "--abort")}
        found = {"commits": holdings.unmerged.commits, "branches": " ".join(holdings.unmerged.names)}
        lines = []
        for reason in reasons:
            named = {"files": len(held.get(reason, ())), "names": some(held.get(reason, ()))}
            named["tasks"] = ", ".join(holdings.tasks)
            merges = self._merges(holdings, {**facts, **found}) if reason == "unmerged" else []
            lines += merges or [self.session.people(f"workspace.{reason}", **facts, **begun, **found, **named)]
        if reasons:
            branch = f" && git -C {project} branch -D {worktree.branch}" if self._tip(worktree) else ""
            lines.append(self.session.people("workspace.throw_away", **facts, branch=branch))
        return lines

    def _merges(self, holdings: Holdings, facts: Mapping[str, Any]) -> list[str]:
        """How what is unmerged is merged; nothing if none of it belongs to a task that is not cancelled."""
        say, work = self.session.people, self._unmerged_work(holdings)
        if not work.done and not work.open:
            return []
        lines = [say("workspace.unmerged_tasks", **facts)]
        lines += [say("workspace.unmerged_done", task_id=task_id) for task_id in work.done]
        lines += [say("workspace.unmerged_open", tasks=", ".join(work.open))] if work.open else []
        lines += [say("workspace.unmerged_others", branches=" ".join(work.others))] if work.others else []
        return lines

    def _unmerged_work(self, holdings: Holdings) -> UnmergedWork:
        worktree = holdings.worktree
        place = worktree.path if worktree.is_there else self.project
        delivered = [
            (task, one.commit)
            for one in self.delivery_records.all()
            if one.agent_id == worktree.agent_id and one.ahead != 0 and not self.is_merged(one)
            if commit_named(place, one.commit) and (task := self.workspace.tasks.find(one.task_id)) is not None
        ]
        tips = {name: commit_named(place, name) for name in holdings.unmerged.names}
        return unmerged_work(self.project, tips, delivered, lambda tip: self.begun_below(worktree.agent_id, tip))

    def begun_below(self, agent_id: str, commit: str) -> list[Task]:
        """Tasks that are not done and during which commits were made that this commit of an agent contains. Raises
        `GitFailed`."""
        tips = {one.agent_id: self.head(one) for one in self.all()}
        if not is_ancestor(self.project, commit, tips.get(agent_id, "")):
            tips[agent_id] = commit
        steps = {one.agent_id: been_at(one.path) for one in self.all()}
        return unfinished(self.project, commit, tips, steps, self.workspace.tasks.all())

    def kept(self) -> Iterator[Holdings]:
        """The worktrees that somebody wanted to be rid of, or whose agent was removed, and that hold something."""
        for worktree in self.all():
            agent = self.workspace.registry.all().get(worktree.agent_id)
            if worktree.kept is None and agent is not None and not agent.removed:
                continue
            with suppress(Refusal):
                if (holdings := self.holdings(worktree)).reasons():
                    yield holdings

    def left_checks(self) -> Iterator[tuple[str, Path]]:
        """The temporary worktrees that checks which were killed have left, with the agents whose checks they were."""
        if (project := tree_of(str(self.workspace.root))) is None:
            return
        usual = self._usual_place()
        for agent_id in self.workspace.registry.all():
            found = self.of(agent_id)
            worktree = usual / self._usual_name(agent_id) if found is None else Path(found.path)
            for path in (worktree.with_name(f"{worktree.name}.check"), temporary_of(Path(str(project)), agent_id)):
                if is_left(path) and not self.workspace.locks.is_held(f"{CHECKING}-{agent_id}"):
                    yield agent_id, path

    def remove_check(self, agent_id: str, path: Path) -> None:
        """Removes what a check of this agent has left there, unless one runs by now. Raises `GitFailed`,
        `StorageError`."""
        from filelock import Timeout  # most that ask for worktrees hold no such lock

        with suppress(Timeout), self.workspace.locks.lock(f"{CHECKING}-{agent_id}").acquire(timeout=0):
            clear_temporary(self.project, path)

    def not_trusted(self) -> GitFailed | None:
        """Git's refusal of the project as another user's, if an agent has a worktree or wants one."""
        if any(self.wants(agent) for agent in self.workspace.registry.active().values()) or self.all():
            try:
                git(self.workspace.root.parent, "rev-parse", "--git-dir")
            except GitFailed as failed:
                return failed if failed.is_of_owner else None
        return None

    def git_locks(self) -> list[Path]:
        """The locks, of the index and of branches, that keep git from finishing an operation: one that runs holds them,
        or one that was killed. None where nothing is to be finished."""
        kinds = {"add_worktree", "remove_worktree", "move_branch"}
        if not any(intent.kind in kinds for intent in self.workspace.intents.left_behind()):
            return []
        return locks_of(self.project)

    # What tasks deliver

    def delivery(self, task_id: str) -> DeliveredWork | None:
        """What a task delivers by its last report; None if nothing, or that was dropped."""
        task = self.workspace.tasks.find(task_id)
        return None if task is None else self.delivery_records.of(task)

    def left_behind(self) -> list[tuple[Task, DeliveredWork, str]]:
        """The tasks that were done without files that were not committed, with the names of some that still are not;
        none for a worktree that is gone."""
        found = []
        for task, delivery in self.delivery_records.reported():
            worktree = self.of(delivery.agent_id) if delivery.files and task.status == "done" else None
            if worktree is None or not delivery.is_of(task) or not worktree.is_there:
                continue
            with suppress(GitFailed):
                now = {shown_name(name) for name in uncommitted(worktree.path, quickly=True)}
                if files := [name for name in delivery.files if name in now]:
                    found.append((task, delivery, some(files)))
        return found

    def delivered(self, task_id: str) -> dict[str, Any] | None:
        """What a task delivered, and whether it is merged, for commands and the console; None if nothing."""
        known = self.delivery(task_id)
        return None if known is None else {**asdict(known), "merged": self.is_merged(known)}

    def commits(self, task: Task) -> list[dict[str, Any]]:
        """The commits that name this task, the newest first; none where git does not tell."""
        with suppress(Refusal):
            return of_task(self.project, task)
        return []

    def rows(self) -> list[dict[str, Any]]:
        """All worktrees with their states and deliveries, for commands and the console. One whose state git does not
        tell has the reason as `problem`."""
        deliveries = self.delivery_records.all()
        merged = self._merged(deliveries)
        of: dict[str, list[dict[str, Any]]] = {}
        for one in deliveries:
            is_merged = one.ahead != 0 and one.commit in merged
            of.setdefault(one.agent_id, []).append({"task_id": one.task_id, "commit": one.commit, "merged": is_merged})
        return [self._row(one, of.get(one.agent_id, [])) for one in self.all()]

    def _row(self, worktree: Worktree, delivered: list[dict[str, Any]]) -> dict[str, Any]:
        row = {**asdict(worktree), "delivered": delivered}
        try:
            state = self.state(worktree)
        except Refusal as refusal:
            return {**row, "head": None, "ahead": 0, "behind": 0, "dirty": [], "problem": str(refusal)}
        return {**row, "head": state.head, "ahead": state.ahead, "behind": state.behind, "dirty": list(state.dirty)}

    def is_merged(self, delivery: DeliveredWork) -> bool:
        """Whether the project's branch has what was delivered. False for a commit that is not known any more, and where
        nothing was committed."""
        if delivery.ahead == 0:
            return False
        with suppress(GitFailed):
            git(self.project, "merge-base", "--is-ancestor", delivery.commit, "HEAD")
            return True
        return False

    def _merged(self, deliveries: list[DeliveredWork]) -> set[str]:
        """As `is_merged` of many by two calls of git: the commits that the project's branch has."""
        commits = dict.fromkeys(one.commit for one in deliveries)
        if not commits:
            return set()
        asked = ("rev-list", "--no-walk", "--ignore-missing", *commits)
        with suppress(GitFailed):
            return set(git(self.project, *asked).split()) - set(git(self.project, *asked, "--not", "HEAD").split())
        return set()

    def to_merge(self) -> list[str]:
        """The done tasks whose delivered commit the project's branch does not have. One call of git. Raises
        `GitFailed`."""
        done = {task.id for task, _ in self.delivery_records.reported() if task.status == "done"}
        found = [one for one in self.delivery_records.all() if one.task_id in done and one.ahead != 0] if done else []
        if not found:
            return []
        commits = dict.fromkeys(one.commit for one in found)
        left = git(self.project, "rev-list", "--no-walk", "--ignore-missing", *commits, "--not", "HEAD").split()
        return [one.task_id for one in found if one.commit in left]

    # Operations

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {AddWorktree: self.apply_addition, RemoveWorktree: self.apply_removal}

    def apply_addition(self, operation: AddWorktree, run: Run) -> Worktree:
        """Makes the worktree, with copies of what `.worktreeinclude` names, then its record."""
        tree, path, branch = operation.tree, operation.path, operation.branch
        add_worktree(tree, path, branch, operation.base, again=run.again)
        copy_included(Path(tree), Path(path), but=self.workspace.root)
        made = Worktree(operation.agent_id, path, branch, operation.base, operation.port_base, place=operation.place)
        return self._note(made)

    def apply_removal(self, operation: RemoveWorktree, run: Run) -> None:  # noqa: ARG002
        """Moves the directory aside in one step, unless it holds something by now, and removes it there; then the
        branch, unless it has moved, then the record. Raises `InvalidArguments` before anything is changed,
        `StorageError` if it is to be finished."""
        path, worktree = Path(operation.path), self.of(operation.agent_id)
        if (path / ".git").exists() and worktree is not None:
            if self.holdings(worktree).reasons(discards=operation.discards):
                raise InvalidArguments("worktree_changed", path=path)
            set_aside(path)
        remove_aside(path)
        try:
            forget_worktree(operation.tree, operation.path, operation.branch, operation.head)
            forget_signing(operation.tree)
        except GitFailed as failed:  # the directory is gone: this must be finished, not forgotten
            raise StorageError(path=path, reason=str(failed)) from failed
        self._record(operation.agent_id).remove()

    def _addition(self, agent: Agent, found: Worktree | None) -> AddWorktree:
        project = self.project
        path = self._usual_place() / self._usual_name(agent.id)
        branch = found.branch if found else f"mam/{self.workspace.session}/{agent.id}"
        if found is None and path.exists():
            raise InvalidArguments("worktree_path_taken", path=path)
        base = git(project, "rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1))
        if not base:
            raise InvalidArguments("no_commit", path=project)
        if (other := branch_in_the_way(project, branch)) is not None:
            raise InvalidArguments("branch_in_the_way", branch=branch, other=other, path=shlex.quote(str(project)))
        return AddWorktree(
            agent_id=agent.id,
            tree=str(project),
            path=found.path if found else str(path),
            branch=branch,
            base=found.base if found else base,
            port_base=found.port_base if found else self._free_ports(),
            place=self._team_place(),
        )

    def _usual_name(self, agent_id: str) -> str:
        return f"{self.workspace.session}-{agent_id}"

    def _usual_place(self) -> Path:
        """Beside the project, or if that is a submodule beside what contains it: there `git add` would take it."""
        outermost, name = self.project, self.project.name
        while around := git(outermost, "rev-parse", "--show-superproject-working-tree"):
            outermost = Path(around)
            name = f"{outermost.name}-{name}"
        return outermost.parent / f"{name}{BESIDE}"

    def _team_place(self) -> str:
        """Where the team is below the top of the project, "" at the top or elsewhere."""
        team = Path(os.path.realpath(self.workspace.root.parent))
        return (
            team.relative_to(self.project).as_posix()
            if team.is_relative_to(self.project) and team != self.project
            else ""
        )

    def _free_ports(self) -> int:
        taken = {one.port_base for one in self.all()}
        return next(port for port in range(FIRST_PORT, 65_000, PORTS_EACH) if port not in taken)

    def _setup_environment(self, worktree: Worktree) -> dict[str, str]:
        mine = {"ROOT": str(self.workspace.root), "SESSION": self.workspace.session, "AGENT": worktree.agent_id}
        named = {f"MULTI_AGENT_MCP_{name}": value for name, value in mine.items()}
        return {**named, PORT_BASE: str(worktree.port_base), "MULTI_AGENT_MCP_PROJECT": str(self.project)}

    def _note(self, worktree: Worktree) -> Worktree:
        self._record(worktree.agent_id).write(asdict(worktree))
        return worktree

    def _record(self, agent_id: str) -> Record:
        return Record(self.workspace.files, self._place / f"{agent_id}.json")

    @property
    def _place(self) -> Path:
        return self.workspace.path / ".workspaces"


def same_repository(first: str, second: str) -> bool:
    """Whether two working trees are of one repository."""
    return common_directory(first) == common_directory(second)


def _read(kind: Any, record: Record) -> Any:
    try:
        return kind(**record.facts())
    except TypeError:  # written by a person
        return None
