"""Nothing is typed into a stranger: whether the program that has the pane is one that may be typed into."""

from __future__ import annotations

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.notify.tmux.profiles import PLAIN, SHELL, Profile, Profiles
from multi_agent_mcp.system.foreground import Foreground, foreground

UNKNOWN_HOST = "unknown_host"
"""The reason for a program that no profile describes, and for one that has taken the place of a registered one."""


def recognise(agent: Agent, pane_pid: int, command: str, profiles: Profiles) -> Profile | str:
    """The profile by which the screen of this pane is to be read, or the reason why nothing is typed there whatever it
    shows. What cannot be found out counts as a stranger."""
    seen = foreground(pane_pid)
    if seen is None:
        return UNKNOWN_HOST
    registered = _registered(agent)
    for process in seen.readers:
        if (listed := profiles.forbids(process, registered)) is not None:
            return SHELL if listed.name == SHELL else UNKNOWN_HOST
    profile = profiles.describing(agent, command, seen)
    if profile is None or (profile.name == PLAIN and not _still_there(agent, seen)):
        return UNKNOWN_HOST
    return profile


def _registered(agent: Agent) -> list[str]:
    """Who read the terminal when the pane was registered. agents.json is anybody's to edit."""
    return agent.pane_program if agent.host == PLAIN and isinstance(agent.pane_program, list) else []


def _still_there(agent: Agent, seen: Foreground) -> bool:
    """Whether nobody but the registered program reads the terminal. A record that does not name it, as of a window that
    was opened for the agent's command, means the pane's own process and what that runs itself."""
    if registered := _registered(agent):
        return set(seen.identities) <= set(map(str, registered))
    return seen.leader.pid == agent.pane_pid
