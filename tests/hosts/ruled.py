"""Rules of roles in the hosts' own permission settings: what they refuse without any hook of ours."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from multi_agent_mcp.system.git import git
from tests.end_to_end.support import Team
from tests.hosts.replies import Call, Reply, Request, Say
from tests.hosts.sandboxed import OUTSIDE_TMP
from tests.hosts.scenarios import Measured
from tests.hosts.scripted_model import PATIENCE_SECONDS, ScriptedModel
from tests.hosts.stage import AGENT, Host, clear_away, environment

TEAM = """\
session: demo
language: en
agents:
  - {{id: owner, role: owner, type: human}}
  - {{id: admin, role: admin, parent: owner}}
  - {{id: worker-a, role: worker, parent: admin, command: "{command}", edits: {edits}, commands: {{deny: {deny}}}}}
"""
EVERYTHING = frozenset({"src/in", "src/vendor/in", "top", "src/../up", "src/ran", "src/denied"})
"""What the model tries to write: with its tool for files, and with its shell."""


@dataclass(frozen=True)
class RuledScenario:
    """`written`: what each host lets through, where others let through `else`; `held`: what `agent list` says, and
    `doctor` of what is not enforced. Unless it is `ours`, the host is started without anything of ours, and lets
    through at least what is `written`."""

    title: str
    edits: str
    deny: str
    written: Mapping[str, frozenset[str]]
    held: Mapping[str, Mapping[str, str]]
    ours: bool = True

    def fits(self, host: Host) -> bool:
        return bool(host.headless)

    def run(self, host: Host, binaries: Path) -> Measured:
        base = Path(tempfile.mkdtemp(prefix="mamh-", dir=OUTSIDE_TMP))
        try:
            return self._played(host, base, environment(base, binaries))
        finally:
            clear_away(base)

    def _played(self, host: Host, base: Path, env: dict[str, str]) -> Measured:
        project = base / "project"
        git(project, "init", "-q")
        (project / "src" / "vendor").mkdir(parents=True)
        command = host.command if self.ours else host.program.command
        team = Team(project, env).make(TEAM.format(command=command, edits=self.edits, deny=self.deny))
        calls: list[Call] = [
            *(host.write(project / name) for name in ("src/in", "src/vendor/in", "top", "src/../up")),
            host.shell("touch src/ran"),
            host.shell("touch src/denied"),
        ]
        came: list[str] = []

        def decide(request: Request) -> Reply:
            came.append(request.news)
            return calls.pop(0) if calls else Say("done")

        model = ScriptedModel(decide)
        env |= host.settle_in(base / "home", model.url, trusted=project)
        host.prepare(team, project)
        agent, configurations = team.services.agents.get(AGENT), team.services.host_configurations
        with chdir(project):  # where Gemini CLI's settings are
            words = configurations.argument(agent, project) if self.ours else ""
        _is_said(team, self.held.get(host.name, self.held["else"]))
        env |= configurations.environment(agent)
        _without_hooks(project, team.services.workspace.path / "hosts")
        began = time.monotonic()
        headless = host.headless if self.ours else host.headless.replace("--mcp-config {words}", "")
        line = shlex.split(headless.replace("{words}", words))
        try:
            subprocess.run(
                line,
                cwd=project,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=PATIENCE_SECONDS,
            )
        finally:
            model.close()
        assert not calls, f"it was not asked for everything: {came}"
        written = {name for name in EVERYTHING if (project / name).resolve().exists()}
        expected = self.written.get(host.name, self.written["else"])
        assert written == expected if self.ours else written >= expected, (written, came)
        return Measured((time.monotonic() - began) * 1000, "six tries with its tools, without hooks")


def _is_said(team: Team, held: Mapping[str, str]) -> None:
    """`agent list` says of each rule how far it is held, and `doctor` of those that are not enforced."""
    listed = {item["id"]: item for item in team.ask("agent", "list")["agents"]}
    assert listed[AGENT]["rules"] == held, listed[AGENT]
    found = [item for item in team.run("doctor", "--json").json["findings"] if item["check"] == "rules"]
    named = {rule for item in found for rule in RULES if f"rule {rule}" in item["finding"]}
    assert named == {rule for rule, hold in held.items() if hold != "enforced"}, found
    hard = ["nothing holds it" in item["finding"] for item in found]
    assert hard == ["impossible" in held.values()] * len(found), found


def _without_hooks(project: Path, written: Path) -> None:
    """Takes our hooks out of what was written for a host, so that only its own settings are left."""
    for file in (*written.glob("*"), *written.glob("*/*")):
        if file.name.endswith(("settings.json", "hooks.json")):
            file.write_text(json.dumps({**json.loads(file.read_text()), "hooks": {}}))
        elif file.suffix == ".js":
            text = file.read_text()
            assert '"tool.execute.before"' in text
            file.write_text(text.replace('"tool.execute.before"', '"nothing"'))
    for file in project.glob(".gemini/settings.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "hooks": {}}))


RULES = ("edits", "commands")
ADVISED = {"edits": "advised", "commands": "advised"}
MINE = frozenset({"src/in", "src/ran"})
RULED_SCENARIOS = (
    RuledScenario(
        "rules, in its own settings: only src without src/vendor, and a command denied",
        '["src/**", "!src/vendor/**"]',
        '["touch src/denied"]',
        {
            "else": MINE,
            "codex": MINE | {"src/denied"},  # no place for a command
            "claude": MINE | {"top", "src/../up"},  # it can only leave out
            "copilot": EVERYTHING - {"src/denied"},  # no place for a directory
        },
        {"else": ADVISED, "codex": {**ADVISED, "edits": "enforced"}},
    ),
    RuledScenario(
        "rules, in its own settings: only src, and no shell",
        '["src/**"]',
        '["*"]',
        {
            "else": frozenset({"src/in", "src/vendor/in"}),
            "codex": frozenset(),  # a model without a patch tool writes by its shell
            "claude": frozenset({"src/in", "src/vendor/in", "top", "src/../up"}),
            "copilot": frozenset({"src/in", "src/vendor/in", "top", "src/../up"}),
        },
        {
            "else": {"edits": "enforced", "commands": "enforced"},
            "claude": {"edits": "advised", "commands": "enforced"},
            "copilot": {"edits": "advised", "commands": "enforced"},
        },
    ),
    RuledScenario(
        "rules, in its own settings: no file and no shell",
        "[]",
        '["*"]',
        {"else": frozenset()},
        {"else": {"edits": "enforced", "commands": "enforced"}},
    ),
    RuledScenario(
        "rules, without its own settings and hooks: nothing holds it",
        "[]",
        '["*"]',
        {"else": frozenset({"src/in", "src/ran"})},
        {"else": {"edits": "impossible", "commands": "impossible"}},
        ours=False,
    ),
)
