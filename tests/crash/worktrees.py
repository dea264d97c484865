"""Kills worktrees being added, tasks being delivered and merged, and worktrees being removed: at random moments, since
most of the disk's changes are those of git's own processes, which go on or die with ours.

After each kill no worktree, branch or intent is left over, no commit is lost, and the main checkout is clean.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.team.setup import add_missing, create_session
from multi_agent_mcp.system.git import git
from multi_agent_mcp.wiring import Services
from tests.conftest import TEAM
from tests.crash.stage import context

AGENT = "worker-a"
LONGEST = {"add": 0.15, "deliver": 0.06, "merge": 0.5, "remove": 0.15}
"""The seconds within which each is killed, about as long as it takes."""
REMOVED = 0.3
"""The share of a worktree's lives that end before it has delivered anything."""


def tried(kills: int, seed: int = 7) -> list[str]:
    """Goes on until so many processes were killed; returns the complaints."""
    with tempfile.TemporaryDirectory() as base:
        project = _project(Path(base) / "project")
        run = Run(project, random.Random(seed))  # noqa: S311 - to be played again, no secret
        while run.kills < kills:
            run.step()
        return run.wrong


@dataclass
class Run:
    """One agent's worktree, which is added, used and removed again and again."""

    project: Path
    random: random.Random
    kills: int = 0
    task_id: str | None = None
    commits: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def step(self) -> None:
        """Recovers the session, looks at what is left, and kills what comes next."""
        services = self._services()
        services.operations.finish()  # where git was killed, it refuses, and nothing may be lost by that
        for lock in (self.project / ".git").rglob("*.lock"):
            lock.unlink()  # as git itself says after a crash
        services.operations.finish()
        self.wrong += self._complaints(services)
        name, act = self._next(services)
        if self._killed(act, self.random.uniform(0, LONGEST[name])):
            self.kills += 1

    def _services(self) -> Services:
        return context(self.project / ".multi-agent-mcp")

    def _next(self, services: Services) -> tuple[str, Callable[[], object]]:
        agent = services.agents.get(AGENT)
        worktree = services.worktrees.of(AGENT)
        if worktree is None:
            return "add", lambda: services.worktrees.add(agent)
        if self.task_id is None and self.random.random() < REMOVED:
            return "remove", lambda: services.worktrees.remove(AGENT)
        if self.task_id is None:
            self._begin(services, Path(worktree.path))
        task = services.task_changes.get(str(self.task_id))
        if not task.final:
            return "deliver", lambda: services.task_changes.set_status(agent, task.id, "done")
        delivery = services.worktrees.delivery(task.id)
        if delivery is None:
            self.wrong.append(f"the delivery of {task.id} is lost")
        elif not services.worktrees.is_merged(delivery):
            return "merge", lambda: self._merge(services, task, Path(worktree.path))
        self.task_id = None
        return self._next(services)

    def _merge(self, services: Services, task: Task, directory: Path) -> None:
        """Merges what was delivered; a conflict is resolved by its author, and the resolution merged."""
        owner = services.agents.get("owner")
        if services.merging.merge(owner, task).conflicts:
            git(directory, "merge", "--no-commit", "-X", "ours", "main", ok=(0, 1, 128))
            git(directory, "commit", "-q", "-m", "resolved", ok=(0, 1, 128))
            services.deliveries.set_status(services.agents.get(AGENT), task.id, "done")
            services.merging.merge(owner, services.task_changes.get(task.id))

    def _begin(self, services: Services, directory: Path) -> None:
        """Commits something in the worktree for a new task: on its branch or on none,
        every third time in conflict with the project."""
        number = len(self.commits)
        git(directory, "merge", "--abort", ok=(0, 128))
        if number % 2:
            git(directory, "checkout", "-q", "--detach")
        (directory / f"{number}.txt").write_text(str(number))
        if number % 3 == 0:
            (self.project / f"{number}.txt").write_text("mine")
            git(self.project, "add", "-A")
            git(self.project, "commit", "-q", "-m", f"mine {number}")
        git(directory, "add", "-A")
        git(directory, "commit", "-q", "-m", str(number))
        self.commits.append(git(directory, "rev-parse", "HEAD"))
        created = services.task_creation.create(
            services.agents.get("admin"), [NewTask(title=str(number), assignee_id=AGENT)]
        )
        self.task_id = created[0].id
        services.task_changes.set_status(services.agents.get(AGENT), self.task_id, "in_progress")

    def _killed(self, act: Callable[[], object], after: float) -> bool:
        """Runs this in a child and kills it, half of the times with git's processes; whether it still ran then."""
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                act()
            except Refusal:
                os._exit(1)
            os._exit(0)
        time.sleep(after)  # the moment is what is drawn
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
        whole = self.random.random() < 0.5 and os.getpgid(pid) == pid
        (os.killpg if whole else os.kill)(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        _wait_until_gone(pid)
        return True

    def _complaints(self, services: Services) -> Iterator[str]:
        worktree = services.worktrees.of(AGENT)
        known = worktree is not None
        places = git(self.project, "worktree", "list", "--porcelain").splitlines()
        listed = any(line.endswith(f"-worktrees/demo-{AGENT}") for line in places if line.startswith("worktree "))
        if known != listed:
            yield f"git has the worktree: {listed}, the session: {known}"
        if not known and git(self.project, "branch", "--list", "mam/*"):
            yield "a branch is left without a worktree"
        heads = [] if worktree is None else [services.worktrees.head(worktree)]
        kept = git(self.project, "rev-list", "--branches", *heads).split()
        yield from (f"commit {commit} is lost" for commit in self.commits if commit not in kept)
        if changed := git(self.project, "status", "--porcelain"):
            yield f"the main checkout is changed: {changed}"
        if left := services.workspace.intents.left_behind():
            yield f"intents are left: {left}"


def _wait_until_gone(group: int) -> None:
    """Waits for the programs that a killed process had started: they go on without it."""
    for _ in range(1000):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError(f"processes of {group} go on")


def _project(project: Path) -> Path:
    """A repository with a session of ours in it."""
    project.mkdir()
    (project / ".gitignore").write_text(".multi-agent-mcp/\n")
    git(project, "init", "-q", "-b", "main")
    git(project, "config", "user.name", "Tester")
    git(project, "config", "user.email", "tester@example.org")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "first")
    root = project / ".multi-agent-mcp"
    create_session(root, "demo", TEAM, "en")
    add_missing(context(root).agents, TEAM)
    return project
