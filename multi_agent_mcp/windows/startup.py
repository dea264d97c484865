"""One run of `up`: preflight checks, opening the windows, waiting for the agents, and how to attach to them."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.windows.readiness import REFUSED, RUNNING, STARTING, AgentState, Readiness, Report, preflight
from multi_agent_mcp.windows.up_down import begin_anew, open_agent, open_own_windows, restart_agent, team_attachment

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.question import Dialog
    from multi_agent_mcp.windows.window_registry import TeamWindows


AT_ONCE = max(2, os.cpu_count() or 1)
"""The number of hosts that may start at a time."""
PACE_SECONDS = 10.0
"""How long the next ones wait for those at most."""


class Startup:
    """Starts the team, or the agents named by `only`. The constructor raises `AgentNotFound` for an unknown agent and
    `InvalidArguments` without a usable tmux, before anything is opened."""

    def __init__(self, windows: TeamWindows, only: Collection[str] = ()) -> None:
        self.windows = windows
        self.only = only
        self.states: list[AgentState] = []
        agents = windows.services.agents
        self._wanted = [agents.here(agent_id) for agent_id in only] or [*agents.at_home().values()]
        self.preflight = preflight(windows, self._wanted)
        self._has_waited = False

    def open(self, *, supervisor: bool, owner: bool, fresh: bool = False, report: Report = lambda _: None) -> None:
        """Opens missing windows; those of supervisor and owner only with the whole team. `fresh`: no conversation is
        continued. No more than `AT_ONCE` hosts start at a time: they take seconds of a processor each."""
        whole = not self.only
        starting: list[AgentState] = []
        for agent in self._wanted:
            state = self._prepared(agent) or open_agent(self.windows, agent, is_named=not whole, fresh=fresh)
            self.states.append(state)
            if state.state == STARTING and state.is_of_host:
                starting.append(state)
            if len(starting) >= AT_ONCE and agent is not self._wanted[-1]:
                self._readiness(starting).wait(PACE_SECONDS, report)
                starting.clear()
        if whole:
            self.states += open_own_windows(self.windows, supervisor=supervisor, owner=owner)

    def restart(self, *, fresh: bool = False) -> None:
        """Restarts the agents named by `only`; see `restart_agent`."""
        agents = [self.windows.services.agents.get(one) for one in self.only]
        self.states = [self._prepared(agent) or restart_agent(self.windows, agent, fresh=fresh) for agent in agents]

    def _prepared(self, agent: Agent) -> AgentState | None:
        """Makes the worktree of an agent that is to work in one and has none; returns the state of one for which that
        failed. It may take long, so no lock is held."""
        services = self.windows.services
        try:
            if agent.command is not None and services.worktrees.wants(agent):
                services.worktrees.ensure(agent)
        except Refusal as refusal:
            return AgentState(agent.id, REFUSED, facts={"reason": services.texts.sentence(refusal)})
        return None

    def wait(self, seconds: float, report: Report) -> None:
        """Waits until all agents are ready or ask for something; see `Readiness.wait`."""
        self.states = self._readiness(self.states).wait(seconds, report)
        self._has_waited = True

    def _readiness(self, states: Sequence[AgentState]) -> Readiness:
        return Readiness(self.windows.services, states, lambda state: begin_anew(self.windows, state))

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
