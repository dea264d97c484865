"""A server whose clock is set back and forth while it runs goes on as if nothing had happened."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import anyio
import pytest

from tests.end_to_end import support
from tests.end_to_end.shifted import set_clock
from tests.end_to_end.support import Team

HOUR, YEAR = 3_600, 365 * 86_400
LEAPS = (0, -YEAR, -HOUR, HOUR, YEAR, -2 * YEAR, 0)
WAIT_SECONDS = 20


@pytest.mark.anyio
async def test_a_server_reads_and_waits_whatever_its_clock_is_set_to(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = tmp_path / "shift"
    set_clock(shift, 0)
    monkeypatch.setattr(support, "COMMAND", (sys.executable, "-m", "tests.end_to_end.shifted"))
    env = {"SHIFT_FILE": str(shift), "PYTHONPATH": str(support.REPOSITORY)}
    async with team.server("worker-a", "--purpose", "task", env=env) as reader:
        for number, leap in enumerate(LEAPS):
            set_clock(shift, leap)
            assert (await reader.call("get_next_action", timeout_seconds=0))["action"] == "wait"
            began = time.monotonic()
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.to_thread.run_sync, team.post, "worker-a", f"text {number}")
                action = await reader.call("get_next_action", timeout_seconds=WAIT_SECONDS)
            assert action["action"] == "read_messages", leap
            assert time.monotonic() - began < WAIT_SECONDS, "the arrival ended the wait"
            (message,) = (await reader.call("read_messages"))["messages"]
            assert message["content"] == f"text {number}"
        answer = await reader.call("read_messages", unread_only=False)
        assert {message["content"] for message in answer["messages"]} == {f"text {n}" for n in range(len(LEAPS))}
        set_clock(shift, -YEAR)
        assert (await reader.call("get_next_action", timeout_seconds=1))["action"] == "wait", "and waits no longer"
    monkeypatch.undo()
    assert team.unread("worker-a") == []
    assert [item for item in team.services.doctor(lambda _: None).examine() if item.level == "problem"] == []
