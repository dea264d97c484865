"""The trace that a host is started in (docs/telemetry.md)."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.trace import VARIABLE, within
from multi_agent_mcp.windows.window_registry import environment_of
from multi_agent_mcp.wiring import Services

UP = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TASK = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_window_belongs_to_the_trace_of_up_or_else_to_that_of_its_task(
    services: Services, admin: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with within(TASK):
        services.task_creation.create(admin, [NewTask(title="t", assignee_id="worker-a")])
    assert environment_of(services, Slot("worker-a", "task"))[VARIABLE] == TASK
    assert VARIABLE not in environment_of(services, Slot("worker-b", "task"))
    monkeypatch.setenv(VARIABLE, UP)
    assert {environment_of(services, Slot(name, "task"))[VARIABLE] for name in ("worker-a", "worker-b")} == {UP}
