"""The plugins of `plugins/`, installed into the real hosts as a person does; the agent's identity comes from the
environment alone, as `up` gives it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.end_to_end.support import REPOSITORY
from tests.hosts.claude import ASKING
from tests.hosts.replies import Call
from tests.hosts.scenarios import Measured, brings_mail_after_a_tool
from tests.hosts.stage import AGENT, Host, Stage, stage

NAMED = "multi-agent-mcp@multi-agent-mcp"
CLAUDES_TOOLS = "mcp__plugin_multi-agent-mcp_ipc"
INSTALLS = {
    "claude": (["plugin", "marketplace", "add", str(REPOSITORY)], ["plugin", "install", NAMED]),
    "codex": (["plugin", "marketplace", "add", str(REPOSITORY)], ["plugin", "add", NAMED]),
    "copilot": (["plugin", "marketplace", "add", str(REPOSITORY)], ["plugin", "install", NAMED]),
    "gemini": (["extensions", "link", str(REPOSITORY / "plugins" / "gemini"), "--consent"],),
    "opencode": (),
}
STARTS = {
    "claude": f"claude {ASKING} --allowedTools {CLAUDES_TOOLS}",
    "codex": "codex",
    "copilot": "copilot --allow-tool=ipc",
    "gemini": "gemini",
    "opencode": "opencode",
}
INSTALL_SECONDS = 120


def plugged(host: Host) -> Host:
    """The host with its plugin in place of what `host-config` writes."""

    class Plugged(type(host)):  # type: ignore[misc]
        def furnish(self, stage: Stage, *, hooks: bool) -> str:  # noqa: ARG002 - they come together
            _install(host, stage)
            identity = {"ROOT": stage.team.root, "SESSION": stage.team.session, "AGENT": AGENT}
            given = " ".join(f"MULTI_AGENT_MCP_{name}={shlex.quote(str(value))}" for name, value in identity.items())
            return f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH {given} {STARTS[host.name]}"

        def knows(self, tool: str) -> str:
            return f"{CLAUDES_TOOLS}__{tool}" if host.name == "claude" else str(super().knows(tool))

        def tool(self, name: str, **arguments: object) -> Call:
            return Call(self.knows(name), arguments) if host.name == "claude" else super().tool(name, **arguments)

    return Plugged()


def _install(host: Host, stage: Stage) -> None:
    if host.name == "opencode":
        config = stage.home / ".config" / "opencode" / "opencode.json"
        module = (REPOSITORY / "plugins" / "opencode" / "index.js").as_uri()
        settings = json.loads(config.read_text(encoding="utf-8"))
        config.write_text(json.dumps(settings | {"plugin": [module]}), encoding="utf-8")
    for words in INSTALLS[host.name]:
        call = [host.program.command, *words]
        done = subprocess.run(
            call,
            env=os.environ | stage.team.env,
            cwd=stage.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=INSTALL_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True)
class PluginScenario:
    """The model is offered our tools, and mail comes with the result of a tool of its own, by a hook."""

    title: str

    def fits(self, host: Host) -> bool:
        return host.name in STARTS

    def run(self, host: Host, binaries: Path) -> Measured:
        with stage(plugged(host), binaries, hooks=True) as built:
            measured = brings_mail_after_a_tool(built)
            (*_, last) = built.model.requests
            for tool in ("read_messages", "get_notifications", "send_message", "report_completed"):
                assert built.host.knows(tool) in last.tools, f"{tool} is not among {sorted(last.tools)}"
            return measured


PLUGIN_SCENARIOS = (PluginScenario("plugin from this directory: server, hooks, identity from the environment"),)
