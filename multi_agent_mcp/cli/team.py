"""`up` and `down`: a team in tmux."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.cli.context import Json, Root, Session, session_context, table
from multi_agent_mcp.config import read_environment, tmux_socket
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.host_config import mcp_argument
from multi_agent_mcp.services.overview.missing_sessions import SUPERVISOR, Slot
from multi_agent_mcp.services.overview.supervision import Supervision

if TYPE_CHECKING:
    from multi_agent_mcp.cli.windows import Windows
    from multi_agent_mcp.notify.tmux.windows import OwnPane

ON_DEMAND = "on_demand"
Socket = Annotated[
    str | None,
    typer.Option(
        "--socket",
        metavar="PATH",
        help="The tmux socket (default: the server this terminal is in, else tmux's default).",
    ),
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
    from multi_agent_mcp.notify.tmux.windows import tmux_session

    with session_context(root, session, as_json=as_json) as context:
        workspace = context.services.workspace
        path = str(Path(socket).absolute()) if socket else tmux_socket()
        results = open_team(context.services, path, tmux_config, supervisor=supervisor)
        name = tmux_session(workspace.root, workspace.session)
        attach = _attach_command(path, name)
        rows = [(result.agent_id, result.pane_id or "-", result.note) for result in results]
        context.show(
            {"agents": [vars(result) for result in results], "tmux_session": name, "attach": attach},
            [*table(("agent", "pane", "note"), rows), "", f"to look at them: {attach}"],
        )


def down(root: Root = None, session: Session = None, as_json: Json = False) -> None:
    """Close the panes that `up` and the supervisor opened. Mail and tasks stay."""
    from multi_agent_mcp.cli.windows import Windows

    with session_context(root, session, as_json=as_json) as context:
        windows = Windows(context.services, tmux_socket())
        with windows.looking():
            Supervision(context.services.workspace).end()  # one that runs outside our panes ends, too
            closed = [Slot.of(pane.label).window_name for pane in windows.found]
            for pane in sorted(windows.found, key=_is_here):
                windows.close(pane)
            context.show({"closed": closed}, [f"closed: {', '.join(closed) or 'nothing'}"])


@dataclass(frozen=True)
class Opened:
    """What became of one agent: `pane_id` None means that nothing was started, and `note` says why."""

    agent_id: str
    pane_id: str | None
    note: str


def open_team(
    services: Services, socket: str, tmux_config: str | None, *, remain: bool = False, supervisor: bool = False
) -> list[Opened]:
    """Opens a window for every agent with a command that has none, and registers its pane; with `remain` a pane whose
    command has ended stays to be looked at. Raises `InvalidArguments` when tmux is missing or refuses."""
    from multi_agent_mcp.cli.windows import Windows  # libtmux takes 70 ms to import

    windows = Windows(services, socket, tmux_config, remain=remain)
    with windows.looking():
        results = [_open(services, windows, agent) for agent in services.agents.all().values()]
        return [*results, _open_supervisor(services, windows)] if supervisor else results


def _open(services: Services, windows: Windows, agent: Agent) -> Opened:
    from multi_agent_mcp.notify.tmux.snapshot import probe
    from multi_agent_mcp.notify.tmux.windows import USABLE

    command, post = command_of(services, agent), Slot(agent.id, "task")
    if command is None:
        return Opened(agent.id, None, "no command in team.yaml")
    if agent.extra.get("spawn") == ON_DEMAND:
        return Opened(agent.id, None, "is started when there is work for it")
    reachable = agent.pane_id is not None and probe(agent) in USABLE
    if pane := windows.living.get(post):
        if not reachable:
            _register(services, agent, pane)
        return Opened(agent.id, pane.pane_id, "runs already")
    if reachable:
        return Opened(agent.id, agent.pane_id, "runs already")
    environment = {**environment_of(services), "MULTI_AGENT_MCP_AGENT": agent.id}
    pane = windows.open(post, command, environment, stays=True)
    if pane is None:
        return Opened(agent.id, None, "its command ended at once")
    _register(services, agent, pane)
    return Opened(agent.id, pane.pane_id, "started")


def _register(services: Services, agent: Agent, pane: OwnPane) -> None:
    """Where the agent's doorbell hangs from now on."""
    from multi_agent_mcp.notify.tmux.client import pane_place

    place = pane_place(pane.socket_path, pane.pane_id)
    if place is not None:
        # No `pane_program`: what was just opened may still be on its way through a launcher (`env`, pyenv, `sh -c`).
        services.workspace.registry.update(agent.id, **place | {"pane_program": None})


def _attach_command(socket: str, name: str) -> str:
    """How a human gets to see the team from this terminal."""
    here = read_environment().pane
    verb = "switch-client" if here is not None and here.socket_path == socket else "attach"
    return shlex.join(["tmux", "-S", socket, verb, "-t", f"={name}"])


def _is_here(pane: OwnPane) -> bool:
    """Whether this very process runs in that pane: it is closed last."""
    here = read_environment().pane
    return here is not None and here.pane_id == pane.pane_id


def environment_of(services: Services) -> dict[str, str]:
    """What a window's command finds its session by."""
    return {
        "MULTI_AGENT_MCP_ROOT": str(services.root),
        "MULTI_AGENT_MCP_SESSION": services.session,
    }


def command_of(services: Services, agent: Agent) -> str | None:
    """The agent's command with its placeholders filled; `{mcp_config}` is written where it is asked for."""
    from multi_agent_mcp.notify.tmux.windows import filled

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


def _open_supervisor(services: Services, windows: Windows) -> Opened:
    if pane := windows.living.get(SUPERVISOR):
        return Opened("(supervisor)", pane.pane_id, "runs already")
    if pid := Supervision(services.workspace).running():
        return Opened("(supervisor)", None, f"runs already, as process {pid}")
    command = shlex.join([sys.executable, "-m", "multi_agent_mcp", "supervise"])
    pane = windows.open(SUPERVISOR, command, environment_of(services), stays=True)
    return Opened("(supervisor)", pane.pane_id, "started") if pane else Opened("(supervisor)", None, "ended at once")


def examples_directory() -> Path:
    """The scripted agents: inside an installed package, or beside it in a clone."""
    package = Path(__file__).parents[1]
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "examples"
