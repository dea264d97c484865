"""An idle agent is rung for notifications in its pane of a real tmux, as for mail (docs/protocol.md, When to ring)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from multi_agent_mcp.domain.change import Change
from multi_agent_mcp.domain.ids import new_id
from multi_agent_mcp.domain.notification import Notification
from tests.end_to_end.support import Pane, Team, Terminal, eventually, line, notice_line, wait_until
from tests.end_to_end.test_waiter import armed, waiter

pytestmark = [pytest.mark.tmux, pytest.mark.anyio]

ASSIGNED = notice_line("task_assigned", "admin")


def tell(team: Team, action: str = "task_assigned", sender: str = "admin", purpose: str = "task") -> str:
    """Notifies worker-a from another process than its server's; the notification's id."""
    services = team.services
    notice = Notification(
        id=new_id("ntf"),
        target_agent_id="worker-a",
        target_purpose=purpose,
        type="status_change",
        action=action,
        sender_id=sender,
        created_at=services.clock(),
    )
    services.interrupts.deliver(notice)
    return notice.id


def steps(team: Team, notice_id: str) -> list[str]:
    (copy,) = team.ask("trace", notice_id)["copies"]
    return [step["state"] for step in copy["steps"]]


async def seated(team: Team, agent_id: str, pane: Pane) -> None:
    registry = team.services.workspace.registry
    await eventually(lambda: registry.get(agent_id).pane_id == pane.id, "the server registers its pane")


async def served(team: Team, agent_id: str, purpose: str) -> None:
    lock = f"serving-{agent_id}-{purpose}"
    await eventually(lambda: team.services.workspace.locks.is_held(lock), f"{lock} is held")


def test_an_agent_without_a_server_is_rung_by_whoever_notifies_it(team: Team, terminal: Terminal) -> None:
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    interrupted = team.ask("interrupt", "worker-a", "--as", "admin")["notification_id"]
    wait_until(lambda: len(pane.lines) == 1, "the interrupt rings")
    assert pane.lines[0].startswith("[IPC] 新しい通知: blocked from ")
    assert steps(team, interrupted) == ["stored", "rung", "submitted"]
    told = team.run("trace", interrupted).stdout
    assert "worker-a: submitted notifications/worker-a/" in told


async def test_an_idle_agent_is_rung_by_its_own_server_and_fifty_assignments_are_at_most_three_lines(
    team: Team, terminal: Terminal
) -> None:
    pane = terminal.pane()
    async with team.server("worker-a", env=pane.env) as worker:
        await seated(team, "worker-a", pane)
        tell(team, sender="worker-a")
        ids = [tell(team) for _ in range(50)]
        await eventually(lambda: len(pane.lines) > 0, "the assignments ring")
        answer = await worker.call("get_notifications")
        while answer["notifications"]:
            answer = await worker.call("get_notifications")
        assert steps(team, ids[0])[-1] == "read"
        last = tell(team)
        await eventually(lambda: pane.lines[-1] == ASSIGNED and "submitted" in steps(team, last), "the next one rings")
        assert 1 <= len(pane.lines) <= 4


async def test_a_delegation_rings_the_pane_of_the_chat_session_and_an_interrupt_that_of_the_task_session(
    team: Team, terminal: Terminal
) -> None:
    task_pane, chat_pane = terminal.pane(), terminal.pane()
    async with team.server("worker-a", "--purpose", "task", env=task_pane.env):
        await seated(team, "worker-a", task_pane)
        early = tell(team, "delegation", "worker-a", "chat")
        assert steps(team, early) == ["stored", "deferred"]
        async with team.server("worker-a", "--purpose", "chat", env=chat_pane.env):
            await served(team, "worker-a", "chat")
            await eventually(lambda: chat_pane.lines == [notice_line("delegation", "worker-a")], "the delegation rings")
            team.ask("interrupt", "worker-a", "--action", "pause", "--as", "admin")
            await eventually(lambda: len(task_pane.lines) == 1, "the interrupt rings")
            assert task_pane.lines[0].startswith("[IPC] 新しい通知: pause from ")
            assert len(chat_pane.lines) == 1


async def test_an_interrupt_whose_writer_was_killed_before_it_notified_rings_an_idle_agent(
    team: Team, terminal: Terminal
) -> None:
    pane = terminal.pane()
    task_id = team.ask("task", "add", "work", "--assignee", "worker-a", "--as", "admin")["task_id"]
    async with team.server("worker-a", env=pane.env) as worker:
        await seated(team, "worker-a", pane)
        await worker.call("get_notifications")
        before = len(pane.lines)
        services = team.services
        change = Change(by="admin", at=services.clock())
        services.workspace.tasks.update(task_id, lambda task: task.interrupted("blocked", change, new_id("ntf")))
        await eventually(lambda: len(pane.lines) > before, "its server writes the interrupt and rings")
        assert pane.lines[-1].startswith("[IPC] 新しい通知: blocked from ")


def test_the_waiter_wakes_for_an_interrupt_with_the_doorbells_line(team: Team) -> None:
    with waiter(team) as process:
        wait_until(lambda: armed(team), "it is armed")
        tell(team, sender="worker-a")
        tell(team, "delegation", "worker-a", "chat")
        team.ask("interrupt", "worker-a", "--action", "pause", "--as", "admin")
        _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert err.startswith("[IPC] 新しい通知: pause from ")


def test_the_hook_of_a_prompt_says_the_doorbells_line(team: Team) -> None:
    tell(team)
    team.send("worker-a")
    event = json.dumps({"hook_event_name": "UserPromptSubmit", "session_id": "s-1"}).encode()
    said: Any = team.run("hook", "--session", team.session, "--agent", "worker-a", stdin=event).json
    spoken = said["hookSpecificOutput"]["additionalContext"].splitlines()
    assert (spoken[0], spoken[3]) == (ASSIGNED, line())
    assert "get_notifications" in spoken[1]
