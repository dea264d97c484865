"""Worktrees: each agent that wants one works in a git worktree of its own, on a branch of its own, beside the project
(docs/protocol.md, Worktrees).

What git knows is asked of git each time. Ours are the record of a worktree, `.workspaces/{agent_id}.json` (where it is,
and whether its setup has run), and of what a task delivered (`services/tasks/delivered.py`)."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.config import SHARED, WORKTREE, child_environment
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.records import Record
from multi_agent_mcp.system.file_status import common_directory, tree_of
from multi_agent_mcp.system.git import GitFailed, add_worktree, copy_untracked, git, uncommitted

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.tasks.delivered import Delivery, DeliveryRecords

INCLUDED = ".worktreeinclude"
"""Names untracked files of the project, as in .gitignore, that a new worktree gets copies of (`.env`)."""
FIRST_PORT, PORTS_EACH = 21_000, 50
PORT_BASE = "MULTI_AGENT_MCP_PORT_BASE"
SETUP_SECONDS = 1_800.0
SETUP_LINES = 5
DIRTY_SHOWN = 20


@dataclass(frozen=True)
class Worktree:
    """The record of a worktree. `base` is the commit that it began with, `setup` what became of the setup: None before
    it has run, `done`, or `failed`; `kept` why it was not removed although somebody wanted that."""

    agent_id: str
    path: str
    branch: str
    base: str
    port_base: int
    setup: str | None = None
    kept: str | None = None


@dataclass(frozen=True)
class State:
    """A worktree as git knows it now: the commits that the project's branch does not have, the files that are not
    committed, and its newest commit. Of one whose directory is gone the files are unknown (`is_there`)."""

    worktree: Worktree
    head: str
    ahead: int
    behind: int
    dirty: tuple[str, ...]
    is_there: bool

    @property
    def keeps(self) -> str | None:
        """Why it must not be removed, or None."""
        return "dirty" if self.dirty else "unmerged" if self.ahead else None

    @property
    def facts(self) -> dict[str, Any]:
        """The values of the texts `workspace.…` that say what became of it."""
        tree = self.worktree
        named = {"agent_id": tree.agent_id, "path": tree.path, "branch": tree.branch, "base": tree.base[:10]}
        return named | {"files": len(self.dirty), "commits": self.ahead}


@dataclass(frozen=True, kw_only=True)
class AddWorktree(Operation):
    KIND = "add_worktree"

    agent_id: str
    tree: str
    path: str
    branch: str
    base: str
    port_base: int


@dataclass(frozen=True, kw_only=True)
class RemoveWorktree(Operation):
    """The removal of a worktree that was clean and merged at `head`."""

    KIND = "remove_worktree"

    agent_id: str
    tree: str
    path: str
    branch: str
    head: str


@dataclass(eq=False)
class Worktrees(Service):
    """The worktrees of one session's agents on this machine."""

    operations: Operations
    records: DeliveryRecords
    is_running: Callable[[str], bool]
    """Whether a server of the agent runs."""

    def wants(self, agent: Agent) -> bool:
        """Whether the agent is to have a worktree: `workspace` of the agent, else of the team."""
        return bool(
            agent.extra.get("workspace", WORKTREE if self.session.settings.repository.worktrees else SHARED) == WORKTREE
        )

    def of(self, agent_id: str) -> Worktree | None:
        """The record of an agent's worktree, or None."""
        found: Worktree | None = _read(Worktree, self._record(agent_id))
        return found

    def all(self) -> list[Worktree]:
        names = self.workspace.files.names(self._place)
        found = (self.of(name.removesuffix(".json")) for name in sorted(names) if name.endswith(".json"))
        return [one for one in found if one is not None]

    def state(self, worktree: Worktree) -> State:
        """The worktree's state. Raises `GitFailed`."""
        project, branch = self.project, f"refs/heads/{worktree.branch}"
        is_there = Path(worktree.path, ".git").exists()
        head = git(project, "rev-parse", "--verify", "--quiet", branch, ok=(0, 1)) or worktree.base
        behind, ahead = git(project, "rev-list", "--left-right", "--count", f"HEAD...{head}").split()
        return State(
            worktree,
            head,
            int(ahead),
            int(behind),
            tuple(uncommitted(worktree.path)[:DIRTY_SHOWN]) if is_there else (),
            is_there,
        )

    @cached_property
    def project(self) -> Path:
        """The working tree in which the session lies, else this process's directory. Raises `InvalidArguments` outside
        of any."""
        if (tree := tree_of(str(self.workspace.root))) is not None:
            return Path(tree)
        if (tree := tree_of(str(Path.cwd() / "-"))) is not None:  # perhaps that of an agent
            common = Path(common_directory(tree))
            return common.parent if common.name == ".git" else Path(tree)
        raise InvalidArguments("no_repository", path=self.workspace.root.parent)

    def environment(self, agent_id: str) -> dict[str, str]:
        """The variables that tell an agent's programs which ports are its own."""
        found = self.of(agent_id)
        return {} if found is None else {PORT_BASE: str(found.port_base)}

    def ensure(self, agent: Agent) -> Worktree:
        """The agent's worktree, made if it has none, and set up if that has not been done. Raises `InvalidArguments`,
        and `GitFailed`."""
        found = self.of(agent.id)
        if found is None or not Path(found.path, ".git").exists():
            found = self.add(agent)
        return self.set_up(found)

    def add(self, agent: Agent) -> Worktree:
        """Makes the agent's worktree, or makes it again if its directory is gone. Raises as `ensure`."""
        with self.workspace.locks.held("worktrees"):
            found = self.of(agent.id)
            if found is not None and Path(found.path, ".git").exists():
                return found
            made: Worktree = self.operations.run(self._addition(agent, found))
            return made

    def set_up(self, worktree: Worktree) -> Worktree:
        """Runs `workspace_setup` in the worktree, until it has succeeded once. Raises `InvalidArguments`."""
        if worktree.setup == "done":
            return worktree
        if (command := self.session.settings.repository.workspace_setup) is not None:
            words = command if isinstance(command, str) else shlex.join(command)
            code, output = _ran(words, worktree, self._setup_environment(worktree))
            self.workspace.files.replace(self._place / f"{worktree.agent_id}.log", output)
            if code != 0:
                self._note(replace(worktree, setup="failed"))
                lines = output.decode(errors="replace").splitlines()[-SETUP_LINES:]
                raise InvalidArguments("setup_failed", agent_id=worktree.agent_id, code=code, lines=" / ".join(lines))
        return self._note(replace(worktree, setup="done"))

    def remove(self, agent_id: str) -> State:
        """Removes an agent's worktree and branch if nothing in them is lost thereby; else it is kept, and the state
        says why. Raises `InvalidArguments` if there is none, or the agent runs."""
        worktree = self.of(agent_id)
        if worktree is None:
            raise InvalidArguments("no_worktree", agent_id=agent_id)
        if self.is_running(agent_id):
            raise InvalidArguments("worktree_in_use", agent_id=agent_id)
        with self.workspace.locks.held("worktrees"):
            state = self.state(worktree)
            if state.keeps is None:
                facts = {"path": worktree.path, "branch": worktree.branch, "head": state.head}
                self.operations.run(RemoveWorktree(agent_id=agent_id, tree=str(self.project), **facts))
            else:
                self._note(replace(worktree, kept=state.keeps))
            return state

    def kept(self) -> Iterator[State]:
        """The worktrees that somebody wanted to be rid of, or whose agent was removed, and that hold work."""
        for worktree in self.all():
            agent = self.workspace.registry.all().get(worktree.agent_id)
            if worktree.kept is None and agent is not None and not agent.removed:
                continue
            with suppress(Refusal):
                if (state := self.state(worktree)).keeps is not None:
                    yield state

    # What tasks deliver

    def delivery(self, task_id: str) -> Delivery | None:
        """What a task delivers by its last report; None if nothing, or that was dropped."""
        task = self.workspace.tasks.find(task_id)
        return None if task is None else self.records.of(task)

    def delivered(self, task_id: str) -> dict[str, Any] | None:
        """What a task delivered, and whether it is merged, for commands and the console; None if nothing."""
        known = self.delivery(task_id)
        return None if known is None else {**asdict(known), "merged": self.is_merged(known)}

    def rows(self) -> list[dict[str, Any]]:
        """All worktrees with their states and deliveries, for commands and the console. One whose state git does not
        tell has the reason as `problem`."""
        deliveries = self.records.all()
        return [self._row(one, [done for done in deliveries if done.agent_id == one.agent_id]) for one in self.all()]

    def _row(self, worktree: Worktree, deliveries: list[Delivery]) -> dict[str, Any]:
        delivered = [
            {"task_id": one.task_id, "commit": one.commit, "merged": self.is_merged(one)} for one in deliveries
        ]
        row = {**asdict(worktree), "delivered": delivered}
        try:
            state = self.state(worktree)
        except Refusal as refusal:
            return {**row, "head": None, "ahead": 0, "behind": 0, "dirty": [], "problem": str(refusal)}
        return {**row, "head": state.head, "ahead": state.ahead, "behind": state.behind, "dirty": list(state.dirty)}

    def is_merged(self, delivery: Delivery) -> bool:
        """Whether the project's branch has the commit. False for one that is not known any more."""
        with suppress(GitFailed):
            git(self.project, "merge-base", "--is-ancestor", delivery.commit, "HEAD")
            return True
        return False

    # Operations

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {AddWorktree: self.apply_addition, RemoveWorktree: self.apply_removal}

    def apply_addition(self, operation: AddWorktree, run: Run) -> Worktree:
        """Makes the worktree, with copies of what `.worktreeinclude` names, then its record."""
        tree, path, branch = operation.tree, operation.path, operation.branch
        add_worktree(tree, path, branch, operation.base, again=run.again)
        copy_untracked(Path(tree), Path(path), INCLUDED, but=self.workspace.root)
        return self._note(Worktree(operation.agent_id, path, branch, operation.base, operation.port_base))

    def apply_removal(self, operation: RemoveWorktree, run: Run) -> None:  # noqa: ARG002
        """Removes the worktree, unless git finds changes there, then its branch, unless it has moved, then the
        record."""
        tree, branch = operation.tree, f"refs/heads/{operation.branch}"
        if Path(operation.path, ".git").exists():
            git(tree, "worktree", "remove", operation.path)
        git(tree, "worktree", "prune")
        if git(tree, "rev-parse", "--verify", "--quiet", branch, ok=(0, 1)):
            git(tree, "update-ref", "-d", branch, operation.head)
        self._record(operation.agent_id).remove()

    def _addition(self, agent: Agent, found: Worktree | None) -> AddWorktree:
        project = self.project
        session = self.workspace.session
        path = project.parent / f"{project.name}-worktrees" / f"{session}-{agent.id}"
        if found is None and path.exists():
            raise InvalidArguments("worktree_path_taken", path=path)
        base = git(project, "rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1))
        if not base:
            raise InvalidArguments("no_commit", path=project)
        return AddWorktree(
            agent_id=agent.id,
            tree=str(project),
            path=found.path if found else str(path),
            branch=found.branch if found else f"mam/{session}/{agent.id}",
            base=found.base if found else base,
            port_base=found.port_base if found else self._free_ports(),
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

    def _delivery_record(self, task_id: str) -> Record:
        return Record(self.workspace.files, self._place / "tasks" / f"{task_id}.json")

    @property
    def _place(self) -> Path:
        return self.workspace.path / ".workspaces"


def same_repository(first: str, second: str) -> bool:
    """Whether two working trees are of one repository."""
    return common_directory(first) == common_directory(second)


def _read(kind: Any, record: Record) -> Any:
    facts = record.read()
    try:
        return kind(**facts) if isinstance(facts, dict) else None
    except TypeError:  # by hand
        return None


def _ran(command: str, worktree: Worktree, environment: Mapping[str, str]) -> tuple[int, bytes]:
    """Runs a shell command in a worktree; returns its exit code and what it printed."""
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=worktree.path,
            env=child_environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=SETUP_SECONDS,
        )
    except subprocess.TimeoutExpired as late:
        return 124, (late.output or b"") + b"\ntimed out\n"
    return done.returncode, done.stdout
