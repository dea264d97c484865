"""What only a person decides, in the hands of an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Ask, Run


@pytest.mark.parametrize(
    "command",
    [
        "task approve {task}",
        "task approve {task} --as owner",
        "task reject {task}",
        "task status {task} done --force --reason x",
        "agent add worker-z --role admin --parent owner",
        "agent set worker-a --command x",
        "agent set admin --name x",
        "agent remove worker-a --hand-over",
        "agent move worker-a --to mac",
        "doctor trust .",
        "checks approve",
    ],
)
def test_what_only_a_person_decides_is_refused_to_an_agent_and_changes_nothing(
    ask: Ask, run: Run, session: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    task = ask("task", "add", "work", "--assignee", "worker-a")["task_id"]
    before = (session / "agents.json").read_bytes()
    monkeypatch.setenv("MULTI_AGENT_MCP_AGENT", "worker-a")
    refused = run(*command.format(task=task).split())
    assert refused.exit_code == 1
    assert "unauthorized: " in refused.stderr
    assert "'worker-a'" in refused.stderr
    assert (session / "agents.json").read_bytes() == before
    assert ask("task", "show", task)["task"]["status"] == "todo"


def test_an_agent_acts_as_itself_as_before(ask: Ask, session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = ask("task", "add", "work", "--assignee", "worker-a")["task_id"]
    monkeypatch.setenv("MULTI_AGENT_MCP_AGENT", "worker-a")
    ask("task", "status", task, "in_progress", "--as", "worker-a")
    ask("send", "admin", "hello")
    assert ask("agent", "set", "worker-a", "--name", "A")["name"] == "A"
