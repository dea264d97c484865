"""Fills the templates of a host's configuration (`hosts/*.yaml`) with an agent's values."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp import __version__

if TYPE_CHECKING:
    from multi_agent_mcp.hosts import Host
    from multi_agent_mcp.store.workspace import Workspace

SERVER_NAME = "ipc"
HOOK_SECONDS = 10
AGENT = "MULTI_AGENT_MCP_AGENT"
IDENTITY = ("MULTI_AGENT_MCP_ROOT", "MULTI_AGENT_MCP_SESSION", AGENT)
EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "PreCompact")
_PROGRAM = (sys.executable, "-m", "multi_agent_mcp")
_PLACEHOLDER = re.compile(r"\{([\w./]+)\}")


def is_our_hook(hook: object) -> bool:
    """Returns whether an entry in a host's file is a hook that we wrote, for any agent."""
    return isinstance(hook, dict) and " multi_agent_mcp hook --host " in str(hook.get("command"))


def own_file(workspace: Workspace, agent_id: str, name: str) -> Path:
    """Returns the path of a file or directory of this agent alone."""
    return workspace.path / "hosts" / f"{agent_id}.{name}"


def values(host: Host, workspace: Workspace, agent_id: str) -> dict[str, Any]:
    """Returns the values of the placeholders in the host's data. For Gemini CLI and Codex's hooks they name no agent,
    as the environment does: Codex asks its user once about each text of a hook."""
    where = ["--root", str(workspace.root), "--session", workspace.session, "--agent", agent_id]
    serve, hook = [*_PROGRAM, "serve"], [*_PROGRAM, "hook", "--host", host.name]
    identity = dict(zip(IDENTITY, (str(workspace.root), workspace.session, agent_id), strict=True))
    found: dict[str, Any] = {
        "program": sys.executable,
        "server": [*serve, *where],
        "serve": [*serve, *where][1:],
        "serve_anyone": serve[1:],
        "identity": identity,
        "whoever": {name: f"${name}" for name in IDENTITY},
        "who": " ".join(f"{name}={shlex.quote(value)}" for name, value in identity.items()),
        "hook": shlex.join([*hook, *where]),
        "hook_anyone": shlex.join(hook),
        "hook_words": json.dumps([*hook, *where], ensure_ascii=False),
        "hook_milliseconds": HOOK_SECONDS * 1000,
        "version": __version__,
    }
    for name in host.configuration.own:
        path = own_file(workspace, agent_id, name)
        found |= {name: shlex.quote(str(path)), f"{name}_uri": path.as_uri()}
        if "/" in name:
            found[name.partition("/")[0]] = shlex.quote(str(path.parent))
    for name, table in host.configuration.shared.items():
        if name.endswith(".toml"):
            found["server_options"] = _server_options(filled(table, found))
            found["hook_options"] = _hook_options(found["hook_anyone"])
    return found


def filled(data: Any, known: Mapping[str, Any]) -> Any:
    """Returns the data with its placeholders filled; a text that is a single placeholder becomes the value itself.
    Unknown placeholders, such as `{mcp_config}`, stay."""
    if isinstance(data, dict):
        return {key: filled(value, known) for key, value in data.items()}
    if isinstance(data, list):
        return [filled(item, known) for item in data]
    if not isinstance(data, str):
        return data
    if (whole := _PLACEHOLDER.fullmatch(data)) is not None:
        return known.get(whole[1], data)
    return _PLACEHOLDER.sub(lambda found: str(known.get(found[1], found[0])), data)


def _server_options(table: dict[str, Any]) -> str:
    """Returns the server as Codex's `-c` options for a shell. They set the pane explicitly, as it starts servers with a
    minimal environment; and a `-c` option keeps the agent in its own TUI, so that it is the right pane."""
    prefix = f"mcp_servers.{SERVER_NAME}"
    flat = {**table, **{f"env.{name}": value for name, value in table["env"].items()}}
    del flat["env"]
    flat["env_vars"] = ["MULTI_AGENT_MCP_PURPOSE"]  # set in windows that the supervisor opens
    options = [f"-c {shlex.quote(f'{prefix}.{key}={toml_value(value)}')}" for key, value in flat.items()]
    pane = {"MULTI_AGENT_MCP_PANE": "$TMUX_PANE", "MULTI_AGENT_MCP_SOCKET": "${TMUX%%,*}"}
    options += [f'-c "{prefix}.env.{name}=\\"{value}\\""' for name, value in pane.items()]
    return " ".join(options)


def _hook_options(command: str) -> str:
    """Returns the hooks as Codex's `-c` options, with the same text for all agents: it remembers one approval for all
    hooks from options."""
    groups = toml_value([{"hooks": [{"type": "command", "command": command, "timeout": HOOK_SECONDS}]}])
    return " ".join(f"-c {shlex.quote(f'hooks.{event}={groups}')}" for event in EVENTS)


def toml_value(value: Any) -> str:
    """Returns a string, number, boolean, list or mapping as TOML, whose strings are written as in JSON, in UTF-8."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
