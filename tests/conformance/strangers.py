"""Programs that are no agent's host, each in a pane that was registered while a shell or a line reader ran there: an
editor, a pager, a recorded shell, an interpreter's prompt, shells, and a dialog that takes Enter for yes."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from multi_agent_mcp.domain.agent import Agent
from tests.conformance.stage import Stage
from tests.programs import REPOSITORY

PREFIX = "stranger-"
SETTLED_SECONDS = 0.5
HOSTS = {"plain": "plain", "claude": "claude", "any": None}
"""Label → the host that the agents of each pane are declared with."""
RULE = "─" * 60
SHOWS = "clear; cat {}; printf '\\033[2;3H'"
"""The shell's command that shows a file, with the cursor in the composer on it."""
CLAUDES_SCREEN = f"{RULE}\n❯  \n{RULE}\n  ? for shortcuts\n"


def programs(directory: Path) -> dict[str, str]:
    """Name → the command typed at the prompt of the pane's shell ("": none, the shell itself)."""
    text, screen, log, script, copy = (directory / name for name in ("text", "screen", "dialog.log", "claude", "bin"))
    text.write_text("a line\n" * 200, encoding="utf-8")
    screen.write_text(CLAUDES_SCREEN, encoding="utf-8")
    script.write_text(f"#!/usr/bin/env bash\n{SHOWS.format(screen)}; read line\n", encoding="utf-8")
    script.chmod(0o755)
    copy.mkdir()
    shutil.copy(shutil.which("cat") or "", copy / "claude")
    shows = SHOWS.format(screen)
    python = f"PYTHONPATH={REPOSITORY} {shlex.quote(sys.executable)}"
    return {
        "prompt": "",
        "nested": "bash --norc",
        "renamed": "(exec -a claude bash --norc)",
        "terminal-script": "bash --norc /dev/tty",
        "other-session": f'{python} -c \'import subprocess as s; s.run(["less", "{text}"], start_new_session=True)\'',
        "vi": f"vi {text}",
        "vi-as-claude": f"(exec -a claude vi -c 'normal! 2G$' {screen})",
        "less": f"less {text}",
        "piped": f"cat {text} | less",
        "child": f'{python} -c \'import subprocess as s; s.run(["vi", "-n"])\'',
        "script": "script -q /dev/null",
        "repl": f"{python} -q",
        "renamed-repl": f"(exec -a codex {shlex.quote(sys.executable)} -q)",
        "dialog": f"{python} -m tests.conformance.dialog {log}",
        "cat-as-claude": f"{shows}; (exec -a claude cat)",
        "copy-of-cat": f"{shows}; {copy}/claude",
        "script-as-claude": str(script),
        "title-of-perl": f"{shows}; perl -e '$0 = \"claude\"; <STDIN>'",
        **({"title-of-node": f"{shows}; node {_titled(directory)}"} if shutil.which("node") else {}),
    }


def _titled(directory: Path) -> Path:
    notes = directory / "notes.js"
    notes.write_text('process.title = "claude"; process.stdin.resume();\n', encoding="utf-8")
    return notes


@dataclass(frozen=True)
class Stranger:
    """One pane: any output after `_leave_alone` shows that something was typed there."""

    name: str
    pane_id: str
    output: Path

    def heard(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace") if self.output.exists() else ""


class Strangers:
    """Opens them all on a stage and waits until they are quiet. Three agents are registered for every pane."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.all = [self._open(name, command) for name, command in programs(stage.directory).items()]
        self._leave_alone()

    def typed(self) -> list[str]:
        """Descriptions of input that reached strangers; must be empty."""
        found = [f"{stranger.name}: {heard!r}" for stranger in self.all if (heard := stranger.heard())]
        return [*found, *(f"dialog: {log.read_bytes()!r}" for log in self.stage.directory.glob("dialog.log"))]

    def _open(self, name: str, command: str) -> Stranger:
        pane_id = self.stage.tmux(
            "new-session", "-d", "-s", f"{PREFIX}{name}", "-x", "100", "-y", "40", "-P", "-F", "#{pane_id}",
            "exec env PS1='ready$ ' bash --norc --noprofile -i",
        )  # fmt: skip
        self._until(pane_id, "ready$")
        for label, host in HOSTS.items():
            agent_id = f"{PREFIX}{name}-{label}"
            self.stage.workspace.registry.add(Agent(id=agent_id, host=host))
            self.stage.register(agent_id, pane_id)
        if command:
            self.stage.tmux("send-keys", "-t", pane_id, "-l", f"clear; {command}")
            self.stage.tmux("send-keys", "-t", pane_id, "Enter")
        return Stranger(name, pane_id, self.stage.directory / f"{name}.out")

    def _until(self, pane_id: str, text: str) -> None:
        end = time.monotonic() + 20
        while text not in self._screen(pane_id):
            if time.monotonic() > end:
                raise TimeoutError(self._screen(pane_id))
            time.sleep(0.05)

    def _screen(self, pane_id: str) -> str:
        return self.stage.tmux("capture-pane", "-p", "-t", pane_id)

    def _leave_alone(self) -> None:
        """Waits until their screens have stopped changing; records all further output."""
        before: list[str] = []
        while (screens := [self._screen(stranger.pane_id) for stranger in self.all]) != before:
            before = screens
            time.sleep(SETTLED_SECONDS)
        for stranger in self.all:
            self.stage.tmux("pipe-pane", "-t", stranger.pane_id, f"exec cat >> {stranger.output}")
