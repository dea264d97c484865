"""`up` and `down`: a team in tmux."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.cli.door import Json, Root, Session, desk, table
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.services.hosts import mcp_argument
from multi_agent_mcp.services.staffing import Post

if TYPE_CHECKING:
    from multi_agent_mcp.notify.panes import Opened, Panes

Socket = Annotated[
    str | None, typer.Option("--socket", metavar="PATH", help="The tmux socket (default: tmux's own default server).")
]


def up(
    socket: Socket = None,
    tmux_config: Annotated[
        str | None, typer.Option("--tmux-config", metavar="FILE", help="A tmux.conf for a server that is started now.")
    ] = None,
    supervisor: Annotated[
        bool, typer.Option(help="Keep a pane that opens windows for chat work and for agents with `spawn: on_demand`.")
    ] = True,
    root: Root = None,
    session: Session = None,
    as_json: Json = False,
) -> None:
    """Open a tmux window for every agent that has a command in team.yaml, and register its pane.

    In a command {mcp_config}, {root}, {session}, {agent}, {python} and {examples} are filled in.
    """
    with desk(root, session, as_json=as_json) as opened:
        results = open_team(opened.services, socket, tmux_config, supervisor=supervisor)
        rows = [(result.agent_id, result.pane_id or "-", result.note) for result in results]
        opened.show({"agents": [vars(result) for result in results]}, table(("agent", "pane", "note"), rows))


def down(root: Root = None, session: Session = None, as_json: Json = False) -> None:
    """Close the panes that `up` opened. Mail and tasks stay."""
    from multi_agent_mcp.notify.panes import Panes

    with desk(root, session, as_json=as_json) as opened:
        panes = Panes(opened.services.workspace, None)
        closed = [*close_windows(opened.services, panes), *panes.down(opened.services.agents.all())]
        opened.show({"closed": closed}, [f"closed: {', '.join(closed) or 'nothing'}"])


def open_team(
    services: Services, socket: str | None, tmux_config: str | None, *, remain: bool = False, supervisor: bool = False
) -> list[Opened]:
    """Opens the windows; with `remain` a pane whose command has ended stays to be looked at."""
    from multi_agent_mcp.notify.panes import Panes  # libtmux takes 70 ms to import

    panes = Panes(services.workspace, socket, tmux_config, remain=remain)
    agents = services.agents.all()
    commands = {agent.id: command for agent in agents.values() if (command := command_of(services, agent)) is not None}
    results = panes.up(agents, commands, environment_of(services))
    return [*results, _open_supervisor(services, panes)] if supervisor else results


def environment_of(services: Services) -> dict[str, str]:
    """What a window's command finds its session by."""
    return {
        "MULTI_AGENT_MCP_ROOT": str(services.workspace.root),
        "MULTI_AGENT_MCP_SESSION": services.workspace.session,
    }


def command_of(services: Services, agent: Agent) -> str | None:
    """The agent's command with its placeholders filled; `{mcp_config}` is written where it is asked for."""
    from multi_agent_mcp.notify.panes import filled

    if agent.command is None:
        return None
    workspace = services.workspace
    values = {
        "root": workspace.root,
        "session": workspace.session,
        "agent": agent.id,
        "python": sys.executable,
        "examples": examples_directory(),
    }
    quoted = {key: shlex.quote(str(value)) for key, value in values.items()}
    if "{mcp_config}" in agent.command:
        quoted["mcp_config"] = mcp_argument(workspace, agent)
    return filled(agent.command, quoted)


def close_windows(services: Services, panes: Panes) -> list[str]:
    """Closes the supervisor and what it opened."""
    closed = []
    posts = {Post("supervisor", "-"): services.staffing.window(Post("supervisor", "-"))} | services.staffing.windows()
    for post, window in posts.items():
        if window is not None and panes.is_there(window.pane):
            panes.close(window.pane)
            closed.append(f"{post.agent_id} ({post.purpose})")
        services.staffing.closed(post)
    return closed


def _open_supervisor(services: Services, panes: Panes) -> Opened:
    from multi_agent_mcp.notify.panes import Opened

    post = Post("supervisor", "-")
    window = services.staffing.window(post)
    if window is not None and panes.is_there(window.pane):
        return Opened("(supervisor)", str(window.pane["pane_id"]), "runs already")
    command = shlex.join([sys.executable, "-m", "multi_agent_mcp", "supervise"])
    place = panes.open_window("supervisor", command, environment_of(services))
    if place is None:
        return Opened("(supervisor)", None, "ended at once")
    services.staffing.opened(post, place, 0)
    return Opened("(supervisor)", str(place["pane_id"]), "started")


def examples_directory() -> Path:
    """The scripted agents: inside an installed package, or beside it in a clone."""
    package = Path(__file__).parents[1]
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "examples"
