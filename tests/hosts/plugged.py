"""The plugins of `plugins/`, installed into the real hosts as a person does; the agent's identity comes from the
environment alone, as `up` gives it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from multi_agent_mcp.server.app import HELP_TOOL
from multi_agent_mcp.texts import catalogue
from tests.end_to_end.support import REPOSITORY
from tests.hosts.claude import ASKING
from tests.hosts.replies import Call, Reply, Request, Say
from tests.hosts.scenarios import Measured, brings_mail_after_a_tool
from tests.hosts.scripted_model import way_to_wait
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
HOW = "how do I make a team"
SKILL = "How to work as one agent of a multi-agent-mcp team"
"""Words of the skill's description, by which a host offers it."""


def plugged(host: Host, *, identity: bool) -> Host:
    """The host with its plugin in place of what `host-config` writes; without an `identity` it is nobody's."""

    class Plugged(type(host)):  # type: ignore[misc]
        def furnish(self, stage: Stage, *, hooks: bool) -> str:  # noqa: ARG002 - they come together
            _install(host, stage)
            line = f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"
            if not identity:
                stage.registers_pane()  # no server of ours will do it
                return f"{line} {STARTS[host.name]}"
            given = {"ROOT": stage.team.root, "SESSION": stage.team.session, "AGENT": AGENT}
            words = [f"MULTI_AGENT_MCP_{name}={shlex.quote(str(value))}" for name, value in given.items()]
            return " ".join([line, *words, STARTS[host.name]])

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


@contextmanager
def a_person_allows(stage: Stage) -> Iterator[None]:
    """Whatever the host asks is allowed, by its first choice: a plugin cannot give leave itself."""
    done = threading.Event()

    def allow() -> None:
        while not done.wait(1):
            if stage.state == "dialog":
                stage.press("Enter")

    person = threading.Thread(target=allow)
    person.start()
    try:
        yield
    finally:
        done.set()
        person.join()


def brings_all_in_one_step(stage: Stage) -> Measured:
    """The model is offered our tools and the skill, and mail comes with the result of a tool of its own, by a hook."""
    measured = brings_mail_after_a_tool(stage)
    (*_, last) = stage.model.requests
    for tool in ("read_messages", "get_notifications", "send_message", "report_completed"):
        assert stage.host.knows(tool) in last.tools, f"{tool} is not among {sorted(last.tools)}"
    assert SKILL in json.dumps(last.body), "the skill is not offered"
    return measured


def says_how_to_make_a_team(stage: Stage) -> Measured:
    """Where the environment names no agent, the server's only tool says in one sentence how a team is made."""
    asks, sentence = stage.host.tool(HELP_TOOL), catalogue("en")("error.not_of_a_team")

    def decide(request: Request) -> Reply:
        if HOW not in request.history or sentence in request.news:
            return Say("OK")
        return asks if asks.name in request.tools else way_to_wait(request) or Say("OK")

    stage.model.decide = decide
    began = time.monotonic()
    stage.say(HOW)
    told = stage.model.request_with(sentence)
    ours = [tool for tool in told.tools if any(word in tool for word in ("ipc", HELP_TOOL))]
    assert ours == [asks.name], f"our tools: {ours}"
    return Measured((told.at - began) * 1000, "asked → the model has the sentence")


@dataclass(frozen=True)
class PluginScenario:
    """A host with our plugin, which knows of an agent by the environment, or of none."""

    title: str
    play: Callable[[Stage], Measured]
    identity: bool = True

    def fits(self, host: Host) -> bool:
        return host.name in STARTS

    def run(self, host: Host, binaries: Path) -> Measured:
        with stage(plugged(host, identity=self.identity), binaries, hooks=True) as built, a_person_allows(built):
            return self.play(built)


PLUGIN_SCENARIOS = (
    PluginScenario(
        "plugin from this directory: server, hooks and skill, identity from the environment", brings_all_in_one_step
    ),
    PluginScenario("plugin without identity: says how to make a team", says_how_to_make_a_team, identity=False),
)
