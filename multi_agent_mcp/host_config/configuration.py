"""The configuration of a host for an agent: files, their content, and the command that starts the host with them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.errors import InvalidArguments
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
from multi_agent_mcp.host_config.templates import filled, own_file, values
from multi_agent_mcp.hosts import hosts
from multi_agent_mcp.system.other_files import FileChange, apply_change, read_external

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.store.workspace import Workspace

MCP_CONFIG = "{mcp_config}"
"""The placeholder for the host's configuration in an agent's command."""
UNDESCRIBED, SERVER_FILE = "claude", "{mcp.json}"
"""The host whose form of a server's file programs without a description get, and that file."""


@dataclass(frozen=True)
class HostFile:
    """One file of a host. `merge` makes its new content from the old one."""

    path: Path
    merge: Merge

    @property
    def content(self) -> str:
        """The content if the file does not exist yet."""
        return self.merge(None).decode().rstrip("\n")

    def other_agents(self) -> set[Identity]:
        """Returns the agents of existing sessions that the file serves and that writing it would cut off; none if our
        content names no agent."""
        is_toml = self.path.suffix == ".toml"
        mine = agents_in(self.merge(None), toml=is_toml)
        try:
            found = agents_in(read_external(self.path), toml=is_toml) if mine else set()
        except Unmergeable:
            return set()  # `change` raises for it
        return {other for other in found - mine if Path(other.root, other.session).is_dir()}

    def change(self) -> FileChange:
        """Returns the change of the file. Raises `InvalidArguments` if its content cannot be merged with ours, and
        `StorageError` if it cannot be read."""
        before = read_external(self.path)
        try:
            return FileChange(self.path, before, self.merge(before))
        except Unmergeable as error:
            raise InvalidArguments("bad_host_file", file=self.path, reason=error.reason) from error


@dataclass(frozen=True)
class HostConfiguration:
    """The files of a host, and the command that then starts it."""

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
        """Raises `InvalidArguments` if a file already serves another agent, which must not be replaced. Files below
        `own` belong to this agent alone."""
        for item in self.files:
            for other in () if item.path.is_relative_to(own) else item.other_agents():
                raise InvalidArguments("other_agent_there", file=item.path, agent_id=other.agent_id)

    def write(self, backups: Path) -> list[tuple[Path, Path | None]]:
        """Merges our entries into the files, or changes none of them if one cannot be merged. Returns the files that
        changed, each with its backup. Raises as `HostFile.change`."""
        changes = [item.change() for item in self.files]
        return [(change.path, apply_change(change, backups)) for change in changes if change.changes]


class HostConfigurations:
    """The configurations of one session's agents."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def of(self, host: str, agent_id: str, directory: Path | None = None) -> HostConfiguration:
        """Returns the configuration of a host for one agent: in the files of a directory, or for None in the agent's
        own files (or command-line options). For a host that reads only its directory, None is the current one."""
        known, template = hosts()[host], hosts()[host].configuration
        filling = values(known, self.workspace, agent_id)
        filling["mcp_config"] = filled(template.words, filling)
        if directory is None:
            paths = {name: own_file(self.workspace, agent_id, name) for name in template.own}
            content, start = template.own, template.start
        if directory is not None or template.is_of_directory:
            paths = {name: (directory or Path()) / name for name in template.shared}
            content, start = template.shared, template.start_shared
        filling["directory"] = shlex.quote(str(directory))
        files = (HostFile(path, _merge(name, filled(content[name], filling))) for name, path in paths.items())
        return HostConfiguration(host, tuple(files), filled(start, filling))

    def write(self, configuration: HostConfiguration) -> list[tuple[Path, Path | None]]:
        """Merges the configuration into the host's files, unless they serve another agent; see `require_unused` and
        `write` of `HostConfiguration`."""
        configuration.require_unused(own=self.workspace.path)
        return configuration.write(self._backups)

    def argument(self, agent: Agent) -> str:
        """Returns the shell words for `{mcp_config}` in an agent's command, and writes the files that they name. An
        unknown program, and a command that brings its own settings, get only the file of the server in Claude Code's
        format. Raises `InvalidArguments` if the host reads only its directory, which is not configured."""
        if (command := self.missing_settings(agent)) is not None:
            title, file = hosts()[_host_of(agent)].title, self.of(_host_of(agent), agent.id).files[0].path
            raise InvalidArguments("host_not_configured", title=title, command=command, file=file)
        known = hosts().get(_host_of(agent))
        used = known or hosts()[UNDESCRIBED]
        if used.configuration.own:
            self.of(used.name, agent.id).write(self._backups)
        has_settings = used.configuration.settings_option in shlex.split(agent.command or "", comments=False)
        words = SERVER_FILE if known is None or has_settings else used.configuration.words
        return str(filled(words, values(used, self.workspace, agent.id)))

    def environment(self, agent: Agent) -> dict[str, str]:
        """Returns the variables that pass `{mcp_config}` to a host without an option for it."""
        known = hosts().get(_host_of(agent))
        if known is None or MCP_CONFIG not in (agent.command or ""):
            return {}
        own = known.configuration.environment.items()
        return {variable: str(own_file(self.workspace, agent.id, name)) for variable, name in own}

    def missing_settings(self, agent: Agent) -> str | None:
        """Returns the command to run before `{mcp_config}` can work, or None. What a host reads only in its directory
        is not written without being asked for, as it is not this agent's alone."""
        known = hosts().get(_host_of(agent))
        if known is None or not known.configuration.is_of_directory or MCP_CONFIG not in (agent.command or ""):
            return None
        try:
            is_there = not self.of(known.name, agent.id).files[0].change().changes
        except InvalidArguments:  # the command reports the error in the file
            is_there = False
        return None if is_there else f"multi-agent-mcp host-config {known.name} --agent {agent.id} --write"

    @property
    def _backups(self) -> Path:
        """The directory for copies of changed files, outside of the user's repository."""
        return self.workspace.path / "hosts" / "backups"


def program_name(command: str) -> str:
    """Returns the name of the program at the beginning of a command."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return Path(words[0]).name if words else ""


def _host_of(agent: Agent) -> str:
    """Returns the host that a person named, else the command's program, else, if that is no known host, the recorded
    one: it may be that of an earlier command."""
    program = program_name(agent.command or "")
    return next((name for name in (agent.declared_host, program, agent.host) if name and name in hosts()), program)


def _merge(name: str, content: Any) -> Merge:
    """Returns the merge for a file: text, and a plugin's files in a directory of their own, are ours and replaced;
    tables and JSON entries are merged into the user's file."""
    if isinstance(content, str):
        return whole(content)
    if "/" in name and not name.startswith("."):
        return whole(as_json(content))
    return toml_merge(content) if name.endswith(".toml") else json_merge(content)
