"""The timeline of a session, put together from real files."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from multi_agent_mcp.timeline import building as module
from multi_agent_mcp.timeline.events import OTHERS, Timeline
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import by_hand, read, send
from tests.services.tasks_support import converse, dies, moved, new, open_session, running, shown, snapshot


@pytest.fixture
def blocked(services: Services, clock: Clock) -> Services:
    """worker-a began a task, the Owner blocked it and the interrupt was read; a second later each."""
    task = running(services)
    clock.advance(1)
    services.task_changes.set_status(services.agents.get("owner"), task.id, "blocked", reason="wait")
    clock.advance(1)
    services.notifications.read("worker-a", "task")
    clock.advance(1)
    return services


def seconds(timeline: Timeline, name: str) -> list[float]:
    """The values of this attribute of the arrows, in seconds since the start."""
    moments = (getattr(arrow, name) for arrow in timeline.arrows)
    return [(moment - timeline.start).total_seconds() for moment in moments if moment]


def test_lanes_are_in_the_order_of_the_hierarchy(services: Services) -> None:
    lanes = services.timeline.of().lanes
    assert [(lane.agent_id, lane.depth) for lane in lanes] == [
        ("owner", 0),
        ("admin", 1),
        ("worker-a", 2),
        ("worker-b", 2),
    ]


def test_a_message_is_an_arrow_with_the_times_it_was_rung_and_read(services: Services, clock: Clock) -> None:
    send(services, "admin", "worker-a", subject="hello")
    clock.advance(2)
    read(services, "worker-a")
    timeline = services.timeline.of()
    (arrow,) = timeline.arrows
    assert (arrow.sender_id, arrow.receiver_id, arrow.subject) == ("admin", "worker-a", "hello")
    assert seconds(timeline, "sent_at") == seconds(timeline, "rung_at") == [0]
    assert seconds(timeline, "read_at") == [2]


def test_an_interrupt_is_a_mark_that_says_who_made_it_and_when_it_was_read(blocked: Services) -> None:
    (mark,) = blocked.timeline.of().marks
    assert (mark.by, mark.agent_id, mark.action) == ("owner", "worker-a", "blocked")
    assert mark.read_at == mark.at + timedelta(seconds=1)


def test_a_pause_is_a_mark_though_no_task_tells_who_asked_for_it(services: Services) -> None:
    services.interrupts.pause("worker-b", None)
    (mark,) = services.timeline.of().marks
    assert (mark.by, mark.agent_id, mark.action, mark.read_at) == (None, "worker-b", "pause", None)


def test_a_task_is_a_bar_on_the_lane_of_its_assignee(blocked: Services) -> None:
    (bar,) = blocked.timeline.of().bars
    assert bar.agent_id == "worker-a"
    assert [span.status for span in bar.spans] == ["in_progress", "blocked"]


def test_sessions_and_conversations_have_their_length(services: Services, clock: Clock) -> None:
    chat = open_session(services, "worker-a", "chat")
    conversation = converse(services, chat.record)
    clock.advance(5)
    services.conversations.end(services.agents.get("worker-a"), conversation.id)
    chat.end()
    timeline = services.timeline.of()
    (life,), (talk,) = timeline.lives, timeline.talks
    assert life.end == life.start + timedelta(seconds=5)
    assert (talk.initiator_id, talk.target_agent_id, talk.status) == ("worker-a", "worker-b", "ended")
    assert talk.end == talk.start + timedelta(seconds=5)


def test_a_session_whose_process_died_ended_with_its_last_call(services: Services, clock: Clock) -> None:
    session = open_session(services, "worker-a")
    clock.advance(90)
    session.touch()
    dies(services, session)
    clock.advance(500)
    (life,) = services.timeline.of().lives
    assert life.end == life.start + timedelta(seconds=90)


def test_it_goes_on_until_now_while_somebody_is_at_work(blocked: Services, clock: Clock) -> None:
    assert blocked.timeline.of().end == clock.now - timedelta(seconds=1)
    session = open_session(blocked, "worker-b")
    clock.advance(60)
    assert blocked.timeline.of().end == clock.now
    session.end()
    clock.advance(60)
    assert blocked.timeline.of().end == clock.now - timedelta(seconds=60)


def test_an_empty_session_has_a_timeline_without_events(services: Services, clock: Clock) -> None:
    timeline = services.timeline.of()
    assert (timeline.start, timeline.end) == (clock.now, clock.now)
    assert [*timeline.arrows, *timeline.bars, *timeline.marks] == []


def test_a_period_shows_what_overlaps_it_and_nothing_else(services: Services, clock: Clock) -> None:
    started = clock.now
    new(services, "long")
    for number in range(4):
        send(services, "admin", "worker-a", subject=str(number))
        clock.advance(10)
    timeline = services.timeline.of(started + timedelta(seconds=5), started + timedelta(seconds=25))
    assert [arrow.subject for arrow in timeline.arrows] == ["1", "2"]
    assert [bar.title for bar in timeline.bars] == ["long"]
    assert (timeline.start, timeline.end) == (started + timedelta(seconds=5), started + timedelta(seconds=25))
    assert services.timeline.of(started - timedelta(days=1), started - timedelta(hours=1)).bars == ()


def test_it_says_how_many_older_messages_it_leaves_out(
    services: Services, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ARROWS_MAX", 3)
    for number in range(5):
        send(services, "admin", "worker-a", subject=str(number))
        clock.advance(1)
    timeline = services.timeline.of()
    assert [arrow.subject for arrow in timeline.arrows] == ["2", "3", "4"]
    assert timeline.left_out == 2


def test_a_stranger_and_a_removed_agent_have_their_place(services: Services) -> None:
    send(services, "admin", "worker-b")
    services.agents.remove("worker-b")
    services.agents.remove("worker-a")
    assert [lane.agent_id for lane in services.timeline.of().lanes] == ["owner", "admin", "worker-b"]
    by_hand(services, "admin", "note.md", "---\nsender_id: somebody else\ncreated_at: 2026-11-21\n---\n\nhello")
    assert [lane.agent_id for lane in services.timeline.of().lanes][-1] == OTHERS


def test_looking_changes_nothing(blocked: Services) -> None:
    send(blocked, "admin", "worker-a")
    before = snapshot(blocked)
    blocked.timeline.of()
    assert snapshot(blocked) == before
    assert shown(blocked, "worker-a") == []


def test_tasks_that_were_finished_long_ago_are_in_the_period_they_were_finished_in(
    services: Services, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FINISHED_MAX", 2)
    began = clock.now
    for number in range(6):
        task = moved(services, running(services, str(number)), "done")
        (path,) = services.workspace.tasks.base.glob(f"*/archive/*/{task.id}.md")
        for changed in (path, path.parent):
            os.utime(changed, (clock.now.timestamp(), clock.now.timestamp()))
        clock.advance(60)
    newest = services.timeline.of()
    assert [bar.title for bar in newest.bars] == ["4", "5"]
    assert newest.left_out == 4
    early = services.timeline.of(began + timedelta(seconds=50), began + timedelta(seconds=130))
    assert [bar.title for bar in early.bars] == ["1", "2"]
    assert early.left_out == 0
