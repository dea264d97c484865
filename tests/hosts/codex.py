"""Codex, offline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

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
    env: ClassVar[Mapping[str, str]] = {"SCRIPTED_KEY": "scripted"}

    def furnish(self, stage: Stage, *, hooks: bool, asks: bool) -> str:
        config = stage.home / ".codex" / "config.toml"
        config.parent.mkdir()
        sandbox = "workspace-write" if asks else "danger-full-access"
        text = CONFIG.format(url=stage.model.url, project=stage.project, sandbox=sandbox)
        config.write_text(text, encoding="utf-8")
        written = stage.team.ask("host-config", "codex", "--agent", AGENT, "--directory", stage.home, "--write")
        if not hooks:
            (config.parent / "hooks.json").unlink()
        return str(written["start"])

    def settle(self, stage: Stage, *, asks_about_hooks: bool) -> None:
        if asks_about_hooks:
            wait_until(lambda: HOOK_QUESTION in stage.pane.screen, "Codex asks whether it may run the hooks")
            stage.press(TRUST_ALL)
            stage.press("Enter")
            wait_until(lambda: HOOK_QUESTION not in stage.pane.screen, "Codex trusts the hooks")
        stage.wait_for_state("idle")

    def tool(self, name: str, **arguments: Any) -> Call:
        return Call(name, arguments, "mcp__ipc")

    def shell(self, command: str, *, ask: bool = False) -> Call:
        escalated = {"sandbox_permissions": "require_escalated", "justification": "scripted"} if ask else {}
        return Call("exec_command", {"cmd": command, **escalated})

    def knows(self, tool: str) -> str:
        return f"mcp__ipc/{tool}"
