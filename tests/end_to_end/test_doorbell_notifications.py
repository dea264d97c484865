"""An idle agent is rung for notifications in its pane of a real tmux, as for mail (docs/protocol.md, When to ring)."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from multi_agent_mcp.domain.entity import new_id
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.services.tasks.board import NewTask
from tests.end_to_end.support import Pane, Team, Terminal, eventually, line, notice_line, wait_until
from tests.end_to_end.test_waiter import armed, waiter

pytestmark = [pytest.mark.tmux, pytest.mark.anyio]

ASSIGNED = notice_line("task_assigned", "admin")
PAUSED = notice_line("pause", "admin")


def assign(team: Team, count: int = 1, *, by: str = "admin") -> list[str]:
    """Tasks for worker-a, made by another process than its server; their ids."""
    services = team.services
    items = [NewTask(title=f"work {number}", assignee_id="worker-a") for number in range(count)]
    return [task.id for task in services.task_creation.create(services.agents.get(by), items)]


def told(team: Team, action: str) -> str:
    """The id of worker-a's newest notification with this action."""
    found = [notice for _, notice in team.services.workspace.notices("worker-a").unread() if notice.action == action]
    return max(found, key=lambda notice: notice.created_at).id


def steps(team: Team, notice_id: str) -> list[str]:
    (copy,) = team.ask("trace", notice_id)["copies"]
    return [step["state"] for step in copy["steps"]]


async def seated(team: Team, agent_id: str, pane: Pane) -> None:
    registry = team.services.workspace.registry
    await eventually(lambda: registry.get(agent_id).pane_id == pane.id, "the server registers its pane")


def test_an_agent_without_a_server_is_rung_by_whoever_gives_it_work(team: Team, terminal: Terminal) -> None:
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    team.ask("task", "add", "work", "--assignee", "worker-a", "--as", "admin")
    wait_until(lambda: pane.lines == [ASSIGNED], "the assignment rings")
    assert steps(team, told(team, "task_assigned")) == ["stored", "rung", "submitted"]
    shown = team.run("trace", told(team, "task_assigned")).stdout
    assert "admin → worker-a: submitted notifications/worker-a/" in shown
    assert "task_assigned: " in shown


async def test_an_idle_agents_server_rings_and_fifty_assignments_are_at_most_three_lines(
    team: Team, terminal: Terminal
) -> None:
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    async with team.server("worker-a") as worker:
        assign(team, by="worker-a")
        for _ in range(5):
            assign(team, 10)
        await eventually(lambda: len(pane.lines) > 0, "the assignments ring")
        while (await worker.call("get_notifications"))["notifications"]:
            pass
        assert len(pane.lines) <= 3
        assert notice_line("task_assigned", "worker-a") not in pane.lines
        assign(team)
        await eventually(lambda: pane.lines[-1] == ASSIGNED, "the next one rings at once")


async def test_a_delegation_rings_the_pane_of_the_chat_session_and_an_interrupt_that_of_the_task_session(
    team: Team, terminal: Terminal
) -> None:
    task_pane, chat_pane = terminal.pane(starts=True), terminal.pane(starts=True)
    assign(team)
    async with team.server("worker-a", "--purpose", "task", inside=task_pane) as worker:
        await seated(team, "worker-a", task_pane)
        await eventually(lambda: task_pane.lines == [ASSIGNED], "the assignment rings")
        assert (await worker.call("get_next_action"))["action"] == "work"
        before = len(task_pane.lines)
        await worker.call("delegate_to_chat_session", target_agent_id="worker-b", purpose="ask")
        assert steps(team, told(team, "delegation")) == ["stored", "deferred"]
        async with team.server("worker-a", "--purpose", "chat", inside=chat_pane):
            delegated = [notice_line("delegation", "worker-a")]
            await eventually(lambda: chat_pane.lines == delegated, "the delegation rings")
            team.ask("interrupt", "worker-a", "--action", "pause", "--as", "admin")
            await eventually(lambda: task_pane.lines[before:] == [PAUSED], "the interrupt rings")
            assert chat_pane.lines == delegated


async def test_an_idle_task_session_is_rung_for_what_its_chat_session_starts_and_changes(
    team: Team, terminal: Terminal
) -> None:
    task_pane, chat_pane = terminal.pane(starts=True), terminal.pane(starts=True)
    async with team.server("worker-a", "--purpose", "task", inside=task_pane) as worker:
        await seated(team, "worker-a", task_pane)
        (task_id,) = assign(team)
        await eventually(lambda: task_pane.lines == [ASSIGNED], "the assignment rings")
        await worker.call("get_notifications")  # and its turn ends without taking the task up
        async with team.server("worker-a", "--purpose", "chat", inside=chat_pane) as chat:
            asked = {"task_id": task_id, "requester_id": "admin"}
            assert (await chat.call("start_task_from_chat", **asked))["previous_status"] == "todo"
            started = notice_line("task_assigned", "worker-a")
            await eventually(lambda: task_pane.lines[1:] == [started], "what was started rings")
            (notice,) = (await worker.call("get_notifications"))["notifications"]
            assert (notice["action"], notice["task_id"]) == ("task_assigned", task_id)
            assert (await worker.call("get_next_action"))["task"]["task_id"] == task_id
            assert (await chat.call("start_task_from_chat", **asked))["previous_status"] == "in_progress"
            await chat.call("update_task_from_chat", **asked, description="three walls")
            updated = notice_line("task_updated", "worker-a")
            await eventually(lambda: task_pane.lines[2:] == [updated], "only the change rings")
            (notice,) = (await worker.call("get_notifications"))["notifications"]
            assert notice["action"] == "task_updated"
            assert (await worker.call("get_next_action"))["task"]["description"] == "three walls"
            assert chat_pane.lines == []


async def test_a_task_session_that_waits_is_handed_what_its_chat_session_reopens(team: Team) -> None:
    (task_id,) = assign(team)
    async with (
        team.server("worker-a", "--purpose", "task") as worker,
        team.server("worker-a", "--purpose", "chat") as chat,
        anyio.create_task_group() as tasks,
    ):
        await worker.call("update_task_status", task_id=task_id, status="blocked", blocked_reason="no key")
        handed_out: list[dict[str, Any]] = []

        async def wait() -> None:
            handed_out.append(await worker.call("get_next_action", timeout_seconds=600))

        tasks.start_soon(wait)
        asked = {"task_id": task_id, "requester_id": "admin"}
        await chat.call("update_task_from_chat", **asked, status="in_progress")
        await eventually(lambda: handed_out, "the wait ends")
        assert (handed_out[0]["action"], handed_out[0]["task"]["task_id"]) == ("work", task_id)


async def test_an_interrupt_whose_writer_was_killed_before_it_notified_rings_an_idle_agent(
    team: Team, terminal: Terminal
) -> None:
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    (task_id,) = assign(team)
    async with team.server("worker-a") as worker:
        await eventually(lambda: pane.lines == [ASSIGNED], "the assignment rings")
        await worker.call("get_next_action")
        services = team.services
        change = Change(by="owner", at=services.clock())
        services.workspace.tasks.update(task_id, lambda task: task.interrupted("blocked", change, new_id("ntf")))
        blocked = notice_line("blocked", "owner")
        await eventually(lambda: pane.lines == [ASSIGNED, blocked], "its server writes the interrupt and rings")


def test_the_waiter_wakes_for_an_interrupt_with_the_doorbells_line(team: Team) -> None:
    with waiter(team) as process:
        wait_until(lambda: armed(team), "it is armed")
        assign(team, by="worker-a")
        team.ask("interrupt", "worker-a", "--action", "pause", "--as", "admin")
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (2, f"{PAUSED}\n")


def test_the_hook_of_a_prompt_says_the_doorbells_lines(team: Team) -> None:
    assign(team)
    team.send("worker-a")
    event = json.dumps({"hook_event_name": "UserPromptSubmit", "session_id": "s-1"}).encode()
    said: Any = team.run("hook", "--session", team.session, "--agent", "worker-a", stdin=event).json
    spoken = said["hookSpecificOutput"]["additionalContext"].splitlines()
    assert (spoken[0], spoken[3]) == (ASSIGNED, line())
    assert "get_notifications" in spoken[1]
