"""Which files a host reads, what they are to hold, and how the host is then started."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.host_config.entries import (
    SERVER_NAME,
    claude_servers,
    claude_settings,
    codex_hook_options,
    codex_hooks,
    codex_options,
    codex_server,
    identity,
    mcp_servers,
)
from multi_agent_mcp.host_config.merging import Identity, Merge, Unmergeable, agents_in, json_merge, toml_merge
from multi_agent_mcp.system.external_files import FileChange, apply_change, read_external

if TYPE_CHECKING:
    from multi_agent_mcp.store.workspace import Workspace

HOSTS = ("claude", "codex", "gemini")


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


def host_configuration(
    host: str, workspace: Workspace, agent_id: str, directory: Path | None = None
) -> HostConfiguration:
    """The configuration of `claude`, `codex` or `gemini` for one agent: in the files of a directory, or where the
    agent has it for itself (its own files for Claude Code, command-line options for Codex)."""
    if host == "codex":
        return _codex(workspace, agent_id, directory)
    if host == "gemini":
        servers = mcp_servers(workspace, agent_id)
        servers["mcpServers"][SERVER_NAME]["trust"] = True  # its tools run without asking
        file = (directory or Path()) / ".gemini" / "settings.json"
        return HostConfiguration(host, (HostFile(file, json_merge(servers)),), "gemini")
    return _own_claude(workspace, agent_id) if directory is None else _claude(workspace, agent_id, directory)


def mcp_argument(workspace: Workspace, agent: Agent) -> str:
    """The shell words for `{mcp_config}` in an agent's command: the file, written now; for Claude Code also
    its settings with the hooks, for Codex its options, hooks included."""
    command = agent.command or ""
    host = agent.host if agent.host in HOSTS else program_name(command)
    if host == "codex":
        return f"{codex_options(workspace, agent.id)} {codex_hook_options()}"
    _own_claude(workspace, agent.id).write(backups(workspace))
    config, settings = _own_files(workspace, agent.id)
    argument = shlex.quote(str(config))
    if host == "claude" and "--settings" not in command:
        argument += f" --settings {shlex.quote(str(settings))}"
    return argument


def backups(workspace: Workspace) -> Path:
    """Where copies of the files that we changed are kept: not in anybody's repository."""
    return workspace.path / "hosts" / "backups"


def program_name(command: str) -> str:
    """The name of the program a command begins with."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return Path(words[0]).name if words else ""


def _own_files(workspace: Workspace, agent_id: str) -> tuple[Path, Path]:
    hosts = workspace.path / "hosts"
    return hosts / f"{agent_id}.mcp.json", hosts / f"{agent_id}.settings.json"


def _own_claude(workspace: Workspace, agent_id: str) -> HostConfiguration:
    config, settings = _own_files(workspace, agent_id)
    files = (
        HostFile(config, json_merge(claude_servers(workspace, agent_id))),
        HostFile(settings, json_merge(claude_settings(workspace, agent_id, shared=False))),
    )
    options = ["--mcp-config", str(config), "--settings", str(settings), "--strict-mcp-config"]
    start = shlex.join(["claude", *options, "--allowedTools", f"mcp__{SERVER_NAME}"])
    return HostConfiguration("claude", files, start)


def _claude(workspace: Workspace, agent_id: str, directory: Path) -> HostConfiguration:
    files = (
        HostFile(directory / ".mcp.json", json_merge(claude_servers(workspace, agent_id))),
        HostFile(
            directory / ".claude" / "settings.local.json",
            json_merge(claude_settings(workspace, agent_id, shared=True)),
        ),
    )
    return HostConfiguration("claude", files, f"cd {shlex.quote(str(directory))} && claude")


def _codex(workspace: Workspace, agent_id: str, directory: Path | None) -> HostConfiguration:
    """For one agent it is all options. Hooks take the agent from the environment; Codex asks once whether they are to
    be trusted (`/hooks`)."""
    who = " ".join(f"{name}={shlex.quote(value)}" for name, value in identity(workspace, agent_id).items())
    start = f"{who} codex {codex_options(workspace, agent_id)}"
    if directory is None:
        return HostConfiguration("codex", (), f"{start} {codex_hook_options()}")
    base = directory / ".codex"
    files = (
        HostFile(base / "config.toml", toml_merge(codex_server(workspace, agent_id))),
        HostFile(base / "hooks.json", json_merge(codex_hooks(workspace, agent_id))),
    )
    return HostConfiguration("codex", files, start)
