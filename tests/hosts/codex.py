"""Codex, offline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.end_to_end.support import Team, wait_until
from tests.hosts.replies import CONTEXT, Call, Refuse
from tests.hosts.scripted_model import PATIENCE_SECONDS
from tests.hosts.stage import AGENT, Host, Program, Stage

CONFIG = """\
model = "gpt-5.1-codex"
model_provider = "scripted"
check_for_update_on_startup = false
model_context_window = {context}
model_auto_compact_token_limit = {limit}

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
    compacts, fills = "/compact", True
    dialog = "Would you like to run the following command?"

    command = "codex {mcp_config} -c features.hooks=false"  # it would ask about them, and nobody is there

    def settle_in(self, home: Path, url: str, *, trusted: Path, asks: bool = False) -> Mapping[str, str]:
        config = home / ".codex" / "config.toml"
        config.parent.mkdir()
        del asks  # it asks about what its sandbox does not let it do, in the settings that it has by itself
        config.write_text(
            CONFIG.format(url=url, project=trusted, context=CONTEXT, limit=CONTEXT * 9 // 10), encoding="utf-8"
        )
        return {"SCRIPTED_KEY": "scripted"}

    def refusal(self, until: float) -> Refuse | None:
        facts = {"type": "usage_limit_reached", "plan_type": "plus", "resets_at": int(until)}
        headers = {"used-percent": "100", "window-minutes": "300", "reset-at": str(int(until))}
        return Refuse(
            {"error": {"message": "The usage limit has been reached", **facts}},
            {f"x-codex-primary-{name}": value for name, value in headers.items()},
        )

    def furnish(self, stage: Stage, *, hooks: bool) -> str:
        written = stage.team.ask("host-config", "codex", "--agent", AGENT, "--directory", stage.home, "--write")
        if not hooks:
            (stage.home / ".codex" / "hooks.json").unlink()
        return str(written["start"])

    @property
    def hooked_command(self) -> str:
        return self.command.partition(" -c features.hooks")[0]

    def settle(self, stage: Stage, *, asks_about_hooks: bool) -> None:
        if asks_about_hooks:
            wait_until(lambda: HOOK_QUESTION in stage.pane.screen, "Codex asks whether it may run the hooks")
            stage.registers_pane()
            self.trust_hooks(stage.team, lambda: stage.pane.screen)
        stage.wait_for_state("idle")

    def trust_hooks(self, team: Team, screen: Callable[[], str]) -> None:
        wait_until(lambda: HOOK_QUESTION in screen(), "Codex asks whether it may run the hooks", PATIENCE_SECONDS)
        (asked,) = wait_until(lambda: team.ask("answer", AGENT)["dialogs"], "its choices are read")
        came = team.ask("answer", AGENT, TRUST_ALL, "--question", asked["id"])
        assert came["state"] == "answered", came
        wait_until(lambda: HOOK_QUESTION not in screen(), "Codex trusts the hooks")

    def tool(self, name: str, **arguments: Any) -> Call:
        return Call(name, arguments, "mcp__ipc")

    def shell(self, command: str, *, ask: bool = False) -> Call:
        escalated = {"sandbox_permissions": "require_escalated", "justification": "scripted"} if ask else {}
        return Call("exec_command", {"cmd": command, **escalated})

    headless = "codex exec --skip-git-repo-check -c features.hooks=false {words} go"

    def write(self, path: Path) -> Call:
        return self.shell(f"apply_patch <<'E'\n*** Begin Patch\n*** Add File: {path}\n+new\n*** End Patch\nE")

    def knows(self, tool: str) -> str:
        return f"mcp__ipc/{tool}"
