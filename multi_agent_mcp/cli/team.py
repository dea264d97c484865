"""`up`, `down` and `supervise`: a team in tmux."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import click

from multi_agent_mcp.cli.context import SessionContext, session_command
from multi_agent_mcp.cli.output import print_line, table
from multi_agent_mcp.errors import InvalidArguments

SOCKET = click.option(
    "--socket", metavar="PATH", help="The tmux socket (default: the server this terminal is in, else tmux's default)."
)


@click.command()
@SOCKET
@click.option("--tmux-config", metavar="FILE", help="A tmux.conf for a server that is started now.")
@click.option(
    "--supervisor/--no-supervisor",
    default=True,
    help="Keep a pane that opens windows for chat work and for agents with `spawn: on_demand`.",
)
@session_command()
def up(context: SessionContext, socket: str | None, tmux_config: str | None, supervisor: bool) -> None:
    """Open a tmux window for every agent that has a command in team.yaml, and register its pane.

    In a command {mcp_config}, {prompt}, {root}, {session}, {agent}, {python} and {examples} are filled in.
    """
    from multi_agent_mcp.config import tmux_socket
    from multi_agent_mcp.notify.tmux.windows import tmux_session  # libtmux takes 70 ms to import
    from multi_agent_mcp.windows.up_down import open_team
    from multi_agent_mcp.windows.window_registry import TeamWindows

    services = context.services
    path = str(Path(socket).absolute()) if socket else tmux_socket()
    results = open_team(TeamWindows(services, path, tmux_config), supervisor=supervisor)
    name = tmux_session(services.root, services.session)
    attach = _attach_command(path, name)
    rows = [(result.agent_id, result.pane_id or "-", result.note) for result in results]
    texts = services.people
    head = [texts(f"table.{column}") for column in ("agent", "pane", "note")]
    context.answer(
        {"agents": [vars(result) for result in results], "tmux_session": name, "attach": attach},
        [*table(head, rows), "", texts("up.attach", command=attach)],
    )


@click.command()
@session_command()
def down(context: SessionContext) -> None:
    """Close the panes that `up` and the supervisor opened. Mail and tasks stay."""
    from multi_agent_mcp.config import tmux_socket
    from multi_agent_mcp.windows.up_down import close_team
    from multi_agent_mcp.windows.window_registry import TeamWindows

    closed = close_team(TeamWindows(context.services, tmux_socket()))
    texts = context.services.people
    line = texts("down.closed", names=", ".join(closed)) if closed else texts("down.nothing")
    context.answer({"closed": closed}, [line])


@click.command()
@session_command(json=False)
def supervise(context: SessionContext) -> None:
    """Open windows for missing agent sessions and close finished ones, until `down` or Ctrl-C. Runs inside tmux."""
    from multi_agent_mcp.config import read_environment
    from multi_agent_mcp.windows.supervisor import Supervisor
    from multi_agent_mcp.windows.window_registry import TeamWindows

    here = read_environment().pane
    if here is None:
        raise InvalidArguments("supervise_outside")
    supervisor = Supervisor(TeamWindows(context.services, here.socket_path))
    supervisor.run(lambda event: print_line(f"{time.strftime('%H:%M:%S')} {event}"))


def _attach_command(socket: str, name: str) -> str:
    """The command that shows the team in this terminal."""
    from multi_agent_mcp.config import read_environment

    here = read_environment().pane
    verb = "switch-client" if here is not None and here.socket_path == socket else "attach"
    return shlex.join(["tmux", "-S", socket, verb, "-t", f"={name}"])
