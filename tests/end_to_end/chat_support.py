"""Support for the tests of tasks, interrupts, delegations and conversations over real processes."""

from __future__ import annotations

import re
from typing import Any

import mcp_types as types

from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.services.tasks.board import NewTask
from tests.end_to_end.support import INTERRUPTED, Agent, Team

EXECUTED = "multi-agent-mcp/executed"

_ID = re.compile(r"(tsk|ntf|cnv|dlg|exec|ses)_[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def shape(value: Any) -> Any:
    """An answer with its ids and times as placeholders: `tsk_xxx`, `msg_xxx`, `TIME`."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    if isinstance(value, str):
        return _ID.sub(r"\1_xxx", _UUID.sub("msg_xxx", _TIME.sub("TIME", value)))
    return value


def new_task(
    team: Team,
    title: str = "Build",
    assignee_id: str | None = "worker-a",
    *,
    by: str = "admin",
    parent: str | None = None,
    **fields: Any,
) -> Task:
    """A task, `todo` with an assignee, made by somebody whose server does not run."""
    services = team.services
    item = NewTask(title=title, assignee_id=assignee_id, **fields)
    return services.task_creation.create(services.agents.get(by), [item], parent)[0]


def task_of(team: Team, task_id: str) -> Task:
    return team.services.task_changes.get(task_id)


def notifications(team: Team, agent_id: str) -> list[Notification]:
    """Every notification file of an agent, read ones too, oldest first."""
    found = team.services.workspace.notices(agent_id).history()
    return sorted(found, key=lambda notice: (notice.created_at, notice.id))


def interrupts(team: Team, agent_id: str) -> list[Notification]:
    return [notice for notice in notifications(team, agent_id) if notice.interrupts]


def was_replaced(result: types.CallToolResult, *, executed: bool) -> bool:
    """Whether the answer is the interrupt, with this value of `executed`; fails when it is malformed."""
    if result.structured_content is not None:
        return False
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    assert content.text == INTERRUPTED
    assert not result.is_error
    return bool((result.meta or {})[EXECUTED]) is executed


async def interrupted(agent: Agent, tool: str, **arguments: Any) -> None:
    """The call must have been replaced, before it ran."""
    assert was_replaced(await agent.raw(tool, **arguments), executed=False)


def interrupt_by_hand(team: Team, agent_id: str, name: str = "stop.md", purpose: str = "both") -> None:
    """Writes an interrupt for every session of an agent, as another program would."""
    team.notify(agent_id, name, type="interrupt", action="pause", target_purpose=purpose, message="stop")


def entities(team: Team) -> dict[str, bytes]:
    """The content of every entity file, except agent sessions (which record every call) and execution logs."""
    return {
        str(path.relative_to(team.path)): path.read_bytes()
        for path in sorted(team.path.rglob("*"))
        if path.is_file()
        and not any(part.startswith(".") or part in ("sessions", "logs") for part in path.relative_to(team.path).parts)
    }
