"""`python -m benchmarks.functions [--by CALL]`: how many functions of the package a tool call runs, warm, without a
pane: the third call of its kind, in servers that have their indexes. With `--by`, those of one call by function."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import multi_agent_mcp
from benchmarks.team import SESSION, Team
from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.server.binding import Binding
from multi_agent_mcp.server.calls import Answer, Middleware
from multi_agent_mcp.server.tools import TOOLS
from multi_agent_mcp.services.sessions.confirmation import Confirmation

PACKAGE = str(Path(multi_agent_mcp.__file__).parent)
ROUNDS = 3
SETTLED = 0.1
"""Seconds after which an index is trusted (`system/file_status.py`)."""


class Seat:
    """An agent's server without stdio, with services and indexes of its own."""

    def __init__(self, root: Path, agent_id: str) -> None:
        binding = Binding(open_session(root, SESSION, notifier=Recorder(Delivery("stored", "no_pane"))), purpose="task")
        binding.bind_process(agent_id, None)
        self._middleware = Middleware(binding, TOOLS)

    def call(self, tool: str, **arguments: Any) -> Answer:
        """The answer; {} for an interrupt in its place."""
        confirmation = Confirmation()
        result = self._middleware.answer(tool, arguments, confirmation)
        confirmation.written()
        return result.structured_content or {}


def counted(call: Callable[[], Any], seat: Seat | None = None) -> Counter[str]:
    """The package's functions that a call runs, and how often; a generator counts each time that it goes on. Before, a
    call of this seat confirms what its last one has handed out."""
    if seat is not None:
        seat.call("get_unread_count")
    time.sleep(SETTLED)
    found: Counter[str] = Counter()

    def see(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            found[f"{code.co_filename[len(PACKAGE) + 1 :]}:{code.co_firstlineno} {code.co_qualname}"] += 1

    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def played(root: Path) -> dict[str, Counter[str]]:
    """Each call with what it ran in the last round."""
    owner, admin, worker = (Seat(root, name) for name in ("owner", "admin", "worker"))
    last: dict[str, Counter[str]] = {}
    for number in range(ROUNDS):
        last = dict(_round(number, owner, admin, worker))
    return last


def _round(number: int, owner: Seat, admin: Seat, worker: Seat) -> Iterator[tuple[str, Counter[str]]]:
    made: Answer = {}
    asked: Answer = {}
    wanted = [{"title": f"task {number}", "assignee_id": "worker"}]
    yield "create", counted(lambda: made.update(admin.call("create_tasks_batch", tasks=wanted)), admin)
    for _ in range(2):  # the notification waits, and has been seen
        counted(lambda: worker.call("send_message", receiver_id="admin", content="x"))
    yield "send", counted(lambda: worker.call("send_message", receiver_id="admin", content="x"))
    worker.call("get_notifications")
    task_id = made["tasks"][0]["task_id"]
    worker.call("update_task_status", task_id=task_id, status="in_progress")
    admin.call("read_messages")
    change = {"task_id": task_id, "status": "blocked", "blocked_reason": "wait"}
    yield "block", counted(lambda: owner.call("update_task_status", **change), owner)
    yield "interrupted", counted(lambda: worker.call("get_unread_count"))
    worker.call("get_notifications")
    admin.call("get_notifications")
    yield "ask", counted(lambda: asked.update(worker.call("ask", question=f"Which of {number}?")), worker)
    admin.call("get_notifications")
    given = {"question_id": asked["question_id"], "answer": "this"}
    yield "answer", counted(lambda: admin.call("answer_question", **given), admin)
    worker.call("get_notifications")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.functions", description=__doc__)
    parser.add_argument("--by", metavar="CALL")
    wanted = parser.parse_args().by
    with tempfile.TemporaryDirectory(prefix="mam-functions-") as directory:
        last = played(Team.made(Path(directory)).root)
    if wanted is None:
        for name, found in last.items():
            print(f"{name:12} {found.total():6}")
    else:
        for name, times in last[wanted].most_common():
            print(f"{times:6} {name}")


if __name__ == "__main__":
    main()
