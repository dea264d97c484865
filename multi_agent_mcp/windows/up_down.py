"""Opening and closing the windows of a whole team."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.config import read_environment
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.notify.tmux.client import pane_place
from multi_agent_mcp.notify.tmux.snapshot import probe
from multi_agent_mcp.notify.tmux.windows import USABLE, OwnPane
from multi_agent_mcp.services.overview.missing_sessions import SUPERVISOR, Slot
from multi_agent_mcp.windows.agent_command import command_of
from multi_agent_mcp.windows.window_registry import TeamWindows

ON_DEMAND = "on_demand"


@dataclass(frozen=True)
class Opened:
    """What became of one agent: `pane_id` None means that nothing was started, and `note` says why."""

    agent_id: str
    pane_id: str | None
    note: str


def open_team(windows: TeamWindows, *, supervisor: bool = False) -> list[Opened]:
    """Opens a window for every agent with a command that has none, and registers its pane; with `supervisor` one for
    the supervisor, too. Raises `InvalidArguments` when tmux is missing or refuses."""
    with windows.locked():
        results = [_open(windows, agent) for agent in windows.services.agents.all().values()]
        return [*results, _open_supervisor(windows)] if supervisor else results


def close_team(windows: TeamWindows) -> list[str]:
    """Ends supervision and closes every window of the team; returns their names."""
    with windows.locked():
        windows.services.supervision.end()  # a supervisor outside our panes ends, too
        closed = [Slot.of(pane.label).window_name for pane in windows.found]
        for pane in sorted(windows.found, key=_is_here):
            windows.close(pane)
        return closed


def environment_of(services: Services, slot: Slot | None = None) -> dict[str, str]:
    """The environment by which a window's command finds its session, its agent and purpose, and the file of a
    host that takes `{mcp_config}` by a variable."""
    environment = {
        "MULTI_AGENT_MCP_ROOT": str(services.root),
        "MULTI_AGENT_MCP_SESSION": services.session,
    }
    if slot is not None:
        environment |= {"MULTI_AGENT_MCP_AGENT": slot.agent_id, "MULTI_AGENT_MCP_PURPOSE": slot.purpose}
        environment |= services.mcp_environment(services.agents.get(slot.agent_id))
    return environment


def _open(windows: TeamWindows, agent: Agent) -> Opened:
    services, slot = windows.services, Slot(agent.id, "task")
    texts = services.people
    command = command_of(services, agent)
    if command is None:
        return Opened(agent.id, None, texts("up.no_command"))
    if agent.extra.get("spawn") == ON_DEMAND:
        return Opened(agent.id, None, texts("up.on_demand"))
    reachable = agent.pane_id is not None and probe(agent) in USABLE
    if pane := windows.living.get(slot):
        if not reachable:
            _register(services, agent, pane)
        return Opened(agent.id, pane.pane_id, texts("up.running"))
    if reachable:
        return Opened(agent.id, agent.pane_id, texts("up.running"))
    pane = windows.open(slot, command, environment_of(services, slot), stays=True)
    if pane is None:
        return Opened(agent.id, None, texts("up.ended"))
    _register(services, agent, pane)
    return Opened(agent.id, pane.pane_id, texts("up.started"))


def _register(services: Services, agent: Agent, pane: OwnPane) -> None:
    """The agent's doorbell rings in this pane from now on."""
    place = pane_place(pane.socket_path, pane.pane_id)
    if place is not None:
        # No `pane_program`: what was just opened may still be on its way through a launcher (`env`, pyenv, `sh -c`).
        services.agents.change(agent.id, **place | {"pane_program": None})


def _open_supervisor(windows: TeamWindows) -> Opened:
    services, texts = windows.services, windows.services.people
    if pane := windows.living.get(SUPERVISOR):
        return Opened("(supervisor)", pane.pane_id, texts("up.running"))
    if pid := services.supervision.running():
        return Opened("(supervisor)", None, texts("up.running_as", pid=pid))
    command = shlex.join([sys.executable, "-m", "multi_agent_mcp", "supervise"])
    pane = windows.open(SUPERVISOR, command, environment_of(services), stays=True)
    if pane is None:
        return Opened("(supervisor)", None, texts("up.ended"))
    return Opened("(supervisor)", pane.pane_id, texts("up.started"))


def _is_here(pane: OwnPane) -> bool:
    """Whether this very process runs in that pane: it is closed last."""
    here = read_environment().pane
    return here is not None and here.pane_id == pane.pane_id
