"""The way from a terminal to a team's windows: attaching to its tmux server, or switching a client of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from multi_agent_mcp.config import read_environment
from multi_agent_mcp.domain.agent import PURPOSES
from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.doorbell.tmux.client import Answer, Server, own_pane, pane_place, require_tmux
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.programs import child_environment
from multi_agent_mcp.windows.agent_command import with_terminal
from multi_agent_mcp.windows.window_registry import TeamWindows


@dataclass(frozen=True)
class Attachment:
    """A session or pane of a tmux server, as tmux names a target, to be shown in this terminal."""

    socket_path: str
    target: str

    @property
    def is_here(self) -> bool:
        """Whether this terminal is a pane of that server."""
        here = own_pane()
        return here is not None and here.socket_path == self.socket_path

    @property
    def command(self) -> str:
        """The command that shows it. Inside that tmux server it switches the client; inside another one it unsets TMUX,
        as tmux refuses to attach within tmux."""
        outside = [] if self.is_here or read_environment().pane is None else ["env", "-u", "TMUX"]
        # quoted explicitly: zsh expands a bare `=name` to the path of a program
        target = shlex.quote(self.target).strip("'")
        return f"{shlex.join([*outside, *self._words])} -t '{target}'"

    def show(self) -> None:
        """Shows it in this terminal, which is a pane of that server or outside tmux, where tmux replaces this process.
        Raises `InvalidArguments` if tmux refuses to switch."""
        if not self.is_here:
            words = [*self._words, "-t", self.target]
            os.execvpe("tmux", words, child_environment())  # noqa: S606 - tmux needs this terminal, and no shell
        switched = self.switch()
        if switched.failure:
            raise InvalidArguments("tmux", reason=" ".join(switched.stderr))

    def switch(self) -> Answer:
        """Shows it in the terminal of the tmux client that shows this pane."""
        return Server(self.socket_path).cmd("switch-client", "-t", self.target)

    @property
    def _words(self) -> list[str]:
        return ["tmux", "-S", self.socket_path, "switch-client" if self.is_here else "attach"]


def team_attachment(windows: TeamWindows) -> Attachment | None:
    """Returns the way to the team's tmux session; None without windows."""
    return Attachment(windows.socket_path, f"={windows.tmux_session}") if windows.has_windows else None


def find_attachment(windows: TeamWindows, agent_id: str | None) -> Attachment:
    """Returns the way to the team, or to an agent's window: that of its task session, else of its chat session, else
    the pane in which a person has started it, else a window whose program has ended. Raises `InvalidArguments` if there
    is none, or without a usable tmux."""
    require_tmux(windows.socket_path)
    windows.look()
    if agent_id is None:
        if (team := team_attachment(windows)) is None:
            raise InvalidArguments("attach_no_team")
        return team
    for socket_path, pane_id in _panes_of(windows, agent_id):
        if (place := pane_place(socket_path, pane_id)) is not None:
            return Attachment(socket_path, f"={place['session_name']}:.{pane_id}")
    if (pid := with_terminal(windows.services, agent_id, "task")) is not None:
        raise InvalidArguments("restart_terminal", agent_id=agent_id, pid=pid)
    raise InvalidArguments("attach_no_window", agent_id=agent_id)


def _panes_of(windows: TeamWindows, agent_id: str) -> Iterator[tuple[str, str]]:
    """The sockets and ids of the panes that may be an agent's, the best first."""
    labels = [Slot(agent_id, purpose).label for purpose in PURPOSES]
    panes = sorted((pane for pane in windows.found if pane.label in labels), key=lambda pane: labels.index(pane.label))
    yield from ((pane.socket_path, pane.pane_id) for pane in panes if not pane.dead)
    agent = windows.services.agents.get(agent_id)
    if agent.socket_path and agent.pane_id and windows.is_in_other_pane(agent):
        yield agent.socket_path, agent.pane_id
    yield from ((pane.socket_path, pane.pane_id) for pane in panes if pane.dead)
