"""People without a server are rung again by a process that runs anyway, once, about what no ring has announced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.end_to_end.support import wait_until
from tests.services.support import read, send

ONE = "[IPC] New message: request from admin"


@pytest.fixture
def hurried(services: Services, recorder: Recorder, root: Path) -> Services:
    """The session with pauses of a second and a half, and a clock that runs."""
    settings = services.workspace.settings_path
    pauses = "limits: {doorbell_pause_seconds: 1.5, doorbell_pause_max_seconds: 1.5}"
    settings.write_text(f"language: en\n{pauses}\n", encoding="utf-8")
    return open_session(root, "demo", notifier=recorder)


@pytest.fixture
def ringers(hurried: Services, recorder: Recorder, root: Path) -> Iterator[None]:
    """Three ringers, as in three processes."""
    with ExitStack() as stack:
        for services in (hurried, *(open_session(root, "demo", notifier=recorder) for _ in range(2))):
            stack.enter_context(services.people_doorbells())
        yield


def lines(recorder: Recorder, agent_id: str = "owner") -> list[str]:
    return [line for rung, line in recorder.rings if rung == agent_id]


@pytest.mark.usefixtures("ringers")
def test_what_came_within_the_pause_is_rung_about_once_when_it_is_over_for_every_person(
    hurried: Services, recorder: Recorder
) -> None:
    hurried.agents.add(Agent(id="aide", role="worker", type="human", parent_id="admin"))
    for agent_id in ("owner", "aide", "worker-a"):
        for _ in range(3):
            send(hurried, "admin", agent_id)
    wait_until(lambda: len(lines(recorder, "owner")) == len(lines(recorder, "aide")) == 2, "both are rung again")
    for agent_id in ("owner", "aide"):
        send(hurried, "admin", agent_id)
    wait_until(lambda: len(recorder.rings) == 7, "and again")
    for agent_id in ("owner", "aide"):
        assert lines(recorder, agent_id) == [ONE, "[IPC] New messages: 3", "[IPC] New messages: 4"]
    assert lines(recorder, "worker-a") == [ONE]  # an agent's own server rings it


def test_one_message_is_announced_once_however_long_it_lies(
    services: Services, recorder: Recorder, clock: Clock
) -> None:
    send(services, "admin", "owner")
    for _ in range(100):
        assert services.doorbell.ring_again("owner")[0] is None
        clock.advance(60)
    assert lines(recorder) == [ONE]
    send(services, "admin", "owner")
    read(services, "owner")
    assert services.doorbell.ring_again("owner")[1].after is None


@pytest.mark.usefixtures("ringers")
def test_a_ring_that_failed_is_tried_again(hurried: Services, recorder: Recorder) -> None:
    recorder.outcome = Delivery("stored", "notify_command_failed")
    send(hurried, "admin", "owner")
    wait_until(lambda: len(lines(recorder)) > 1, "tried again")
    recorder.outcome = Delivery("rung", "notify_command")
    wait_until(lambda: [*hurried.workspace.delivery_log("owner").rings()], "rung")


def test_another_process_takes_over_when_the_one_that_rings_has_gone(
    hurried: Services, recorder: Recorder, root: Path
) -> None:
    second = open_session(root, "demo", notifier=recorder).people_doorbells()
    with ExitStack() as stack:
        with hurried.people_doorbells():
            send(hurried, "admin", "owner")
            send(hurried, "admin", "owner")
            wait_until(lambda: len(recorder.rings) == 2, "rung again, so it is the one that rings")
            stack.enter_context(second)
        read(hurried, "owner")
        send(hurried, "admin", "owner")
        send(hurried, "admin", "owner")
        wait_until(lambda: len(recorder.rings) == 4, "rung again by the other")


@pytest.mark.usefixtures("ringers")
def test_a_person_whose_own_server_lives_is_left_to_it_and_taken_over_from_it(
    hurried: Services, recorder: Recorder
) -> None:
    lock = hurried.doorbell.serve("owner", "task")
    assert lock is not None
    assert send(hurried, "admin", "owner").delivery["owner"] == Delivery("stored", "recipient_server_rings")
    hurried.agents.add(Agent(id="aide", type="human", parent_id="admin"))
    path = hurried.workspace.mailbox("aide").path / "note.md"
    path.write_text("---\nsender_id: admin\n---\n\nx", encoding="utf-8")
    wait_until(lambda: lines(recorder, "aide"), "whoever has no server is rung")
    assert lines(recorder) == []
    lock.release()
    wait_until(lambda: lines(recorder) == [ONE], "rung when the server has gone")
