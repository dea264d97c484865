"""OpenCode, offline, with a custom provider."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.hosts.replies import CONTEXT, Call
from tests.hosts.stage import Host, Program, Stage

OFFLINE = (
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
    "OPENCODE_DISABLE_PRUNE",
)
"""Variables that disable downloads and services which would delay it."""


class OpenCode(Host):
    name = "opencode"
    program = Program("opencode-ai", "1.18.33", "opencode")
    quit = "/exit"
    compacts, fills = "/compact", True
    offers = "Compact session"  # it takes the command from its menu alone
    dialog = "Permission required"
    command = "opencode {mcp_config}"
    lacks = frozenset({"arguments", "waker", "queue", "trust", "stop"})

    def settle_in(self, home: Path, url: str, *, trusted: Path, asks: bool = False) -> Mapping[str, str]:  # noqa: ARG002
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{url}/v1", "apiKey": "scripted"},
            "models": {"scripted": {"limit": {"context": CONTEXT, "output": 1_000}}},
        }
        settings = {
            "model": "scripted/scripted",
            "small_model": "scripted/scripted",
            "provider": {"scripted": provider},
            "enabled_providers": ["scripted"],
            "permission": {"bash": "ask" if asks else "allow"},
            "autoupdate": False,
            "share": "disabled",
        }
        config = home / ".config" / "opencode" / "opencode.json"
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps(settings), encoding="utf-8")
        # it has npm fetch what plugins may import, and shows nothing before npm has, or has given up after 100 s
        return {**dict.fromkeys(OFFLINE, "1"), "npm_config_offline": "true"}

    def furnish(self, stage: Stage, *, hooks: bool) -> str:
        line = stage.own_configuration()
        if not hooks:
            (file,) = (stage.team.services.workspace.path / "hosts").glob("*.opencode.json")
            settings = json.loads(file.read_text(encoding="utf-8"))
            file.write_text(json.dumps({**settings, "plugin": []}), encoding="utf-8")
        return line

    def tool(self, name: str, **arguments: Any) -> Call:
        return Call(self.knows(name), arguments)

    def shell(self, command: str, *, ask: bool = False) -> Call:
        del ask  # it asks about whatever its settings do not allow
        return Call("bash", {"command": command, "description": "scripted"})

    headless = "opencode run go {words}"

    def write(self, path: Path) -> Call:
        return Call("write", {"filePath": str(path), "content": "new\n"})

    def knows(self, tool: str) -> str:
        return f"ipc_{tool}"
