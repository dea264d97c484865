"""The windows of a session whose files were deleted while its team ran."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from multi_agent_mcp.config import tmux_socket
from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.doorbell.tmux.client import Server
from multi_agent_mcp.doorbell.tmux.team_panes import MARKER, OwnPane, TeamPanes, tmux_session
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.system.process import environment_of


def left_over(root: Path) -> list[tuple[TeamPanes, OwnPane]]:
    """The living windows of ours on this terminal's tmux server that belong to this root: by the mark on the pane, and
    by the environment with which its program was started."""
    socket_path, here = tmux_socket(), os.path.realpath(root)
    marks = Server(socket_path).cmd("list-panes", "-a", "-F", f"#{{{MARKER}}}").stdout
    ending = tmux_session(root, "")
    projects = {project for mark in marks if (project := mark.partition(":")[0]).endswith(ending)}
    found = [
        (panes, pane) for panes in (TeamPanes(socket_path, name) for name in sorted(projects)) for pane in _of(panes)
    ]
    return [(panes, pane) for panes, pane in found if not pane.dead and _root_of(pane) == here]


def names_of(found: list[tuple[TeamPanes, OwnPane]]) -> list[str]:
    """The names of these windows."""
    return [Slot.of(pane.label).window_name for _, pane in found]


def close_left_over(found: list[tuple[TeamPanes, OwnPane]]) -> list[str]:
    """Closes these windows; returns their names."""
    for panes, pane in found:
        panes.close(pane)
    return names_of(found)


def _root_of(pane: OwnPane) -> str | None:
    root = environment_of(pane.pane_pid).get("MULTI_AGENT_MCP_ROOT")
    return os.path.realpath(root) if root else None


def _of(panes: TeamPanes) -> Iterator[OwnPane]:
    try:
        yield from panes.all()
    except Refusal:  # tmux has gone meanwhile, or does not answer
        return
