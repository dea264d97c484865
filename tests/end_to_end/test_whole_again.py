"""An agent that is whole again: briefed once, by the hook of its host or by its server (docs/protocol.md, Briefing)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.end_to_end.chat_support import interrupt_by_hand, new_task, was_replaced
from tests.end_to_end.support import Team

pytestmark = pytest.mark.anyio

WHO = "あなたはチーム"
GO_ON = "自己紹介や挨拶を送らず"


def hook(team: Team, source: str, *options: str, event: str = "SessionStart") -> str | None:
    """The context that the hook has for the model."""
    given = {"hook_event_name": event, "session_id": "c-1", "source": source, "tool_name": "Bash"}
    where = ["--session", team.session, "--agent", "worker-a", *options]
    done = team.run("hook", *where, stdin=json.dumps(given).encode())
    assert (done.code, done.stderr) == (0, "")
    return str(json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]) if done.stdout else None


async def test_a_server_briefs_once_and_again_in_its_next_process_with_what_was_handed_off(team: Team) -> None:
    task = new_task(team, "大きな仕事")
    async with team.server("worker-a") as worker:
        assert "briefing" not in await worker.call("get_next_action"), "it has no past"
        assert task.id in (await worker.call("get_next_action"))["task"]["task_id"]
        assert "briefing" not in await worker.call("get_next_action")
        kept = await worker.call("hand_off", content="壁は立った。次は屋根。")
        assert kept["task_id"] == task.id
        worker.kill()
        await worker.gone()
    async with team.server("worker-a") as worker:
        again = (await worker.call("get_next_action"))["briefing"]
        for said in (WHO, task.id, "壁は立った。次は屋根。", kept["path"], GO_ON):
            assert said in again
    shown = team.ask("agent", "brief", "worker-a")
    assert (shown["task_id"], shown["handoff_id"]) == (task.id, kept["handoff_id"])
    assert len(shown["briefing"]) <= 1_500


async def test_what_a_hook_has_told_the_server_does_not_repeat_and_the_conversation_is_recorded(team: Team) -> None:
    new_task(team, "仕事")
    said = hook(team, "resume", "--host", "claude")
    assert said is not None
    assert GO_ON in said
    async with team.server("worker-a") as worker:
        assert "briefing" not in await worker.call("get_next_action")
        compacted = hook(team, "compact", "--host", "claude")
        assert compacted is not None
        assert GO_ON in compacted
        assert "briefing" not in await worker.call("get_next_action")
        (session,) = team.services.sessions.running("worker-a")
        assert (session.host, session.host_session) == ("claude", "c-1")
    async with team.server("worker-a") as worker:
        assert "briefing" in await worker.call("get_next_action"), "a new process, and no hook"


async def test_an_answer_that_an_interrupt_replaced_has_told_nothing(team: Team) -> None:
    new_task(team, "仕事")
    async with team.server("worker-a") as worker:
        await worker.call("get_next_action")  # else it has no past
    async with team.server("worker-a") as worker:
        interrupt_by_hand(team, "worker-a")
        assert was_replaced(await worker.raw("get_next_action"), executed=False)
        await worker.call("get_notifications")
        answer: dict[str, Any] = await worker.call("get_next_action")
        assert "briefing" in answer
