"""Commands in this process: a session, and a runner that calls the command line as `__main__` does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from multi_agent_mcp.cli.main import app

TEAM = """\
session: demo
language: en
agents:
  - {id: owner, role: owner, type: human}
  - {id: admin, role: admin, parent: owner}
  - {id: worker-a, role: worker, parent: admin}
"""

Run = Callable[..., Result]
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(app, arguments, input=input)

    return run


@pytest.fixture
def session(run: Run, tmp_path: Path) -> Path:
    """The directory of a session with the team `TEAM`."""
    (tmp_path / "team.yaml").write_text(TEAM, encoding="utf-8")
    assert run("init").exit_code == 0
    return tmp_path / ".multi-agent-mcp" / "demo"


@pytest.fixture
def ask(run: Run, session: Path) -> Ask:
    """A command's JSON answer; it must have succeeded."""

    def ask(*arguments: str) -> dict[str, Any]:
        result = run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        answer: dict[str, Any] = json.loads(result.stdout)
        assert answer["success"] is True
        return answer

    return ask
