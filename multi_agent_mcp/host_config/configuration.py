"""Which files a host reads, what they must contain, and how the host is then started."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.host_config.hosts import HOSTS, filled, own_file, values
from multi_agent_mcp.host_config.merging import (
    Identity,
    Merge,
    Unmergeable,
    agents_in,
    as_json,
    json_merge,
    toml_merge,
    whole,
)
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.external_files import FileChange, apply_change, read_external

MCP_CONFIG = "{mcp_config}"
"""Where an agent's command takes its host's configuration."""


@dataclass(frozen=True)
class HostFile:
    """One file of a host. `merge` makes its new content from the old one."""

    path: Path
    merge: Merge

    @property
    def content(self) -> str:
        """The content of a file that did not exist before."""
        return self.merge(None).decode().rstrip("\n")

    def other_agents(self) -> set[Identity]:
        """The agents of sessions that are still there whom the file serves, and whom writing it would cut off. None,
        when what we write is for whichever agent works there."""
        is_toml = self.path.suffix == ".toml"
        mine = agents_in(self.merge(None), toml=is_toml)
        try:
            found = agents_in(read_external(self.path), toml=is_toml) if mine else set()
        except Unmergeable:
            return set()  # `change` says what is wrong with it
        return {other for other in found - mine if Path(other.root, other.session).is_dir()}

    def change(self) -> FileChange:
        """Raises `InvalidArguments` when the file cannot be merged into, `StorageError` when it cannot be read."""
        before = read_external(self.path)
        try:
            return FileChange(self.path, before, self.merge(before))
        except Unmergeable as error:
            raise InvalidArguments("bad_host_file", file=self.path, reason=error.reason) from error


@dataclass(frozen=True)
class HostConfiguration:
    """What goes into a host's files, and how the host is then started."""

    host: str
    files: tuple[HostFile, ...]
    start: str

    def as_answer(self) -> dict[str, Any]:
        files = [{"file": str(item.path), "content": item.content} for item in self.files]
        return {"host": self.host, **(files[0] if files else {}), "files": files, "start": self.start}

    def lines(self) -> Iterator[str]:
        for item in self.files:
            yield f"# {item.path}"
            yield item.content
        yield f"# then: {self.start}" if self.files else self.start

    def require_unused(self, own: Path) -> None:
        """Raises `InvalidArguments` when a file serves another agent already: the second must not replace the first.
        Files below `own` are this agent's alone."""
        for item in self.files:
            for other in () if item.path.is_relative_to(own) else item.other_agents():
                raise InvalidArguments("other_agent_there", file=item.path, agent_id=other.agent_id)

    def write(self, backups: Path) -> list[tuple[Path, Path | None]]:
        """Merges into the files; one that cannot be merged into leaves them all as they are. Returns the files that
        changed, each with its backup."""
        changes = [item.change() for item in self.files]
        return [(change.path, apply_change(change, backups)) for change in changes if change.changes]


class HostConfigurations:
    """The configurations of one session's agents."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def of(self, host: str, agent_id: str, directory: Path | None = None) -> HostConfiguration:
        """The configuration of one of `HOSTS` for one agent: in the files of a directory, or where the agent has it for
        itself (its own files, command-line options for Codex). Gemini CLI has it in a directory's only, the current
        one."""
        known = HOSTS[host]
        filling = values(known, self.workspace, agent_id)
        filling["mcp_config"] = filled(known.words, filling)
        if directory is None:
            paths = {name: own_file(self.workspace, agent_id, name) for name in known.own}
            content, start = known.own, known.start
        if directory is not None or not (known.own or known.words):
            paths = {name: (directory or Path()) / name for name in known.shared}
            content, start = known.shared, known.start_shared
        filling["directory"] = shlex.quote(str(directory))
        files = (HostFile(path, _merge(name, filled(content[name], filling))) for name, path in paths.items())
        return HostConfiguration(host, tuple(files), filled(start, filling))

    def write(self, configuration: HostConfiguration) -> list[tuple[Path, Path | None]]:
        """Merges it into the host's files, unless they serve another agent; see `HostConfiguration.write`."""
        configuration.require_unused(own=self.workspace.path)
        return configuration.write(self._backups)

    def argument(self, agent: Agent) -> str:
        """The shell words for `{mcp_config}` in an agent's command, with the files they name written now. A program
        that we do not know is given the file of the server that Claude Code reads, and so is a Claude Code with
        settings of its own."""
        if (command := self.missing_settings(agent)) is not None:
            raise InvalidArguments("gemini_not_configured", command=command, file=next(iter(HOSTS["gemini"].shared)))
        host = _host_of(agent)
        known = HOSTS.get(host, HOSTS["claude"])
        if known.own:
            self.of(known.name, agent.id).write(self._backups)
        is_server_only = host not in HOSTS or (host == "claude" and "--settings" in (agent.command or ""))
        return str(filled("{mcp.json}" if is_server_only else known.words, values(known, self.workspace, agent.id)))

    def environment(self, agent: Agent) -> dict[str, str]:
        """The environment by which `{mcp_config}` reaches a host that has no option for it."""
        known = HOSTS.get(_host_of(agent))
        if known is None or MCP_CONFIG not in (agent.command or ""):
            return {}
        own = known.environment.items()
        return {variable: str(own_file(self.workspace, agent.id, name)) for variable, name in own}

    def missing_settings(self, agent: Agent) -> str | None:
        """The command to be run before `{mcp_config}` can work, if one is. Gemini CLI has no other file than its
        directory's, which belongs to more than this agent: it is not written unasked."""
        if _host_of(agent) != "gemini" or MCP_CONFIG not in (agent.command or ""):
            return None
        try:
            is_there = not self.of("gemini", agent.id).files[0].change().changes
        except InvalidArguments:  # the command says what is wrong with the file
            is_there = False
        return None if is_there else f"multi-agent-mcp host-config gemini --agent {agent.id} --write"

    @property
    def _backups(self) -> Path:
        """Where copies of the files that we changed are kept: not in anybody's repository."""
        return self.workspace.path / "hosts" / "backups"


def program_name(command: str) -> str:
    """The name of the program a command begins with."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return Path(words[0]).name if words else ""


def _host_of(agent: Agent) -> str:
    return agent.host if agent.host is not None and agent.host in HOSTS else program_name(agent.command or "")


def _merge(name: str, content: Any) -> Merge:
    """A program's text and the files of a plugin are ours alone; a table goes into its user's, and so do entries."""
    if isinstance(content, str):
        return whole(content)
    if name.startswith("copilot/"):
        return whole(as_json(content))
    return toml_merge(content) if name.endswith(".toml") else json_merge(content)
