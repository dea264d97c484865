"""Budgets of tokens pause an agent once, and a context that is nearly full is told once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.tasks_support import moved, new
from tests.usage.support import AGENT, told


@pytest.fixture
def rollout(services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rollout of Codex in which worker-a begins."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    path = tmp_path / "home" / ".codex" / "sessions" / "2026" / "11" / "21" / "rollout-1-abc.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"type": "session_meta", "payload": {"id": "abc"}}) + "\n")
    told(services, "codex", path)
    return path


def used(services: Services, path: Path, tokens: int) -> None:
    """The model answers, and the supervisor looks."""
    number = len(path.read_text().splitlines())
    lines: list[dict[str, Any]] = [
        {"type": "event_msg", "payload": {"type": "token_count", "info": {"model_context_window": 1000}}},
        {
            "type": "token_usage_record",
            "timestamp": services.clock().isoformat(),
            "payload": {"response_id": f"r{number}", "usage": {"input_tokens": tokens, "output_tokens": 0}},
        },
    ]
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in lines)
    services.usage.refresh(recent=True)
    services.budgets.check()


def waiting(services: Services, agent_id: str, action: str) -> list[Notification]:
    return [notice for _, notice in services.workspace.notices(agent_id).unread() if notice.action == action]


def test_a_task_s_budget_pauses_once_with_the_numbers_and_tells_the_superior(
    services: Services, clock: Clock, rollout: Path
) -> None:
    services.workspace.registry.update(AGENT, limits={"tokens_per_task": 500})
    task = moved(services, new(services), "in_progress")
    used(services, rollout, 400)
    assert waiting(services, AGENT, "pause") == []
    assert f"The budget of tokens of task {task.id}: 400 of 500 used." in services.briefings.of(AGENT)
    used(services, rollout, 200)
    (pause,) = waiting(services, AGENT, "pause")
    assert (pause.interrupts, pause.sender_id, pause.task_id) == (True, None, task.id)
    assert "600 of 500" in str(pause.reason)
    assert [notice.reason for notice in waiting(services, "admin", "budget_reached")] == [pause.reason]
    used(services, rollout, 200)
    assert len(waiting(services, AGENT, "pause")) == 1
    (item,) = (item for item in services.attention.of(services.agents.owner()) if item.kind == "budget")
    assert item.command.startswith(f"multi-agent-mcp resume {AGENT} --tokens")
    services.interrupting.resume(services.agents.get("admin"), AGENT)
    services.budgets.allow(services.agents.get(AGENT), 300)
    used(services, rollout, 200)
    assert waiting(services, AGENT, "pause") == []
    clock.advance(1)
    used(services, rollout, 200)
    assert "1200 of 1100" in str(waiting(services, AGENT, "pause")[0].reason)


def test_a_team_s_budget_per_day_counts_every_task_and_begins_again(
    services: Services, clock: Clock, rollout: Path
) -> None:
    settings = services.path / "session.yaml"
    settings.write_text(settings.read_text().replace("limits: {}", "limits: {tokens_per_day: 500}"))
    from multi_agent_mcp.bootstrap import open_session

    team = open_session(services.root, "demo", clock=clock, notifier=services.notifier)
    used(team, rollout, 600)
    assert "600 of 500" in str(waiting(team, AGENT, "pause")[0].reason)
    assert waiting(team, "worker-b", "pause") == []
    team.interrupting.resume(team.agents.get("admin"), AGENT)
    used(team, rollout, 600)
    assert waiting(team, AGENT, "pause") == []  # a person has let it go on
    clock.advance(86_400)
    used(team, rollout, 600)
    assert "600 of 500" in str(waiting(team, AGENT, "pause")[0].reason)


def test_a_context_that_is_nearly_full_is_told_once_for_each_filling(services: Services, rollout: Path) -> None:
    used(services, rollout, 790)
    assert waiting(services, AGENT, "handoff_soon") == []
    used(services, rollout, 810)
    used(services, rollout, 900)
    (notice,) = waiting(services, AGENT, "handoff_soon")
    assert "hand_off" in notice.instruction
    used(services, rollout, 100)  # it was compacted
    used(services, rollout, 850)
    assert len(waiting(services, AGENT, "handoff_soon")) == 2


def test_budgets_that_make_no_sense_are_none(services: Services, rollout: Path) -> None:
    senseless: list[Any] = ["x", {"tokens_per_day": "many"}, {"tokens_per_day": -1}, []]
    for limits in senseless:
        services.workspace.registry.update(AGENT, limits=limits)
        used(services, rollout, 100)
    assert waiting(services, AGENT, "pause") == []
