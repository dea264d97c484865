"""Claude Code, offline."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.hosts.replies import CONTEXT, Call, Refuse
from tests.hosts.stage import AGENT, Host, Program, Stage

ASKING = "--permission-mode default"  # newer versions begin in one that asks nobody
DAY_SECONDS = 86_400
KEY = "sk-ant-scripted-00000000000000000000000000"


class Claude(Host):
    name = "claude"
    program = Program("@anthropic-ai/claude-code", "2.1.197", "claude")
    quit = "/exit"
    compacts, fills = "/compact", True
    dialog = "Do you want to proceed?"
    trust, trusting = "Yes, I trust this folder", ("Down", "Enter")
    lacks = frozenset({"arguments", "rest"})

    command = f"claude --mcp-config {{mcp_config}} --strict-mcp-config {ASKING} --allowedTools mcp__ipc"

    def settle_in(self, home: Path, url: str, *, trusted: Path, asks: bool = False) -> Mapping[str, str]:
        state = {
            "hasCompletedOnboarding": True,
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
            "projects": {str(trusted): {"hasTrustDialogAccepted": True}},
        }
        (home / ".claude.json").write_text(json.dumps(state), encoding="utf-8")
        settings = home / ".claude" / "settings.json"
        settings.parent.mkdir()
        settings.write_text(json.dumps({"permissions": {"allow": [] if asks else ["Bash"]}}), encoding="utf-8")
        return {
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": url,
            "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(CONTEXT),
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "MCP_TIMEOUT": "120000",  # it gives a server up after 30 s, which a busy machine may take
        }

    def subscribe(self, env: dict[str, str], home: Path) -> None:
        del env["ANTHROPIC_API_KEY"]
        scopes = ["user:inference", "user:profile", "user:sessions:claude_code"]
        kept = {"accessToken": "sk-ant-oat01-scripted", "refreshToken": "sk-ant-ort01-scripted", "scopes": scopes}
        kept |= {"expiresAt": int(time.time() + DAY_SECONDS) * 1000, "subscriptionType": "max"}  # type: ignore[dict-item]
        path = home / ".claude" / ".credentials.json"
        path.write_text(json.dumps({"claudeAiOauth": kept}), encoding="utf-8")

    def refusal(self, until: float) -> Refuse | None:
        message = "This request would exceed your account's rate limit. Please try again later."
        headers = {"status": "rejected", "reset": str(int(until)), "representative-claim": "five_hour"}
        headers |= {"overage-status": "rejected", "overage-disabled-reason": "org_level_disabled"}
        return Refuse(
            {"type": "error", "error": {"type": "rate_limit_error", "message": message}},
            {f"anthropic-ratelimit-unified-{name}": value for name, value in headers.items()}
            | {"x-should-retry": "false"},
        )

    def furnish(self, stage: Stage, *, hooks: bool) -> str:
        if hooks:
            stage.team.ask("host-config", "claude", "--agent", AGENT, "--directory", stage.project, "--write")
            return f"claude {ASKING}"
        configuration = stage.team.ask("host-config", "claude", "--agent", AGENT)
        servers, settings_file = configuration["files"]
        path = stage.base / "servers.json"
        path.write_text(servers["content"], encoding="utf-8")
        words = shlex.split(configuration["start"].replace(servers["file"], str(path)))
        at = words.index("--settings")
        assert words.pop(at + 1) == settings_file["file"]
        words.pop(at)
        return f"{shlex.join(words)} {ASKING}"

    def tool(self, name: str, **arguments: Any) -> Call:
        return Call(self.knows(name), arguments)

    def shell(self, command: str, *, ask: bool = False) -> Call:
        del ask  # it asks about whatever settings.json does not allow
        return Call("Bash", {"command": command, "description": "scripted"})

    headless = "claude -p go --permission-mode acceptEdits --mcp-config {words}"

    def write(self, path: Path) -> Call:
        return Call("Write", {"file_path": str(path), "content": "new\n"})

    def knows(self, tool: str) -> str:
        return f"mcp__ipc__{tool}"
