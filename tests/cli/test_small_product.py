"""docs/small.md: its commands do what is said beside them, its team can be made, and it fits on two screens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml

from multi_agent_mcp.features.ours import OURS
from tests.cli.conftest import Run
from tests.programs import REPOSITORY

PAGE = (REPOSITORY / "docs" / "small.md").read_text(encoding="utf-8")
OF_A_TERMINAL = {"up", "web"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_commands_of_the_page_run_as_they_are_there(run: Run, tmp_path: Path) -> None:
    team, switched_off = blocks("yaml")
    (tmp_path / "team.yaml").write_text(team + switched_off, encoding="utf-8")
    lines = [shlex.split(line, comments=True)[1:] for block in blocks("sh") for line in block.splitlines()]
    known = ""
    for command, *arguments in (line for line in lines if line[0] not in OF_A_TERMINAL):
        done = run(command, *(known if word == "TASK" else word for word in arguments))
        assert done.exit_code == 0, done.output
        known = next(iter(re.findall(r"tsk_\w+", done.stdout)), known)
    assert "blocked" in run("task", "show", known).stdout
    settings = yaml.safe_load((tmp_path / ".multi-agent-mcp" / "demo" / "session.yaml").read_text(encoding="utf-8"))
    assert settings["features"].keys() == {feature.name for feature in OURS if feature.optional}
    assert (settings["resume"], settings["console"]) == (False, {"answer": False})
    assert "No such command" in run("reserve", "x").output
    there = {path.name for path in (tmp_path / ".multi-agent-mcp" / "demo").iterdir()}
    assert {"ipc", "notifications", "tasks"} <= there


def test_the_page_fits_on_two_screens() -> None:
    assert len(PAGE.splitlines()) <= 2 * 40
