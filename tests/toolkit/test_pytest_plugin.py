"""The fixture `agent_team`, in a pytest of its own, as a user's project has it."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.programs import ran

MODULES = """\
import sys

def test_only_the_plugin_and_the_package_are_loaded():
    loaded = {name for name in sys.modules if name.split(".")[0] == "multi_agent_mcp"}
    assert loaded == {"multi_agent_mcp", "multi_agent_mcp.pytest_plugin"}
"""
TEAMS = """\
import pytest

closed = []

@pytest.mark.parametrize("number", range(2))
def test_a_team(agent_team, tmp_path, number):
    team = agent_team()
    assert list(team) == ["owner", "admin", "worker-a", "worker-b"]
    assert team.path == tmp_path / ".multi-agent-mcp" / "demo"
    team["admin"].send_message(f"hello {number}", "worker-a")
    assert team["worker-a"].read_messages()["messages"][0]["content"] == f"hello {number}"
    assert team.rings == [("worker-a", "[IPC] New message: request from admin")]
    other = agent_team({"boss": "owner", "w": "worker"}, session="two", language="ja", done_when=["review"])
    assert other["boss"].send_message("hello", "w")["success"]
    with pytest.raises(FileExistsError):
        agent_team()
    closed.append(team)

def test_teams_are_closed():
    for team in closed:
        with pytest.raises(ValueError, match="is closed"):
            team["admin"]
"""


def outcomes(place: Path, text: str, *options: str) -> str:
    """What pytest says of a file of tests in a project of its own."""
    (place / "pytest.ini").write_text("[pytest]\n")
    (place / "test_it.py").write_text(text)
    command = (sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-c", str(place / "pytest.ini"))
    return ran(*command, f"--basetemp={place / 'temporary'}", *options, str(place / "test_it.py")).stdout


def test_it_makes_teams_and_closes_them_and_loads_nothing_before(tmp_path: Path) -> None:
    assert "4 passed" in outcomes(tmp_path, MODULES + TEAMS)


def test_it_works_in_the_workers_of_xdist(tmp_path: Path) -> None:
    assert "3 passed" in outcomes(tmp_path, TEAMS, "-n", "2")


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    said = outcomes(tmp_path, TEAMS, "-p", "no:multi_agent_mcp")
    assert "fixture 'agent_team' not found" in said
    assert "1 passed, 2 errors" in said
