"""`usage` as people and programs call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.usage import commands
from multi_agent_mcp.usage.tokens import Tokens, UsageRow
from tests.cli.conftest import Ask, Run
from tests.usage.support import conversation_of, lay_out

COUNTED = {"input": 6021, "output": 141, "cache_read": 3021, "cache_write": 0}


@pytest.fixture
def counted(session: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A session whose worker-a has worked in Codex."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    (path,) = lay_out(tmp_path / "home", "codex", "rollout_usage_compaction_resume.jsonl")
    state = session / ".hooks" / "worker-a.json"
    state.parent.mkdir(mode=0o700, exist_ok=True)
    state.write_text(json.dumps({"transcripts": {conversation_of(path, "codex"): ["codex", str(path)]}}))
    return session


def rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer["rows"]
    return found


def test_tokens_are_counted_by_agent_task_and_model(counted: Path, ask: Ask, run: Run) -> None:
    answer = ask("usage", "--days", "3650")
    assert rows(answer) == [{"agent_id": "worker-a", "task_id": None, "model": None, **COUNTED}]
    assert answer["total"] == COUNTED
    assert rows(ask("usage", "--days", "3650", "--by", "agent"))[0]["agent_id"] == "worker-a"
    assert "6,021" in run("usage", "--days", "3650").stdout
    assert "cost" not in answer
    assert (counted / ".usage").is_dir()


def test_costs_are_shown_where_prices_are_said(counted: Path, ask: Ask, run: Run, tmp_path: Path) -> None:
    rollout = next((tmp_path / "home").rglob("rollout-*.jsonl"))
    named = json.dumps({"type": "turn_context", "payload": {"model": "gpt-5.1-codex"}})
    rollout.write_text(f"{named}\n{rollout.read_text()}")
    prices = counted.parent / "prices.yaml"
    prices.write_text("currency: EUR\nper_million:\n  gpt-*: {input: 1000, output: 0, cache_read: 0}\n")
    answer = ask("usage", "--days", "3650", "--by", "model")
    assert rows(answer)[0]["cost"] == pytest.approx(6.021)
    printed = run("usage", "--days", "3650").stdout.splitlines()
    assert [line.endswith("6.02 EUR") for line in printed if "EUR" in line] == [True, True]  # the row, and all of it
    no_numbers = [f"currency: EUR\nper_million: {{gpt-*: {{input: {value}}}}}" for value in (".inf", ".nan", "1e300")]
    for wrong in ("currency: [", *no_numbers):
        prices.write_text(wrong)
        refused = run("usage", "--json")
        assert refused.exit_code == 1
        assert "prices.yaml" in json.loads(refused.stdout)["message"]


def test_a_task_is_listed_with_its_title(counted: Path, ask: Ask, run: Run) -> None:
    services = open_session(counted.parent, counted.name)
    task_id = ask("task", "add", "Paint the gate", "--assignee", "worker-a")["task_id"]
    rows = [UsageRow("worker-a", task_id, None, Tokens(input=7))]
    assert commands._titles(services, rows) == {task_id: "Paint the gate"}
    shown = list(commands._lines(rows, rows, None, services.people, {task_id: "Paint the gate"}, off=False))
    assert shown[0].split()[-1] == "title"
    assert shown[1].endswith("Paint the gate")


def test_switched_off_nothing_is_read(counted: Path, ask: Ask, run: Run) -> None:
    settings = counted / "session.yaml"
    settings.write_text(settings.read_text() + "usage: off\n")
    assert ask("usage", "--days", "3650")["rows"] == []
    assert "usage: off" in run("usage").stdout
    assert not (counted / ".usage").exists()
