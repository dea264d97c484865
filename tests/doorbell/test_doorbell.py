"""The doorbell: which processes ring and when, once per message, coalesced, and never causing a failure."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from multi_agent_mcp.domain.delivery import NAMED, Delivery
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.doorbell.thread import DoorbellThread
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import by_hand, read, send

ONE = "[IPC] New message: request from admin"


def lines(recorder: Recorder) -> list[str]:
    return [line for _, line in recorder.rings]


def test_the_first_message_rings_and_the_next_ones_wait_for_their_reader(
    services: Services, recorder: Recorder
) -> None:
    assert send(services, "admin", "worker-a").delivery["worker-a"] == Delivery("submitted")
    for _ in range(3):
        assert send(services, "admin", "worker-a").delivery["worker-a"] == Delivery("stored", "doorbell_outstanding")
    assert lines(recorder) == [ONE]


def test_after_reading_the_next_message_rings_at_once(services: Services, recorder: Recorder) -> None:
    send(services, "admin", "worker-a")
    read(services, "worker-a")
    send(services, "admin", "worker-a")
    assert lines(recorder) == [ONE, ONE]


def test_what_stays_unread_is_rung_about_again_together_after_growing_pauses(
    services: Services, recorder: Recorder, clock: Clock
) -> None:
    send(services, "admin", "worker-a")
    send(services, "admin", "worker-a")
    rung_at = []
    for second in range(0, 400, 10):
        delivery, _ = services.doorbell.ring("worker-a")
        if delivery is not None:
            rung_at.append(second)
        clock.advance(10)
    assert rung_at == [30, 90, 210]
    assert lines(recorder) == [ONE] + ["[IPC] New messages: 2"] * 3


@pytest.mark.parametrize("jump", [-86400, -3600, -31, -1, 86400])
def test_a_clock_that_is_set_costs_one_doorbell_and_silences_none(
    services: Services, recorder: Recorder, clock: Clock, jump: float
) -> None:
    send(services, "admin", "worker-a")
    clock.advance(jump)
    rung_after = []
    for second in range(121):
        if services.doorbell.ring("worker-a")[0] is not None:
            rung_after.append(second)
        clock.advance(1)
    assert rung_after == ([0, 60] if abs(jump) > 30 else [31, 91])


def test_nothing_unread_rings_nothing(services: Services, recorder: Recorder) -> None:
    delivery, decision = services.doorbell.ring("worker-a")
    assert (delivery, decision.items, decision.after) == (None, (), None)
    assert recorder.rings == []


def test_a_file_written_by_hand_is_rung_about_like_any_other(services: Services, recorder: Recorder) -> None:
    by_hand(services, "worker-a", "note.md", "---\nsender_id: admin\n---\n\nx")
    services.doorbell.ring("worker-a")
    assert recorder.rings == [("worker-a", ONE)]


def test_urgent_mail_does_not_change_the_count(services: Services, recorder: Recorder) -> None:
    by_hand(services, "worker-a", "a.md", "---\npriority: urgent\n---\n\nx")
    by_hand(services, "worker-a", "b.md", "---\npriority: low\n---\n\nx")
    services.doorbell.ring("worker-a")
    assert lines(recorder) == ["[IPC] New messages: 2"]


def test_a_doorbell_that_was_put_off_is_tried_again(services: Services, recorder: Recorder) -> None:
    recorder.outcome = Delivery("stored", "copy_mode")
    send(services, "admin", "worker-a")
    recorder.outcome = Delivery("submitted")
    assert send(services, "admin", "worker-a").delivery["worker-a"] == Delivery("submitted")
    assert lines(recorder)[-1] == "[IPC] New messages: 2"


def test_many_senders_at_once_ring_one_doorbell(services: Services, recorder: Recorder) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: send(services, "admin", "worker-a", str(number)), range(16)))
    assert len(recorder.rings) == 1


def test_a_recipient_whose_server_lives_rings_itself(services: Services, recorder: Recorder) -> None:
    lock = services.doorbell.serve("worker-a", "task")
    assert lock is not None
    assert services.workspace.served_purposes("worker-a") == {"task"}
    assert send(services, "admin", "worker-a").delivery["worker-a"] == Delivery("stored", "recipient_server_rings")
    assert recorder.rings == []
    lock.release()
    assert services.workspace.served_purposes("worker-a") == set()
    assert send(services, "admin", "worker-a").delivery["worker-a"] == Delivery("submitted")


def test_two_servers_of_one_purpose_do_not_both_ring(services: Services) -> None:
    first = services.doorbell.serve("worker-a", "task")
    assert first is not None
    assert services.doorbell.serve("worker-a", "task") is None
    first.release()


def test_a_broadcast_rings_everybody_even_where_one_bell_is_broken(services: Services, recorder: Recorder) -> None:
    services.workspace.delivery_log("worker-a").path.mkdir(parents=True)
    delivery = send(services, "admin", None).delivery
    assert delivery["worker-a"] == Delivery("stored", "storage_error")
    assert {delivery[name].state for name in ("owner", "worker-b")} == {"submitted"}


def test_the_delivery_log_tells_the_steps_of_one_message(services: Services, recorder: Recorder, clock: Clock) -> None:
    recorder.outcome = Delivery("stored", "copy_mode")
    send(services, "admin", "worker-a")
    ((_, message),) = services.workspace.mailbox("worker-a").unread()
    recorder.outcome = Delivery("submitted")
    clock.advance(1)
    services.doorbell.ring("worker-a")
    assert [(step["state"], step.get("reason")) for step in services.tracking.steps(message)] == [
        ("deferred", "copy_mode"),
        ("rung", None),
        ("submitted", None),
    ]


@pytest.mark.parametrize("damage", ["", "{", "[]\n", '{"state": "rung"}\n', "\x00" * 100])
def test_a_delivery_log_that_was_lost_or_damaged_only_rings_again(
    services: Services, recorder: Recorder, damage: str
) -> None:
    send(services, "admin", "worker-a")
    services.workspace.delivery_log("worker-a").path.write_text(damage)
    assert send(services, "admin", "worker-a").delivery["worker-a"] == Delivery("submitted")
    assert len(recorder.rings) == 2


@pytest.mark.parametrize("in_a_pane", [False, True])
def test_a_sender_does_not_look_through_the_mail_of_somebody_whom_nobody_can_ring(
    services: Services, recorder: Recorder, *, in_a_pane: bool
) -> None:
    if in_a_pane:
        services.agents.note("worker-a", pane_id="%1", socket_path="/none")
    torn = by_hand(services, "worker-a", "torn.md", "no header")
    os.utime(torn, (0, 0))
    recorder.outcome = Delivery("stored", "shell")
    assert send(services, "admin", "worker-a").delivery["worker-a"] == recorder.outcome
    assert torn.exists()  # reading it sets it aside
    assert recorder.rings == ([("worker-a", ONE)] if in_a_pane else [])  # shown to whoever looks at the pane
    recorder.outcome = Delivery("submitted")
    services.doorbell.ring("worker-a")
    assert not torn.exists()


@pytest.mark.parametrize("host", [None, "claude", "codex"])
def test_a_sender_waits_for_nobody_where_there_is_no_pane_to_type_into(
    services: Services, recorder: Recorder, host: str | None
) -> None:
    services.agents.note("worker-a", host=host)
    recorder.outcome = Delivery("stored", "no_pane")
    with services.workspace.locks.held("doorbell-worker-a"):
        assert send(services, "admin", "worker-a").delivery["worker-a"] == recorder.outcome


def test_a_doorbell_about_a_heap_is_remembered_in_a_few_lines_and_rings_once(
    services: Services, recorder: Recorder, clock: Clock
) -> None:
    recorder.outcome = Delivery("stored", "draft")
    for number in range(NAMED + 20):
        send(services, "admin", "owner", str(number))
    recorder.outcome = Delivery("submitted")
    assert services.doorbell.ring("owner")[0] == Delivery("submitted")
    entries = list(services.workspace.delivery_log("owner").newest_first())
    assert [(entry["state"], len(entry["messages"])) for entry in entries[:2]] == [("submitted", 200), ("rung", 200)]
    clock.advance(3600)
    assert services.doorbell.ring_again("owner")[0] is None
    by_hand(services, "owner", "late.md", "---\nsender_id: admin\n---\n\nx")
    assert services.doorbell.ring_again("owner")[0] == Delivery("submitted")


def test_a_pause_until_the_year_9999_ends_no_thread(services: Services) -> None:
    bell = DoorbellThread(services.doorbell, "owner", "task", prepare=dict)
    with ThreadPoolExecutor() as pool:
        asleep = pool.submit(bell._sleep, timedelta.max)
        bell.wake()
        asleep.result()
