"""The main job: a task goes down, reports come up, every agent wakes by its doorbell."""

from __future__ import annotations

from multi_agent_mcp.cli.context import say, table
from multi_agent_mcp.cli.demo.stage import Stage
from multi_agent_mcp.cli.demo.traces import missing_steps, tree
from multi_agent_mcp.cli.timeline import HEAD, rows


def play(stage: Stage, seconds: float, attach: bool) -> list[str]:
    """Plays it and prints the timeline, the file tree and the dashboard. Returns what is missing."""
    stage.open_windows()
    finished = stage.attach_until_finished(seconds) if attach else stage.wait_until_finished(seconds)
    workspace = stage.services.workspace
    for block in (table(HEAD, rows(stage.services.timeline.of())), tree(workspace.path)):
        say()
        for line in block:
            say(line)
    if workspace.dashboard_path.exists():
        say()
        say(workspace.dashboard_path.read_text(encoding="utf-8"))
    late = [] if finished else ["not every agent logged out in time"]
    return late + missing_steps(stage.services)
