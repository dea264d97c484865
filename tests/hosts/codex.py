"""Codex, offline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.end_to_end.support import wait_until
from tests.hosts.replies import Call
from tests.hosts.stage import AGENT, Host, Program, Stage

CONFIG = """\
model = "gpt-5.1-codex"
model_provider = "scripted"
approval_policy = "on-request"
sandbox_mode = "{sandbox}"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
supports_websockets = false
request_max_retries = 0
stream_max_retries = 0

[projects."{project}"]
trust_level = "trusted"
"""
HOOK_QUESTION = "Hooks need review"
TRUST_ALL = "2"


class Codex(Host):
    name = "codex"
    program = Program("@openai/codex", "0.169.0", "codex")
    quit = "/quit"
    dialog = "Would you like to run the following command?"

    command = "codex {mcp_config} -c features.hooks=false"  # it would ask about them, and nobody is there

    def settle_in(self, home: Path, url: str, *, trusted: Path, asks: bool = False) -> Mapping[str, str]:
        config = home / ".codex" / "config.toml"
        config.parent.mkdir()
        sandbox = "workspace-write" if asks else "danger-full-access"
        config.write_text(CONFIG.format(url=url, project=trusted, sandbox=sandbox), encoding="utf-8")
        return {"SCRIPTED_KEY": "scripted"}

    def furnish(self, stage: Stage, *, hooks: bool) -> str:
        written = stage.team.ask("host-config", "codex", "--agent", AGENT, "--directory", stage.home, "--write")
        if not hooks:
            (stage.home / ".codex" / "hooks.json").unlink()
        return str(written["start"])

    def settle(self, stage: Stage, *, asks_about_hooks: bool) -> None:
        if asks_about_hooks:
            wait_until(lambda: HOOK_QUESTION in stage.pane.screen, "Codex asks whether it may run the hooks")
            stage.pane.belongs_to(stage.team, AGENT)
            (asked,) = wait_until(lambda: stage.team.ask("answer", AGENT)["dialogs"], "its choices are read")
            came = stage.team.ask("answer", AGENT, TRUST_ALL, "--question", asked["id"])
            assert came["state"] == "answered", came
            wait_until(lambda: HOOK_QUESTION not in stage.pane.screen, "Codex trusts the hooks")
        stage.wait_for_state("idle")

    def tool(self, name: str, **arguments: Any) -> Call:
        return Call(name, arguments, "mcp__ipc")

    def shell(self, command: str, *, ask: bool = False) -> Call:
        escalated = {"sandbox_permissions": "require_escalated", "justification": "scripted"} if ask else {}
        return Call("exec_command", {"cmd": command, **escalated})

    def knows(self, tool: str) -> str:
        return f"mcp__ipc/{tool}"
