"""An afternoon to look at in the console, with one agent that really works: drag its task to `blocked` (UC010)."""

from __future__ import annotations

import subprocess
import sys

from multi_agent_mcp.cli.context import say
from multi_agent_mcp.cli.demo.stage import Stage
from multi_agent_mcp.cli.demo.story import read_story
from multi_agent_mcp.cli.team import examples_directory
from multi_agent_mcp.texts import DEFAULT_LANGUAGE

WORKER = "worker-d"


def play(stage: Stage, seconds: float, attach: bool) -> list[str]:
    """Tells the story, starts the worker and serves the console until Ctrl-C, or with `attach` until the human
    detaches. Returns what is missing."""
    session = stage.services.session
    story = read_story(examples_directory() / "office.yaml", stage.root, DEFAULT_LANGUAGE)
    story.tell()
    stage.open_windows()
    works = stage.wait_for(
        f"executions/{WORKER}", lambda: bool(stage.services.workspace.executions.all(WORKER)), seconds
    )
    command = [sys.executable, "-m", "multi_agent_mcp", "web", "--root", str(stage.root), "--session", session]
    try:
        say(f"open this link, and drag the task of {WORKER} to the column of blocked ones; Ctrl-C ends it")
        sys.stdout.flush()  # the console writes the link itself
        with subprocess.Popen(command) as console:
            _show(stage, console, attach=attach)
    finally:
        story.end()
    return [] if works else [f"{WORKER} never began to work"]


def _show(stage: Stage, console: subprocess.Popen[bytes], *, attach: bool) -> None:
    """Returns when the console has ended, and ends it when this process is told to end."""
    try:
        if attach:
            stage.attach_until_finished(float("inf"))
        else:
            console.wait()
    except KeyboardInterrupt:
        console.wait()  # it got the same Ctrl-C
    finally:
        console.terminate()
