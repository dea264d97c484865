"""The way of a call: how many files of the package somebody who follows it opens. Each call is a second or third one,
when everything is imported and the indexes are known."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import multi_agent_mcp
from multi_agent_mcp.wiring import Services
from tests.server.seat import Seat

PACKAGE = str(Path(multi_agent_mcp.__file__).parent)
TOOLS = f"{PACKAGE}/server/tools/"


def entered(call: Callable[[], Any]) -> list[str]:
    """The files of the package that a call enters, in the order in which it does."""
    found: dict[str, None] = {}

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            found.setdefault(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(before)
    return list(found)


def test_a_send_enters_few_files(services: Services) -> None:
    worker, admin = Seat(services, "worker-a"), Seat(services, "admin")
    for _ in range(3):
        assert worker.call("send_message", receiver_id="admin", content="x")["success"]
        assert admin.call("read_messages")["count"]
    way = entered(lambda: worker.call("send_message", receiver_id="admin", content="x"))
    assert len(way) <= 28
    assert next(number for number, file in enumerate(way) if file.startswith(TOOLS)) <= 14
    assert len(entered(lambda: admin.call("read_messages"))) <= 30


def test_the_owners_block_of_a_running_task_enters_few_files(services: Services) -> None:
    worker, admin, owner = (Seat(services, name) for name in ("worker-a", "admin", "owner"))

    def begun() -> str:
        task_id: str = admin.call("send_task", agent_id="worker-a", title="t", content="c")["task_id"]
        assert worker.call("update_task_status", task_id=task_id, status="in_progress")["success"]
        return task_id

    def block(task_id: str) -> None:
        assert owner.call("update_task_status", task_id=task_id, status="blocked", blocked_reason="wait")["success"]
        assert worker.call("read_messages") == {}  # the interrupt

    for _ in range(2):
        block(begun())
        worker.call("get_notifications")
    task_id = begun()
    way = entered(lambda: owner.call("update_task_status", task_id=task_id, status="blocked", blocked_reason="wait"))
    assert services.task_changes.get(task_id).status == "blocked"
    assert len(way) <= 38
