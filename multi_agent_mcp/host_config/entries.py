"""Our entries in a host's files: the server and the hooks."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multi_agent_mcp.store.workspace import Workspace

SERVER_NAME = "ipc"
STARTUP_SECONDS = 20
HOOK_SECONDS = 10
WAITER_SECONDS = 604_800  # a week: hosts end hooks after ten minutes by default, and an idle agent waits longer

AGENT = "MULTI_AGENT_MCP_AGENT"
IDENTITY = ("MULTI_AGENT_MCP_ROOT", "MULTI_AGENT_MCP_SESSION", AGENT)
EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")
WAITING_EVENTS = ("SessionStart", "Stop")
"""A waiter is armed when a session begins and again when a turn ends, because one that has woken the agent is gone."""


def identity(workspace: Workspace, agent_id: str) -> dict[str, str]:
    """The environment that says who an agent is."""
    return dict(zip(IDENTITY, (str(workspace.root), workspace.session, agent_id), strict=True))


def server_command(workspace: Workspace, agent_id: str) -> list[str]:
    """The command line of an agent's server, by the interpreter that runs this."""
    return [sys.executable, "-m", "multi_agent_mcp", "serve", *_options(workspace, agent_id)]


def hook_command(workspace: Workspace, agent_id: str, host: str, *flags: str) -> str:
    """The shell command of an agent's hooks."""
    where = _options(workspace, agent_id)
    return shlex.join([sys.executable, "-m", "multi_agent_mcp", "hook", "--host", host, *where, *flags])


def is_our_hook(hook: object) -> bool:
    """Whether an entry in a host's file is a hook that we wrote, for whichever agent."""
    return isinstance(hook, dict) and " multi_agent_mcp hook --host " in str(hook.get("command"))


def mcp_servers(workspace: Workspace, agent_id: str) -> dict[str, Any]:
    """The `mcpServers` object that most hosts read."""
    command, *args = server_command(workspace, agent_id)
    entry = {"command": command, "args": args, "env": identity(workspace, agent_id)}
    return {"mcpServers": {SERVER_NAME: entry}}


def claude_servers(workspace: Workspace, agent_id: str) -> dict[str, Any]:
    """As Claude Code reads it; `alwaysLoad` makes it wait for the server."""
    servers = mcp_servers(workspace, agent_id)
    servers["mcpServers"][SERVER_NAME] |= {"type": "stdio", "alwaysLoad": True}
    return servers


def claude_settings(workspace: Workspace, agent_id: str, *, shared: bool) -> dict[str, Any]:
    """Claude Code's settings: hooks, and our tools allowed. `shared`: the file belongs to a directory in which other
    agents may work, too, so the environment takes precedence."""
    settings: dict[str, Any] = {
        "permissions": {"allow": [f"mcp__{SERVER_NAME}"]},
        "hooks": _claude_hooks(workspace, agent_id, ("--unless-env",) if shared else ()),
    }
    return {"enabledMcpjsonServers": [SERVER_NAME], **settings} if shared else settings


def codex_hooks(workspace: Workspace, agent_id: str) -> dict[str, Any]:
    """Codex's `hooks.json`. It is its user's, or a directory's, so the environment takes precedence."""
    command = hook_command(workspace, agent_id, "codex", "--unless-env")
    return {"hooks": {event: [_group(_hook(command))] for event in EVENTS}}


def codex_server(workspace: Workspace, agent_id: str) -> dict[str, Any]:
    """Codex's `[mcp_servers.ipc]`; `required` makes it wait for the server."""
    command, *args = server_command(workspace, agent_id)
    return {
        "command": command,
        "args": args,
        "env": identity(workspace, agent_id),
        "required": True,
        "startup_timeout_sec": STARTUP_SECONDS,
        "default_tools_approval_mode": "approve",
    }


def codex_options(workspace: Workspace, agent_id: str) -> str:
    """The same as `-c` options, for a shell. Codex starts servers with next to no environment and without the pane,
    so that is given explicitly; and a `-c` option keeps the agent in its own TUI, so the pane is the right one."""
    prefix = f"mcp_servers.{SERVER_NAME}"
    flat: dict[str, Any] = codex_server(workspace, agent_id)
    flat |= {f"env.{name}": value for name, value in flat.pop("env").items()}
    flat["env_vars"] = ["MULTI_AGENT_MCP_PURPOSE"]  # set in windows that the supervisor opens
    options = [f"-c {shlex.quote(f'{prefix}.{key}={toml_value(value)}')}" for key, value in flat.items()]
    pane = {"MULTI_AGENT_MCP_PANE": "$TMUX_PANE", "MULTI_AGENT_MCP_SOCKET": "${TMUX%%,*}"}
    options += [f'-c "{prefix}.env.{name}=\\"{value}\\""' for name, value in pane.items()]
    return " ".join(options)


def codex_hook_options() -> str:
    """The hooks as `-c` options. Codex asks its user once per text of a hook whether it is to be trusted, and remembers
    one text for all that come from options: so it is the same for every agent, and the window's environment says which
    one it is."""
    command = shlex.join([sys.executable, "-m", "multi_agent_mcp", "hook", "--host", "codex"])
    groups = toml_value([_group(_hook(command))])
    return " ".join(f"-c {shlex.quote(f'hooks.{event}={groups}')}" for event in EVENTS)


def toml_table(name: str, values: Mapping[str, Any]) -> str:
    return "\n".join([f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in values.items())])


def toml_value(value: Any) -> str:
    """Texts, numbers, truth values, lists and tables as TOML; JSON's strings are TOML's, kept as UTF-8."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _claude_hooks(workspace: Workspace, agent_id: str, flags: tuple[str, ...]) -> dict[str, Any]:
    answering = _hook(hook_command(workspace, agent_id, "claude", *flags))
    waiting = _hook(hook_command(workspace, agent_id, "claude", *flags, "--wait"))
    waiting |= {"timeout": WAITER_SECONDS, "asyncRewake": True}
    return {event: [_group(answering, waiting) if event in WAITING_EVENTS else _group(answering)] for event in EVENTS}


def _options(workspace: Workspace, agent_id: str) -> list[str]:
    return ["--root", str(workspace.root), "--session", workspace.session, "--agent", agent_id]


def _hook(command: str) -> dict[str, Any]:
    return {"type": "command", "command": command, "timeout": HOOK_SECONDS}


def _group(*hooks: dict[str, Any]) -> dict[str, Any]:
    """Without a matcher it is for every tool."""
    return {"hooks": list(hooks)}
