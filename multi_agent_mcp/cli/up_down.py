"""The commands for a team in tmux: `up`, `down` and `supervise`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from multi_agent_mcp.cli.context import SessionContext, session_command
from multi_agent_mcp.cli.output import print_line
from multi_agent_mcp.errors import InvalidArguments

SOCKET = click.option(
    "--socket", metavar="PATH", help="The tmux socket (default: the server this terminal is in, else tmux's default)."
)


@click.command()
@click.argument("agent_ids", metavar="[AGENT]...", nargs=-1)
@SOCKET
@click.option("--tmux-config", metavar="FILE", help="A tmux.conf for a server that is started now.")
@click.option(
    "--supervisor/--no-supervisor",
    default=True,
    help="Run the supervisor in a pane: it opens windows for chat work and for agents with `spawn: on_demand`.",
)
@click.option("--watch/--no-watch", default=True, help="Open a window `owner` with `watch`, for the human.")
@click.option("--wait/--no-wait", default=True, help="Wait until every agent is ready or asks for something.")
@click.option("--timeout", type=click.IntRange(0, 3600), default=60, metavar="SECONDS", help="How long (default: 60).")
@click.option("--attach/--no-attach", default=True, help="In tmux: show the team's windows in this terminal.")
@session_command()
def up(
    context: SessionContext,
    agent_ids: tuple[str, ...],
    socket: str | None,
    tmux_config: str | None,
    supervisor: bool,
    watch: bool,
    wait: bool,
    timeout: int,
    attach: bool,
) -> None:
    """Open a tmux window for every agent that has a command in team.yaml (or for those named), register its pane, and
    say who is ready and what waits for you.

    In a command {mcp_config}, {prompt}, {root}, {session}, {agent}, {python} and {examples} are filled in.

    Exit code 1 when somebody is not ready.
    """
    from multi_agent_mcp.cli.answer import as_answer, list_dialogs
    from multi_agent_mcp.cli.up_output import progress, summary, warnings
    from multi_agent_mcp.config import tmux_socket
    from multi_agent_mcp.windows.startup import Startup
    from multi_agent_mcp.windows.window_registry import TeamWindows

    if context.services.machine is not None:
        from multi_agent_mcp.cli.machines import sharing_of

        sharing_of(context).start_relay()
    path = str(Path(socket).absolute()) if socket else tmux_socket()
    startup = Startup(TeamWindows(context.services, path, tmux_config, joins=socket is None), agent_ids)
    texts = context.texts
    if not context.as_json:
        for line in warnings(startup.preflight, texts):
            print_line(line)
    startup.open(supervisor=supervisor, owner=watch)
    if wait:
        with progress(texts, is_silent=context.as_json) as report:
            startup.wait(timeout, report)
    asked = startup.asked()
    answer = startup.as_answer() | {"dialogs": as_answer(asked)}
    lines = [*summary(startup, texts), *([""] if asked else [])]
    context.answer(answer, [*lines, *list_dialogs(context, asked)])
    if attach and wait and not context.as_json and sys.stdout.isatty():
        startup.show()
    if not startup.is_fine:
        raise click.exceptions.Exit(1)


@click.command()
@session_command()
def down(context: SessionContext) -> None:
    """Close the panes that `up` and the supervisor opened. Mail and tasks stay.

    Exit code 1 when windows stay open because this is a copy of the session that opened them.
    """
    from multi_agent_mcp.config import tmux_socket
    from multi_agent_mcp.windows.up_down import close_team
    from multi_agent_mcp.windows.window_registry import TeamWindows

    windows = TeamWindows(context.services, tmux_socket())
    closed = close_team(windows)
    texts = context.texts
    lines = [texts("down.closed", names=", ".join(closed)) if closed else texts("down.nothing")]
    left = {path: [slot.window_name for slot in slots] for path, slots in windows.strange.items() if slots}
    lines += [texts("down.strange", names=", ".join(names), path=path) for path, names in left.items()]
    context.answer({"closed": closed, "left": left}, lines)
    if left:
        raise click.exceptions.Exit(1)


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
