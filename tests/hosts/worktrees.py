"""Claude Code and Codex in worktrees of one repository (docs/protocol.md, Edits and Worktrees): both edit one file and
are told, one is merged, the other gets the conflict and resolves it."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from multi_agent_mcp.system.git import git
from tests.end_to_end.chat_support import new_task, notifications, task_of
from tests.end_to_end.support import UP, Team, Terminal, wait_until
from tests.hosts.awake import CLAUDE, CODEX
from tests.hosts.claude import ASKING
from tests.hosts.codex import HOOK_QUESTION, TRUST_ALL
from tests.hosts.lasting import LiteralModel
from tests.hosts.replies import Call, Reply, Request, Say
from tests.hosts.scenarios import Measured
from tests.hosts.scripted_model import PATIENCE_SECONDS, ScriptedModel
from tests.hosts.stage import Host, clear_away, environment

FILE = "app.txt"
TEAM = """\
session: demo
language: en
workspace: worktree
agents:
  - {{id: owner, role: owner, type: human}}
  - {{id: admin, role: admin, parent: owner}}
  - {{id: claude, role: worker, parent: admin, command: "{claude}"}}
  - {{id: codex, role: worker, parent: admin, command: "{codex}"}}
"""
LISTENING = 4
"""The tool calls after both have edited: what the other's edit brings comes with a tool's result."""
MERGE = "run `git merge main`"
RESOLVE = f"git merge main; git checkout --ours {FILE} && git add -A && git commit -q --no-edit"
PATCH = f"""\
apply_patch <<'EOF'
*** Begin Patch
*** Update File: {FILE}
@@
-one
+codex
*** End Patch
EOF"""


@dataclass
class Shared:
    """What both models know of each other: how many have edited."""

    edited: set[str] = field(default_factory=set)
    both: threading.Event = field(default_factory=threading.Event)

    def has_edited(self, name: str) -> None:
        self.edited.add(name)
        if len(self.edited) == 2:
            self.both.set()


class Editor(LiteralModel):
    """Obeys our sentences; its work is to edit the file, to wait until the other has, and to commit."""

    def __init__(self, host: Host, shared: Shared) -> None:
        super().__init__(host)
        self.shared = shared
        self.tree = Path()
        self.step, self.works = 0, False

    def decide(self, request: Request) -> Reply:
        if MERGE in request.news:
            return self.host.shell(RESOLVE)
        told = self.told(request)
        if (told or "report_completed") != "report_completed":
            return super().decide(request)
        self.works = self.works or told is not None
        if not self.works:
            return Say("OK")
        step, self.step = self.step, self.step + 1
        if step < len(edits := self.edits()):
            return edits[step]
        self.shared.has_edited(self.host.name)
        if step == len(edits):
            return self.host.shell(f"git commit -q -am '{self.host.name}'")
        if not self.shared.both.is_set():
            return self.host.shell("sleep 1")
        if step < len(edits) + LISTENING:
            return self.host.shell("sleep 0.5")
        self.works = False
        return self.offered("report_completed", request)

    def edits(self) -> list[Call]:
        path = str(self.tree / FILE)
        if self.host is CLAUDE:
            change = {"file_path": path, "old_string": "one", "new_string": "claude"}
            return [Call("Read", {"file_path": path}), Call("Edit", change)]
        return [self.host.shell(PATCH)]


@dataclass(frozen=True)
class WorktreesScenario:
    """Played once, for Claude Code."""

    title: str = "worktrees: both edit one file and are told, one merges, the other gets the conflict"

    def fits(self, host: Host) -> bool:
        return host is CLAUDE

    def run(self, host: Host, binaries: Path) -> Measured:
        del host
        base = Path(tempfile.mkdtemp(prefix="mamh-", dir="/tmp"))
        try:
            with _team(base, binaries) as played:
                return played.play()
        finally:
            clear_away(base)


class WorktreesTeam:
    """Both workers, with one model for each host."""

    def __init__(self, base: Path, env: dict[str, str]) -> None:
        shared = Shared()
        self.editors = {host.name: Editor(host, shared) for host in (CLAUDE, CODEX)}
        self.model = ScriptedModel(self.decide)
        self.project = base / "project"
        for call in (["init", "-q", "-b", "main"], ["config", "user.name", "T"], ["config", "user.email", "t@e.org"]):
            git(self.project, *call)
        (self.project / FILE).write_text("one\n")
        git(self.project, "add", FILE)
        git(self.project, "commit", "-q", "-m", "first")
        commands = {
            name: editor.host.hooked_command.replace(ASKING, "--permission-mode acceptEdits")
            for name, editor in self.editors.items()
        }
        self.team = Team(self.project, env).make(TEAM.format(**commands))
        for editor in self.editors.values():
            env |= editor.host.settle_in(base / "home", self.model.url, trusted=self.project)
        self.terminal = Terminal(Path(tempfile.mkdtemp(prefix="mam-", dir="/tmp")), env)

    def decide(self, request: Request) -> Reply:
        is_codex = any("/" in tool for tool in request.tools) or "exec_command" in request.tools
        return self.editors[CODEX.name if is_codex else CLAUDE.name].decide(request)

    def end(self) -> None:
        self.team.run("down")
        self.terminal.end()
        self.model.close()

    def play(self) -> Measured:
        self.team.ask(*UP, "--socket", self.terminal.socket)
        for row in self.team.ask("workspace", "list")["workspaces"]:
            self.editors[row["agent_id"]].tree = Path(row["path"])
        wait_until(self.has_begun, "both hosts have begun", 2 * PATIENCE_SECONDS)
        tasks = {name: new_task(self.team, f"Change {FILE}", name) for name in self.editors}
        began = time.monotonic()
        for task in tasks.values():
            wait_until(lambda task=task: task_of(self.team, task.id).status == "done", "done", 2 * PATIENCE_SECONDS)  # type: ignore[misc]
        told = {
            name: [item for item in notifications(self.team, name) if item.action == "edit_overlap"] for name in tasks
        }
        assert all(len(found) == 1 for found in told.values()), f"told of the overlap: {told}"
        first, second = (self.team.run("workspace", "merge", tasks[name].id, "--json").json for name in self.editors)
        assert first["merged"], first
        assert (second["merged"], second["conflicts"]) == (False, [FILE]), second
        self.model.request_with(MERGE, seconds=2 * PATIENCE_SECONDS)
        tree = self.editors[CODEX.name].tree
        wait_until(lambda: " " in git(tree, "log", "-1", "--format=%P"), "the author resolves it", PATIENCE_SECONDS)
        assert self.team.ask("workspace", "merge", tasks[CODEX.name].id)["merged"]
        assert (self.project / FILE).read_text() == "codex\n"
        assert git(self.project, "status", "--porcelain", "--untracked-files=no") == ""
        return Measured(
            (time.monotonic() - began) * 1000, "assigned → both told once, merged, conflict resolved, merged"
        )

    def has_begun(self) -> bool:
        """Answers what the hosts ask at their start, until both have called our server."""
        called = [any(item.called for item in self.team.services.sessions.live(name)) for name in self.editors]
        for name in self.editors:
            for dialog in self.team.ask("answer", name)["dialogs"]:
                key = TRUST_ALL if HOOK_QUESTION in self.screen(name) else "1"
                self.team.run("answer", name, key, "--question", dialog["id"])
        return all(called)

    def screen(self, name: str) -> str:
        pane = self.team.services.agents.get(name).pane_id
        return self.terminal("capture-pane", "-p", "-t", str(pane))


@contextmanager
def _team(base: Path, binaries: Path) -> Iterator[WorktreesTeam]:
    built = WorktreesTeam(base, environment(base, binaries))
    try:
        yield built
    except Exception as error:
        for name in built.editors:
            error.add_note(f"--- {name}\n{built.screen(name)}")
        raise
    finally:
        built.end()
