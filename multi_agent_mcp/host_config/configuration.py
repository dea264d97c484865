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
    COPILOT_PLUGIN,
    SERVER_NAME,
    claude_servers,
    claude_settings,
    codex_hook_options,
    codex_hooks,
    codex_options,
    codex_server,
    copilot_hooks,
    copilot_servers,
    gemini_settings,
    identity,
    opencode_hooks,
    opencode_settings,
)
from multi_agent_mcp.host_config.merging import (
    Identity,
    Merge,
    Unmergeable,
    agents_in,
    json_merge,
    toml_merge,
    whole_json,
    whole_text,
)
from multi_agent_mcp.system.external_files import FileChange, apply_change, read_external

if TYPE_CHECKING:
    from multi_agent_mcp.store.workspace import Workspace

HOSTS = ("claude", "codex", "gemini", "opencode", "copilot")
MCP_CONFIG = "{mcp_config}"
"""Where an agent's command takes its host's configuration."""
OPENCODE_CONFIG = "OPENCODE_CONFIG"
"""The variable that names a file of settings to OpenCode."""
GEMINI_SETTINGS = Path(".gemini/settings.json")


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
    """The configuration of one of `HOSTS` for one agent: in the files of a directory, or where the agent has it for
    itself (its own files, command-line options for Codex)."""
    if host == "claude":
        return _own_claude(workspace, agent_id) if directory is None else _claude(workspace, agent_id, directory)
    makers = {"codex": _codex, "gemini": _gemini, "opencode": _opencode, "copilot": _copilot}
    return makers[host](workspace, agent_id, directory)


def mcp_argument(workspace: Workspace, agent: Agent) -> str:
    """The shell words for `{mcp_config}` in an agent's command, with the files they name written now."""
    host = _host_of(agent)
    if host == "codex":
        return f"{codex_options(workspace, agent.id)} {codex_hook_options()}"
    if host == "gemini":
        return _gemini_words(workspace, agent)
    if host == "opencode":
        _opencode(workspace, agent.id, None).write(backups(workspace))
        return ""  # its file is in `mcp_environment`
    if host == "copilot":
        _copilot(workspace, agent.id, None).write(backups(workspace))
        return _copilot_options(workspace, agent.id)
    return _claude_words(workspace, agent, settings=host == "claude" and "--settings" not in (agent.command or ""))


def missing_settings(workspace: Workspace, agent: Agent) -> str | None:
    """The command to be run before `{mcp_config}` can work, if one is. Gemini CLI has no other file than its
    directory's, which belongs to more than this agent: it is not written unasked."""
    if _host_of(agent) != "gemini" or MCP_CONFIG not in (agent.command or ""):
        return None
    try:
        is_there = not _gemini(workspace, agent.id, None).files[0].change().changes
    except InvalidArguments:  # the command says what is wrong with the file
        is_there = False
    return None if is_there else f"multi-agent-mcp host-config gemini --agent {agent.id} --write"


def _gemini_words(workspace: Workspace, agent: Agent) -> str:
    if (command := missing_settings(workspace, agent)) is not None:
        raise InvalidArguments("gemini_not_configured", command=command, file=GEMINI_SETTINGS)
    return ""


def _claude_words(workspace: Workspace, agent: Agent, *, settings: bool) -> str:
    """The file of the server, which any other program is given, too; for Claude Code also its settings, with hooks."""
    _own_claude(workspace, agent.id).write(backups(workspace))
    config, hooks = (shlex.quote(str(path)) for path in _own_files(workspace, agent.id))
    return f"{config} --settings {hooks}" if settings else config


def mcp_environment(workspace: Workspace, agent: Agent) -> dict[str, str]:
    """The environment by which `{mcp_config}` reaches a host that has no option for it."""
    if _host_of(agent) != "opencode" or MCP_CONFIG not in (agent.command or ""):
        return {}
    return {OPENCODE_CONFIG: str(_own(workspace, agent.id, "opencode.json"))}


def _host_of(agent: Agent) -> str:
    return agent.host if agent.host in HOSTS else program_name(agent.command or "")


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
    return _own(workspace, agent_id, "mcp.json"), _own(workspace, agent_id, "settings.json")


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


def _own(workspace: Workspace, agent_id: str, name: str) -> Path:
    """A file, or a directory, of this agent alone."""
    return workspace.path / "hosts" / f"{agent_id}.{name}"


def _opencode(workspace: Workspace, agent_id: str, directory: Path | None) -> HostConfiguration:
    """Hooks are in a plugin of the agent's own. A directory's would run for everybody who works there."""
    if directory is not None:
        servers = json_merge(opencode_settings(workspace, agent_id, None))
        start = f"cd {shlex.quote(str(directory))} && opencode"
        return HostConfiguration("opencode", (HostFile(directory / "opencode.json", servers),), start)
    file, plugin = (_own(workspace, agent_id, name) for name in ("opencode.json", "opencode.js"))
    files = (
        HostFile(file, json_merge(opencode_settings(workspace, agent_id, plugin))),
        HostFile(plugin, whole_text(opencode_hooks(workspace, agent_id))),
    )
    return HostConfiguration("opencode", files, f"{OPENCODE_CONFIG}={shlex.quote(str(file))} opencode")


def _copilot(workspace: Workspace, agent_id: str, directory: Path | None) -> HostConfiguration:
    """Hooks are in a plugin of the agent's own. A directory's would run on GitHub, too, once they are committed."""
    servers = json_merge(copilot_servers(workspace, agent_id))
    if directory is not None:
        start = f"cd {shlex.quote(str(directory))} && copilot --allow-tool={SERVER_NAME}"
        return HostConfiguration("copilot", (HostFile(directory / ".github" / "mcp.json", servers),), start)
    plugin = _own(workspace, agent_id, "copilot")
    files = (
        HostFile(_own(workspace, agent_id, "copilot.json"), servers),
        HostFile(plugin / "plugin.json", whole_json(COPILOT_PLUGIN)),
        HostFile(plugin / "hooks.json", whole_json(copilot_hooks(workspace, agent_id))),
    )
    return HostConfiguration("copilot", files, f"copilot {_copilot_options(workspace, agent_id)}")


def _copilot_options(workspace: Workspace, agent_id: str) -> str:
    file, plugin = (_own(workspace, agent_id, name) for name in ("copilot.json", "copilot"))
    options = ["--additional-mcp-config", f"@{file}", "--plugin-dir", str(plugin), f"--allow-tool={SERVER_NAME}"]
    return shlex.join(options)


def _codex(workspace: Workspace, agent_id: str, directory: Path | None) -> HostConfiguration:
    """For one agent it is all options. Hooks take the agent from the environment; Codex asks once whether they are to
    be trusted (`/hooks`)."""
    start = f"{_who(workspace, agent_id)} codex {codex_options(workspace, agent_id)}"
    if directory is None:
        return HostConfiguration("codex", (), f"{start} {codex_hook_options()}")
    base = directory / ".codex"
    files = (
        HostFile(base / "config.toml", toml_merge(codex_server(workspace, agent_id))),
        HostFile(base / "hooks.json", json_merge(codex_hooks(workspace, agent_id))),
    )
    return HostConfiguration("codex", files, start)


def _gemini(workspace: Workspace, agent_id: str, directory: Path | None) -> HostConfiguration:
    file = (directory or Path()) / GEMINI_SETTINGS
    files = (HostFile(file, json_merge(gemini_settings())),)
    return HostConfiguration("gemini", files, f"{_who(workspace, agent_id)} gemini")


def _who(workspace: Workspace, agent_id: str) -> str:
    """The environment that says who the agent is, for a shell."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in identity(workspace, agent_id).items())
