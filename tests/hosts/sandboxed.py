"""Codex in a worktree, in the sandbox that it has by itself (docs/hosts.md, Codex in its sandbox): it edits, cannot
commit, asks the person it works for, and delivers that commit, with a check."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from multi_agent_mcp.system.git import git
from tests.end_to_end.chat_support import new_task, task_of
from tests.end_to_end.support import UP, Team, Terminal, wait_until
from tests.hosts.awake import CODEX
from tests.hosts.lasting import LiteralModel
from tests.hosts.replies import Reply, Request
from tests.hosts.scenarios import Measured
from tests.hosts.scripted_model import PATIENCE_SECONDS, ScriptedModel
from tests.hosts.stage import AGENT, Host, clear_away, environment

OUTSIDE_TMP = "/var/tmp"  # noqa: S108 - a directory of its own is made there
"""Codex lets every command write below /tmp, so nothing there would show its sandbox."""
FILE, CHECK = "figures.txt", "figures"
TEAM = f"""\
session: demo
language: en
workspace: worktree
commit: {{commit}}
checks: {{{{{CHECK}: "grep -q codex {FILE}"}}}}
agents:
  - {{{{id: owner, role: owner, type: human}}}}
  - {{{{id: admin, role: admin, parent: owner}}}}
  - {{{{id: {AGENT}, role: worker, parent: admin, command: "{{command}}"}}}}
"""
COMMIT = "git commit -q -am 'Write the figures'"
READ_ONLY = "Read-only file system"
UNCOMMITTED = "not_committed"
ATTEMPTS = "for f in {git}/hooks/pre-commit {git}/config {git}/info/attributes .git; do echo x >>$f; done"
"""What would let it run a command outside of its sandbox, with the next git that somebody else calls."""


class Deliverer(LiteralModel):
    """Obeys our sentences. Its work is to edit the file, to try what the sandbox keeps from it, to report, and to
    commit with its person's leave once it is told that nothing is committed."""

    def __init__(self, host: Host, project: Path) -> None:
        super().__init__(host)
        self.attempts = f"echo codex >{FILE}; {COMMIT}; {ATTEMPTS.format(git=project / '.git')}"
        self.tried = ""
        """What came of its attempts inside of the sandbox."""
        self.step = 0

    def decide(self, request: Request) -> Reply:
        if self.step == 0 and self.told(request) == "report_completed":
            self.step = 1
            return self.host.shell(self.attempts)
        if self.step == 1:
            self.step, self.tried = 2, request.news
            return self.offered("report_completed", request)
        if self.step == 2 and UNCOMMITTED in request.news:
            self.step = 3
            return self.host.shell(COMMIT, ask=True)
        if self.step == 3:
            self.step = 4
            return self.offered("report_completed", request)
        return super().decide(request)


@dataclass(frozen=True)
class SandboxedScenario:
    """Played by Codex alone."""

    title: str
    commit: str
    """Who commits, as in team.yaml."""

    def fits(self, host: Host) -> bool:
        return host is CODEX

    def run(self, host: Host, binaries: Path) -> Measured:
        base = Path(tempfile.mkdtemp(prefix="mamh-", dir=OUTSIDE_TMP))
        try:
            with _team(host, base, binaries, self.commit) as played:
                return played.play()
        finally:
            clear_away(base)


class SandboxedTeam:
    """One worker, in a worktree of a repository outside of /tmp."""

    def __init__(self, host: Host, base: Path, env: dict[str, str], commit: str) -> None:
        self.project = base / "project"
        self.mind = Deliverer(host, self.project)
        self.model = ScriptedModel(self.mind.decide)
        for call in (["init", "-q", "-b", "main"], ["config", "user.name", "T"], ["config", "user.email", "t@e.org"]):
            git(self.project, *call)
        (self.project / FILE).write_text("none\n")
        git(self.project, "add", FILE)
        git(self.project, "commit", "-q", "-m", "first")
        self.team = Team(self.project, env).make(TEAM.format(command=host.command, commit=commit))
        env |= host.settle_in(base / "home", self.model.url, trusted=self.project)
        self.terminal = Terminal(Path(tempfile.mkdtemp(prefix="mam-", dir="/tmp")), env)

    def play(self) -> Measured:
        self.team.ask(*UP, "--socket", self.terminal.socket)
        (row,) = self.team.ask("workspace", "list")["workspaces"]
        tree = Path(row["path"])
        guarded = {path: path.read_bytes() for path in self.guarded(tree)}
        task = new_task(self.team, "Write the figures", done_when=(CHECK,))
        began = time.monotonic()
        wait_until(
            lambda: self.answered() or task_of(self.team, task.id).status == "done",
            "the task is done",
            2 * PATIENCE_SECONDS,
        )
        took = (time.monotonic() - began) * 1000
        assert self.mind.tried.count(READ_ONLY) == 5, f"the commit and four writes: {self.mind.tried}"
        assert guarded == {path: path.read_bytes() for path in self.guarded(tree)}, "something was changed outside"
        commit = git(tree, "rev-parse", "HEAD").strip()
        assert git(self.project, "show", f"{commit}:{FILE}").strip() == "codex"
        (receipt,) = self.team.services.checks.receipts_of(task.id)
        assert (receipt.check, receipt.passed, receipt.is_of_commit(commit)) == (CHECK, True, True), receipt
        assert self.team.ask("workspace", "merge", task.id)["merged"]
        assert (self.project / FILE).read_text() == "codex\n"
        return Measured(took, "assigned → committed, its check passed on that commit, done; merged")

    def guarded(self, tree: Path) -> list[Path]:
        """The files by which a process could run something outside of its sandbox."""
        return [*sorted((self.project / ".git" / "hooks").iterdir()), self.project / ".git" / "config", tree / ".git"]

    def answered(self) -> bool:
        """Answers what the host asks its person: to trust the directory, and to run the commit."""
        for dialog in self.team.ask("answer", AGENT)["dialogs"]:
            self.team.run("answer", AGENT, "1", "--question", dialog["id"])
        return False

    def end(self) -> None:
        self.team.run("down")
        self.terminal.end()
        self.model.close()

    @property
    def screen(self) -> str:
        return self.terminal("capture-pane", "-p", "-t", str(self.team.services.agents.get(AGENT).pane_id))


@contextmanager
def _team(host: Host, base: Path, binaries: Path, commit: str) -> Iterator[SandboxedTeam]:
    built = SandboxedTeam(host, base, environment(base, binaries), commit)
    try:
        yield built
    except Exception as error:
        error.add_note(built.screen)
        raise
    finally:
        built.end()


SANDBOXED_SCENARIOS = (
    SandboxedScenario(
        "worktree in the sandbox: edits, commits with leave, delivers that commit with its check", "agent"
    ),
    SandboxedScenario("worktree in the sandbox: our server commits what it reports, with its check", "server"),
)
