"""Our programs import no module of the project that they work in, however they are started."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import multi_agent_mcp
from tests.end_to_end.support import COMMAND, Team

MODULES = ("secrets", "token", "queue", "yaml", "select", "calendar", "inspect", "click", "typing_extensions")
PACKAGES = ("mcp", "anyio", "logging", "frontmatter", "rich")
NOTES = "import pathlib; pathlib.Path(__file__).with_suffix('.imported').touch(); raise SystemExit('of the project')"
CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
HOOK = json.dumps({"hook_event_name": "PostToolUse", "tool_name": "Bash"})
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT}) + "\n"


@pytest.fixture
def project(team: Team) -> Path:
    """A project whose modules have the names of those that we import."""
    for name in MODULES:
        (team.base / f"{name}.py").write_text(NOTES, encoding="utf-8")
    for name in PACKAGES:
        (team.base / name).mkdir()
        (team.base / name / "__init__.py").write_text(NOTES, encoding="utf-8")
    return team.base


def started(team: Team, project: Path, command: list[str], stdin: str) -> str:
    """What the program says, started by an interpreter of its own, as the environment of many a project has it."""
    variables = {"PYTHONPATH": f".:{project}", "PYTHONSTARTUP": str(project / "secrets.py")}
    done = subprocess.run(
        command, cwd=project, env=team.env | variables, input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(project.rglob("*.imported")) == []
    return done.stdout


def test_a_host_starts_server_and_hook_by_what_host_config_wrote(team: Team, project: Path) -> None:
    server, settings = team.services.host_configurations.of("claude", "worker-a", project).files
    entry = json.loads(server.content)["mcpServers"]["ipc"]
    assert "serverInfo" in started(team, project, [entry["command"], *entry["args"]], INITIALIZE)
    hook = re.search(r'"command": "([^"]+)"', settings.content)
    assert hook is not None
    assert started(team, project, shlex.split(hook[1]), '{"hook_event_name": "PostToolUse", "tool_name": "Bash"}') == ""


@pytest.mark.parametrize("how", ["-m", "script"])
def test_a_person_and_a_file_of_an_earlier_version_start_it_as_before(team: Team, project: Path, how: str) -> None:
    script = str(Path(sys.executable).with_name("multi-agent-mcp"))
    command = [script] if how == "script" else [sys.executable, "-m", "multi_agent_mcp"]
    where = ["--root", str(team.root), "--session", team.services.session.name, "--agent", "worker-a"]
    assert "serverInfo" in started(team, project, [*command, "serve", *where], INITIALIZE)
    assert "worker-a" in started(team, project, [*command, "agent", "list", *where[:4]], "")


def test_no_program_of_ours_is_started_in_another_way() -> None:
    package = Path(multi_agent_mcp.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    found = [path.name for path, text in texts.items() if re.search(r'sys\.executable, "-m"', text)]
    assert found == []


@pytest.mark.parametrize(("words", "stdin"), [(["agent", "list"], ""), (["hook"], HOOK), (["serve"], INITIALIZE)])
def test_it_works_from_a_directory_that_was_removed(team: Team, words: list[str], stdin: str) -> None:
    team.send("worker-a", "the figures")
    where = ["--root", str(team.root), "--session", team.services.session.name]
    who = [] if words == ["agent", "list"] else ["--agent", "worker-a"]
    done = subprocess.run(
        ["sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$@"', "sh", *COMMAND, *words, *where, *who],
        cwd=team.base, env=team.env, input=stdin, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert any(word in done.stdout for word in ("worker-a", "serverInfo", "[IPC]"))
