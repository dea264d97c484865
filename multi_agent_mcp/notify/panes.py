"""A team in tmux: one window per agent, each running the agent's command (`up`, `down`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libtmux import exc

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.notify.tmux import GONE, Tmux, pane_place, probe
from multi_agent_mcp.store.workspace import Workspace

_COMPOUND = re.compile(r"[;&|<>()$`\n]|^\s*\w+=")
ON_DEMAND = "on_demand"
USABLE = (None, "copy_mode", "synchronized", "input_off", "unknown_host")


@dataclass(frozen=True)
class Opened:
    """What became of one agent: `pane_id` None means that nothing was started, and `note` says why."""

    agent_id: str
    pane_id: str | None
    note: str


class Panes:
    """The windows of one team on one tmux server."""

    def __init__(
        self, workspace: Workspace, socket_path: str | None, config_file: str | None = None, *, remain: bool = False
    ) -> None:
        self.workspace = workspace
        self.remain = remain
        self.server = Tmux(socket_path=socket_path, config_file=config_file)

    def up(
        self, agents: Mapping[str, Agent], commands: Mapping[str, str], environment: Mapping[str, str]
    ) -> list[Opened]:
        """Opens a window for every agent with a command whose pane is not there already, and registers the pane.

        Raises `InvalidArguments` when tmux is missing or refuses.
        """
        return [self._open(agent, commands.get(agent.id), environment) for agent in agents.values()]

    def down(self, agents: Mapping[str, Agent]) -> list[str]:
        """Closes the panes that `up` opened and that are still the same. Returns the agents' ids."""
        closed = []
        for agent in agents.values():
            if agent.extra.get("opened_by") == "up" and probe(agent) not in GONE:
                self.close(vars(agent))
                self.workspace.registry.update(agent.id, pane_id=None, pane_pid=None, opened_by=None)
                closed.append(agent.id)
        return closed

    def open_window(self, name: str, command: str, environment: Mapping[str, str]) -> dict[str, Any] | None:
        """Opens a window and returns its pane's place, None when the command ended at once.

        Raises `InvalidArguments` when tmux is missing or refuses.
        """
        try:
            place = pane_place(self._socket(), self._window(name, executed(command), environment))
            return place and {**place, "pane_program": None}  # it may still be on its way through `env` and the like
        except exc.TmuxCommandNotFound as error:
            raise InvalidArguments("no_tmux") from error
        except exc.LibTmuxException as error:
            raise InvalidArguments("tmux", reason=" ".join(str(error).split())[:200]) from error

    def is_there(self, place: Mapping[str, Any]) -> bool:
        """Whether a pane that was opened is still the same one and its process runs."""
        return bool(place) and probe(Agent(id="-", **place)) not in (*GONE, "pane_dead")

    def close(self, place: Mapping[str, Any]) -> None:
        """Closes one pane."""
        Tmux(socket_path=place["socket_path"]).cmd("kill-pane", "-t", str(place["pane_id"]))

    def _open(self, agent: Agent, command: str | None, environment: Mapping[str, str]) -> Opened:
        if command is None:
            return Opened(agent.id, None, "no command in team.yaml")
        if agent.extra.get("spawn") == ON_DEMAND:
            return Opened(agent.id, None, "is started when there is work for it")
        if agent.pane_id is not None and probe(agent) in USABLE:
            return Opened(agent.id, agent.pane_id, "runs already")
        place = self.open_window(agent.id, command, {**environment, "MULTI_AGENT_MCP_AGENT": agent.id})
        if place is None:
            return Opened(agent.id, None, "its command ended at once")
        self.workspace.registry.update(agent.id, **place, opened_by="up")
        return Opened(agent.id, place["pane_id"], "started")

    def _window(self, name: str, command: str, environment: Mapping[str, str]) -> str:
        """Opens a window; returns its pane's id."""
        existing = self.server.sessions.filter(session_name=self.workspace.session) if self.server.is_alive() else []
        if existing:
            window = existing[0].new_window(
                window_name=name, window_shell=command, attach=False, environment=dict(environment)
            )
        else:
            window = self.server.new_session(
                session_name=self.workspace.session,
                window_name=name,
                window_command=command,
                environment=dict(environment),
                x=160,
                y=48,
            ).active_window
        pane = window.active_pane
        if pane is None:
            return ""
        if self.remain:
            self.server.cmd("set-option", "-p", "-t", str(pane.pane_id), "remain-on-exit", "on")
        return str(pane.pane_id)

    def _socket(self) -> str:
        found = self.server.cmd("display-message", "-p", "#{socket_path}")
        return found.stdout[0] if found.stdout else str(self.server.socket_path or "")


def executed(command: str) -> str:
    """A plain command replaces the shell that tmux starts it with, so that the pane's process is the agent itself."""
    return command if _COMPOUND.search(command) else f"exec {command}"


def filled(template: str, values: Mapping[str, str | Path]) -> str:
    """`claude --mcp-config {mcp_config}` with its placeholders filled; other braces stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda found: str(values.get(found[1], found[0])), template)
