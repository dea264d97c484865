"""Which of an agent's servers examines what was delivered."""

from __future__ import annotations

import time
from pathlib import Path

from multi_agent_mcp.server.binding import Checking
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.tasks_support import again, moved, new, shown


def test_what_another_process_has_just_delivered_is_left_to_it(services: Services, tmp_path: Path) -> None:
    task = moved(services, new(services, done_when=("review",)), "in_progress")
    checking = Checking(services, "worker-a", tmp_path)
    delivered = services.deliveries.deliver(services.agents.get("worker-a"), task.id, "all of it")
    checking.wake()
    try:
        time.sleep(2)
        assert again(services, task).status == "in_progress"
        assert services.deliveries.conclude(delivered).check == "passed"
        assert [item["action"] for item in shown(services, "worker-a")] == []
    finally:
        checking.close()


def test_what_nobody_examines_is_taken_over(services: Services, clock: Clock, tmp_path: Path) -> None:
    task = moved(services, new(services, done_when=("review",)), "in_progress")
    services.deliveries.deliver(services.agents.get("worker-a"), task.id, "all of it")
    clock.advance(1)
    checking = Checking(services, "worker-a", tmp_path)  # its server began after that
    checking.wake()
    try:
        end = time.monotonic() + 20
        while again(services, task).status != "review" and time.monotonic() < end:
            time.sleep(0.05)
        assert again(services, task).status == "review"
    finally:
        checking.close()
