"""A program without a profile in an agent's pane: its name and its screen. Types nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import InvalidArguments, Reason, TmuxTimeout
from multi_agent_mcp.notify.tmux.client import PANE_ID, TIMEOUT, Tmux
from multi_agent_mcp.notify.tmux.profiles import PLAIN, Profiles, load_profiles
from multi_agent_mcp.notify.tmux.screens import Screen
from multi_agent_mcp.notify.tmux.snapshot import PaneSnapshot, take_snapshot
from multi_agent_mcp.system.foreground import Foreground, foreground


@dataclass(frozen=True)
class UnknownProgram:
    """A program without a profile. `name` is its name for a profile's `commands`; `directory` is where profiles go."""

    agent: Agent
    name: str
    identities: tuple[str, ...]
    profiles: Profiles
    directory: Path

    @classmethod
    def in_pane_of(cls, agent: Agent, directory: Path) -> Self:
        """The program in the agent's pane. Raises `InvalidArguments` for a pane that does not exist, a program that is
        never typed into, and a host that has a profile; `TmuxTimeout`."""
        profiles = load_profiles(directory)
        _, seen = _look(agent)
        if os.getpid() in {process.pid for process in seen.readers}:
            raise _refused(Reason("learn_here"))
        for process in seen.readers:
            if profiles.forbids(process, ()) is not None:
                raise _refused(Reason("learn_never", program=process.name or process.executable))
        described = profiles.describing(agent, seen)
        if described is not None and described.name != PLAIN:
            raise _refused(Reason("learn_described", host=described.name))
        name = profiles.program(seen.leader)
        if name is None:
            raise _refused(Reason("learn_nameless"))
        return cls(agent, name, tuple(seen.identities), profiles, directory)

    def capture(self) -> Screen:
        """The program's current screen. Raises `InvalidArguments` when another program or no pane is there."""
        snapshot, seen = _look(self.agent)
        if not set(self.identities) <= set(seen.identities):
            raise _refused(Reason("learn_changed"))
        return snapshot.screen


def _look(agent: Agent) -> tuple[PaneSnapshot, Foreground]:
    if agent.pane_id is None or agent.socket_path is None or not PANE_ID.fullmatch(agent.pane_id):
        raise _refused(Reason("learn_pane", reason="no_pane"))
    snapshot = take_snapshot(Tmux(agent.socket_path), agent.pane_id)
    if snapshot == TIMEOUT:
        raise TmuxTimeout(socket_path=agent.socket_path)
    if isinstance(snapshot, str):
        raise _refused(Reason("learn_pane", reason=snapshot))
    if (reason := snapshot.facts.refusal(agent)) is not None:
        raise _refused(Reason("learn_pane", reason=reason))
    if (seen := foreground(snapshot.facts.pane_pid)) is None:
        raise _refused(Reason("learn_nameless"))
    return snapshot, seen


def _refused(reason: Reason) -> InvalidArguments:
    return InvalidArguments("not_learned", reason=reason)
