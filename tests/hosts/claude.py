"""Claude Code, offline."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, ClassVar

from tests.hosts.replies import Call
from tests.hosts.stage import AGENT, Host, Program, Stage

ASKING = "--permission-mode default"  # newer versions begin in one that asks nobody
KEY = "sk-ant-scripted-00000000000000000000000000"


class Claude(Host):
    name = "claude"
    program = Program("@anthropic-ai/claude-code", "2.1.197", "claude")
    quit = "/exit"
    dialog = "Do you want to proceed?"
    env: ClassVar[Mapping[str, str]] = {
        "ANTHROPIC_API_KEY": KEY,
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }

    def furnish(self, stage: Stage, *, hooks: bool, asks: bool) -> str:
        state = {
            "hasCompletedOnboarding": True,
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
            "projects": {str(stage.project): {"hasTrustDialogAccepted": True}},
        }
        (stage.home / ".claude.json").write_text(json.dumps(state), encoding="utf-8")
        base_url = f"ANTHROPIC_BASE_URL={stage.model.url}"
        settings = stage.home / ".claude" / "settings.json"
        settings.parent.mkdir()
        settings.write_text(json.dumps({"permissions": {"allow": [] if asks else ["Bash"]}}), encoding="utf-8")
        if hooks:
            stage.team.ask("host-config", "claude", "--agent", AGENT, "--directory", stage.project, "--write")
            return f"{base_url} claude {ASKING}"
        configuration = stage.team.ask("host-config", "claude", "--agent", AGENT)
        servers, settings_file = configuration["files"]
        path = stage.base / "servers.json"
        path.write_text(servers["content"], encoding="utf-8")
        words = shlex.split(configuration["start"].replace(servers["file"], str(path)))
        at = words.index("--settings")
        assert words.pop(at + 1) == settings_file["file"]
        words.pop(at)
        return f"{base_url} {shlex.join(words)} {ASKING}"

    def tool(self, name: str, **arguments: Any) -> Call:
        return Call(self.knows(name), arguments)

    def shell(self, command: str, *, ask: bool = False) -> Call:
        del ask  # it asks about whatever settings.json does not allow
        return Call("Bash", {"command": command, "description": "scripted"})

    def knows(self, tool: str) -> str:
        return f"mcp__ipc__{tool}"
