"""`up` and `down`: a team in tmux."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.cli.door import Json, Root, Session, desk, table
from multi_agent_mcp.services.hosts import mcp_config_path, mcp_servers

if TYPE_CHECKING:
    from multi_agent_mcp.notify.panes import Opened

Socket = Annotated[
    str | None, typer.Option("--socket", metavar="PATH", help="The tmux socket (default: tmux's own default server).")
]


def up(
    socket: Socket = None,
    tmux_config: Annotated[
        str | None, typer.Option("--tmux-config", metavar="FILE", help="A tmux.conf for a server that is started now.")
    ] = None,
    root: Root = None,
    session: Session = None,
    as_json: Json = False,
) -> None:
    """Open a tmux window for every agent that has a command in team.yaml, and register its pane.

    In a command {mcp_config}, {root}, {session}, {agent}, {python} and {examples} are filled in.
    """
    with desk(root, session, as_json=as_json) as opened:
        results = open_team(opened.services, socket, tmux_config)
        rows = [(result.agent_id, result.pane_id or "-", result.note) for result in results]
        opened.show({"agents": [vars(result) for result in results]}, table(("agent", "pane", "note"), rows))


def down(root: Root = None, session: Session = None, as_json: Json = False) -> None:
    """Close the panes that `up` opened. Mail and tasks stay."""
    from multi_agent_mcp.notify.panes import Panes

    with desk(root, session, as_json=as_json) as opened:
        closed = Panes(opened.services.workspace, None).down(opened.services.agents.all())
        opened.show({"closed": closed}, [f"closed: {', '.join(closed) or 'nothing'}"])


def open_team(services: Services, socket: str | None, tmux_config: str | None, *, remain: bool = False) -> list[Opened]:
    """Opens the windows; with `remain` a pane whose command has ended stays to be looked at."""
    from multi_agent_mcp.notify.panes import Panes  # libtmux takes 70 ms to import

    environment = {
        "MULTI_AGENT_MCP_ROOT": str(services.workspace.root),
        "MULTI_AGENT_MCP_SESSION": services.workspace.session,
    }
    panes = Panes(services.workspace, socket, tmux_config, remain=remain)
    return panes.up(services.agents.all(), _commands(services), environment)


def _commands(services: Services) -> dict[str, str]:
    """The agents' commands with their placeholders filled; `{mcp_config}` is written where it is asked for."""
    from multi_agent_mcp.notify.panes import filled

    workspace = services.workspace
    commands = {}
    for agent in services.agents.all().values():
        if agent.command is None:
            continue
        config = mcp_config_path(workspace, agent.id)
        if "{mcp_config}" in agent.command:
            servers = json.dumps(mcp_servers(workspace, agent.id), indent=2)
            workspace.files.replace(config, f"{servers}\n".encode())
        values = {
            "mcp_config": config,
            "root": workspace.root,
            "session": workspace.session,
            "agent": agent.id,
            "python": sys.executable,
            "examples": examples_directory(),
        }
        commands[agent.id] = filled(agent.command, {key: shlex.quote(str(value)) for key, value in values.items()})
    return commands


def examples_directory() -> Path:
    """The scripted agents: inside an installed package, or beside it in a clone."""
    package = Path(__file__).parents[1]
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "examples"
