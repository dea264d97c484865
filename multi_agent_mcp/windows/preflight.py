"""Checks before `up` opens windows: tmux, the agents' programs, and variables that would not reach them."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from multi_agent_mcp.config import expanded
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.tmux.client import require_tmux, withheld
from multi_agent_mcp.doorbell.tmux.profiles import load_profiles
from multi_agent_mcp.doorbell.tmux.team_panes import is_compound
from multi_agent_mcp.host_config import program_name, program_of
from multi_agent_mcp.hosts import hosts as known_hosts
from multi_agent_mcp.programs import child_environment
from multi_agent_mcp.system.host_versions import Newer, newer_hosts
from multi_agent_mcp.windows.shells import SH
from multi_agent_mcp.windows.window_registry import TeamWindows
from multi_agent_mcp.wiring import Services

_ACCOUNTS = ".*_(API_KEY|AUTH_TOKEN|ACCESS_TOKEN|BASE_URL)|(https?|HTTPS?|no|NO|all|ALL)_(proxy|PROXY)"
"""Variables of any host that choose the account a program uses, and the way to reach it."""
_FOR_THE_SHELL = re.compile(r"[$`*?\[]")


@dataclass(frozen=True)
class Preflight:
    """The results of the checks. `withheld` are the names of variables that would not reach the agents, never their
    values; there are none if no tmux server runs yet."""

    version: str
    socket_path: str
    was_running: bool
    withheld: tuple[str, ...]
    newer: tuple[Newer, ...] = ()
    """The hosts that are newer than their profiles, and were not told of before."""

    @property
    def remedy(self) -> str:
        """The shell commands that set the variables in the tmux server, from this terminal's environment."""
        tmux = f"tmux -S {shlex.quote(self.socket_path)} set-environment -g"
        return "; ".join(f'{tmux} {name} "${name}"' for name in self.withheld)


def preflight(windows: TeamWindows, agents: Iterable[Agent]) -> Preflight:
    """Checks tmux, the team's open windows and the variables. Raises `InvalidArguments` without a usable tmux, and
    while windows of a deleted session are open here."""
    version = require_tmux(windows.socket_path)
    windows.look()
    windows.require_no_former()
    agents = list(agents)
    missing = withheld(windows.socket_path, _account_variables(windows.services, agents))
    newer = _record_untold(windows.services, newer_hosts(agent.command for agent in agents))
    return Preflight(version, windows.socket_path, missing is not None, tuple(sorted(missing or ())), newer)


def _record_untold(services: Services, newer: Iterable[Newer]) -> tuple[Newer, ...]:
    """Records the hosts of which this version has not been told before, and returns them."""
    told = services.workspace.told_versions.facts()
    untold = tuple(host for host in newer if told.get(host.host) != host.version)
    if untold:
        services.workspace.told_versions.write({**told, **{host.host: host.version for host in untold}})
    return untold


def missing_program(command: str, shell: str = SH) -> str | None:
    """Returns the program of a simple command if it cannot be found, else None. A new window has our PATH and
    directory."""
    if is_compound(command) or shell != SH:
        return None  # it may begin with a word of the shell
    try:
        shlex.split(command)
    except ValueError:
        return None  # the shell will report the error
    program = program_of(command)
    if not program or _FOR_THE_SHELL.search(program):
        return None
    return None if shutil.which(expanded(program)) else program


def _account_variables(services: Services, agents: Iterable[Agent]) -> Mapping[str, str]:
    profiles = load_profiles(services.root / "hosts")
    hosts = [profiles.started_by(program_name(agent.command)) for agent in agents if agent.command]
    patterns = {_ACCOUNTS, *(text for host in hosts if host is not None for text in host.environment)}
    wanted = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    inherited = {name for host in known_hosts().values() for name in host.inherited}
    given = child_environment().items()
    return {name: value for name, value in given if value and wanted.fullmatch(name) and name not in inherited}
