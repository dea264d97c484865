"""One run of `up`: preflight checks, opening the windows, waiting for the agents, and how to attach to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.windows.readiness import RUNNING, STARTING, AgentState, Readiness, Report, preflight
from multi_agent_mcp.windows.up_down import open_team, restart_agent, team_attachment

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.dialog import Dialog
    from multi_agent_mcp.windows.window_registry import TeamWindows


class Startup:
    """Starts the team, or the agents named by `only`. The constructor raises `AgentNotFound` for an unknown agent and
    `InvalidArguments` without a usable tmux, before anything is opened."""

    def __init__(self, windows: TeamWindows, only: Collection[str] = ()) -> None:
        self.windows = windows
        self.only = only
        self.states: list[AgentState] = []
        self.preflight = preflight(windows, self._wanted())
        self._has_waited = False

    def open(self, *, supervisor: bool, owner: bool) -> None:
        """Opens missing windows; those of supervisor and owner only with the whole team."""
        whole = not self.only
        refused = self._prepared(self._wanted())
        self.states = open_team(
            self.windows, self.only, refused, supervisor=supervisor and whole, owner=owner and whole
        )

    def restart(self) -> None:
        """Restarts the agents named by `only`; see `restart_agent`. Raises the refusal of a worktree that cannot be
        made."""
        for refusal in self._prepared(self._wanted()).values():
            raise refusal
        self.states = [restart_agent(self.windows, self.windows.services.agents.get(one)) for one in self.only]

    def _wanted(self) -> list[Agent]:
        agents = self.windows.services.agents
        return [agents.here(agent_id) for agent_id in self.only] or [*agents.at_home().values()]

    def _prepared(self, agents: Iterable[Agent]) -> dict[str, Refusal]:
        """Makes the worktrees of these agents that are to work in one and have none; returns why some could not be
        made. It may take long, so no lock is held."""
        refused: dict[str, Refusal] = {}
        for agent in agents:
            if agent.command is not None and self.windows.services.worktrees.wants(agent):
                try:
                    self.windows.services.worktrees.ensure(agent)
                except Refusal as refusal:
                    refused[agent.id] = refusal
        return refused

    def wait(self, seconds: float, report: Report) -> None:
        """Waits until all agents are ready or ask for something; see `Readiness.wait`."""
        self.states = Readiness(self.windows.services, self.states).wait(seconds, report)
        self._has_waited = True

    @property
    def is_fine(self) -> bool:
        """Whether no agent is missing; before `wait`, agents that are starting count as present."""
        unknown = () if self._has_waited else (STARTING, RUNNING)
        return all(state.is_fine or state.state in unknown for state in self.states)

    def asked(self) -> dict[str, Dialog]:
        """The questions that agents' hosts ask and profiles describe, by agent id."""
        services = self.windows.services
        asking = [services.agents.get(state.agent_id) for state in self.states if state.asks]
        found = {agent.id: services.panes.dialog(agent) for agent in asking}
        return {agent_id: dialog for agent_id, dialog in found.items() if dialog is not None}

    @property
    def attach_command(self) -> str | None:
        """The command that shows the team in this terminal; None without windows."""
        team = team_attachment(self.windows)
        return None if team is None else team.command

    def show(self) -> None:
        """Shows the team in this terminal if that is on the team's tmux server: the first agent that asks for
        something, else the session. If an agent could not be started and none asks, the list stays visible instead."""
        asking = next((state.pane_id for state in self.states if state.asks), None)
        team = team_attachment(self.windows)
        if team is not None and team.is_here and (asking or self.is_fine):
            replace(team, target=asking or team.target).switch()

    def as_answer(self) -> dict[str, Any]:
        """Returns the result for JSON."""
        texts, checked = self.windows.services.people, self.preflight
        return {
            "ready": self.is_fine,
            "agents": [state.as_answer(texts) for state in self.states],
            "tmux_session": self.windows.tmux_session,
            "attach": self.attach_command,
            "tmux": {
                "version": checked.version,
                "socket_path": self.windows.socket_path,
                "was_running": checked.was_running,
                "withheld": list(checked.withheld),
            },
        }
