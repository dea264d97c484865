"""How a host is told to start an agent's server (HOSTS.md §3, §7)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multi_agent_mcp.store.workspace import Workspace

HOSTS = ("claude", "codex", "gemini")
SERVER_NAME = "ipc"
STARTUP_SECONDS = 20


@dataclass(frozen=True)
class HostConfiguration:
    """What goes into `file`, and how the host is then started."""

    host: str
    file: str
    content: str
    start: str

    def as_answer(self) -> dict[str, Any]:
        return vars(self)

    def lines(self) -> Iterator[str]:
        yield f"# {self.file}"
        yield self.content
        yield f"# then: {self.start}"


def server_command(workspace: Workspace, agent_id: str) -> list[str]:
    """The command line of an agent's server, by the interpreter that runs this."""
    where = ["--root", str(workspace.root), "--session", workspace.session, "--agent", agent_id]
    return [sys.executable, "-m", "multi_agent_mcp", "serve", *where]


def mcp_servers(workspace: Workspace, agent_id: str) -> dict[str, Any]:
    """The `mcpServers` object that most hosts read."""
    command, *args = server_command(workspace, agent_id)
    return {"mcpServers": {SERVER_NAME: {"type": "stdio", "command": command, "args": args, "alwaysLoad": True}}}


def host_configuration(host: str, workspace: Workspace, agent_id: str) -> HostConfiguration:
    """The configuration of `claude`, `codex` or `gemini` for one agent."""
    if host == "codex":
        return _codex(workspace, agent_id)
    servers = mcp_servers(workspace, agent_id)
    if host == "gemini":
        entry = servers["mcpServers"][SERVER_NAME]
        servers = {"mcpServers": {SERVER_NAME: {"command": entry["command"], "args": entry["args"]}}}
        return HostConfiguration(host, ".gemini/settings.json", json.dumps(servers, indent=2), "gemini")
    file = mcp_config_path(workspace, agent_id)
    start = f"claude --mcp-config {file} --strict-mcp-config --allowedTools mcp__{SERVER_NAME}"
    return HostConfiguration(host, str(file), json.dumps(servers, indent=2), start)


def mcp_config_path(workspace: Workspace, agent_id: str) -> Path:
    """Where `up` writes the file that `{mcp_config}` in a command stands for."""
    return workspace.path / "hosts" / f"{agent_id}.mcp.json"


def _codex(workspace: Workspace, agent_id: str) -> HostConfiguration:
    """Codex starts servers with next to no environment and without the pane: both are given explicitly. A `-c` option
    also keeps the agent in its own TUI, so the pane is the right one."""
    command, *args = server_command(workspace, agent_id)
    prefix = f"mcp_servers.{SERVER_NAME}"
    settings = {
        "command": json.dumps(command),
        "args": json.dumps(args),
        "required": "true",
        "startup_timeout_sec": str(STARTUP_SECONDS),
        "default_tools_approval_mode": '"approve"',
    }
    toml = "\n".join([f"[{prefix}]", *(f"{key} = {value}" for key, value in settings.items())])
    pane = {"MULTI_AGENT_MCP_PANE": "$TMUX_PANE", "MULTI_AGENT_MCP_SOCKET": "${TMUX%%,*}"}
    options = [f"-c '{prefix}.{key}={value}'" for key, value in settings.items()]
    options += [f'-c "{prefix}.env.{key}=\\"{value}\\""' for key, value in pane.items()]
    return HostConfiguration("codex", "~/.codex/config.toml", toml, " ".join(["codex", *options]))
