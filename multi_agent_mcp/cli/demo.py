"""`demo`: the main job, for real, in panes of its own."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from multi_agent_mcp.cli.door import complain, say
from multi_agent_mcp.cli.stage import Stage
from multi_agent_mcp.cli.timeline import missing_steps, timeline, tree

DEMO_SECONDS = 120.0


def demo(
    attach: Annotated[bool, typer.Option("--attach", help="Show the panes while the team works.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave tmux running afterwards.")] = False,
    directory: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the session is made (default: a new temporary directory).")
    ] = None,
) -> None:
    """Play the main job with scripted agents in real tmux panes, on a tmux server of its own.

    Owner → Admin → two Workers and back, each waiting for the [IPC] line in its pane. Prints the timeline, the file
    tree and the dashboard; exits 1 if a step is missing. The directory is kept.
    """
    if shutil.which("tmux") is None:
        complain("tmux was not found. Install tmux 3.3 or newer.")
        raise typer.Exit(1)
    place = (directory or Path(tempfile.mkdtemp(prefix="multi-agent-mcp-demo-"))).absolute()
    with Stage(place, "team.yaml", keep=keep) as stage:
        say(f"tmux -S {stage.socket} attach   # to look over their shoulders")
        stage.open_windows()
        finished = stage.attach_until_finished(DEMO_SECONDS) if attach else stage.wait_until_finished(DEMO_SECONDS)
        missing = missing_steps(stage.services)
        _report(stage, [] if finished else ["not every agent logged out in time"], missing)


def _report(stage: Stage, late: list[str], missing: list[str]) -> None:
    say()
    for line in timeline(stage.services):
        say(line)
    say()
    for line in tree(stage.services.workspace.path):
        say(line)
    say()
    dashboard = stage.services.workspace.dashboard_path
    if dashboard.exists():
        say(dashboard.read_text(encoding="utf-8"))
    say(f"kept: {stage.services.workspace.path}")
    for problem in [*late, *missing]:
        complain(f"missing: {problem}")
    if late or missing:
        for line in stage.screens():
            complain(line)
        raise typer.Exit(1)
    say("every step happened")
