"""Notifications added to the answers of an agent's calls: once, to the right session, newest first (docs/protocol.md,
Notifications)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.errors import ContentTooLarge, InvalidArguments
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.tasks_support import notices, running, shown

CONVERSATION = "cnv_0123456789ab"
DAYS_31 = timedelta(days=31).total_seconds()


def told(services: Services, clock: Clock, number: int, **fields: Any) -> Notification:
    """A notification for worker-a, a second younger than the one before."""
    notice = Notification(
        id=f"ntf_{number:012x}",
        target_agent_id="worker-a",
        created_at=clock.advance(1),
        **{"message": f"text {number}", **fields},
    )
    services.workspace.notices("worker-a").deliver(notice)
    return notice


def test_they_come_newest_first_and_once(services: Services, clock: Clock) -> None:
    for number in range(3):
        told(services, clock, number)
    looked = services.notifications.read("worker-a", "task", mark_as_read=False)
    assert [item["message"] for item in looked] == ["text 2", "text 1", "text 0"]
    assert services.notifications.refresh("worker-a", "task").some
    assert services.notifications.read("worker-a", "task") == looked
    assert services.notifications.read("worker-a", "task") == []
    assert not services.notifications.refresh("worker-a", "task").some


@pytest.mark.parametrize("count", [1, 2])
def test_what_its_target_has_read_is_not_told_again_by_a_slower_writer(
    services: Services, clock: Clock, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    writer, inbox = services.derived_notices.writer, services.workspace.notices("worker-a")
    notices = [
        Notification(
            id=f"ntf_{number:012x}",
            target_agent_id="worker-a",
            target_purpose="task",
            type="interrupt",
            created_at=clock.advance(1),
        )
        for number in range(count)
    ]
    looked = writer.is_there

    def overtaken(notice: Notification) -> bool:
        was_there = looked(notice)
        inbox.deliver(notice)  # another process writes the same one here, and it is read
        assert len(services.notifications.read("worker-a", "task")) == 1
        return was_there

    monkeypatch.setattr(writer, "is_there", overtaken)
    rung: list[Notification] = []
    monkeypatch.setattr(writer, "ring", rung.append)
    writer.put_all((notice, "interrupt.blocked") for notice in notices)
    assert not services.notifications.refresh("worker-a", "task").interrupts
    assert (inbox.unread(), rung) == ([], [])


@pytest.mark.parametrize(
    ("target", "purposes"),
    [("task", {"task"}), ("chat", {"chat"}), ("both", {"task", "chat"}), (None, {"task", "chat"})],
)
def test_a_purpose_is_told_what_is_meant_for_it(
    services: Services, clock: Clock, target: str | None, purposes: set[str]
) -> None:
    told(services, clock, 1, target_purpose=target, type="interrupt")
    assert {
        purpose for purpose in ("task", "chat") if services.notifications.refresh("worker-a", purpose).interrupts
    } == purposes
    assert {purpose for purpose in ("task", "chat") if shown(services, "worker-a", purpose)} == purposes
    assert not services.notifications.refresh("worker-b", "task").some


def test_unread_ones_are_never_archived(services: Services, clock: Clock) -> None:
    told(services, clock, 1, target_purpose="chat")
    clock.advance(DAYS_31)
    told(services, clock, 2)
    services.notifications.read("worker-a", "task")
    assert [item["message"] for item in shown(services, "worker-a", "chat")] == ["text 1"]


def test_a_task_session_is_shown_the_newest_word_of_its_chat_session(services: Services, clock: Clock) -> None:
    services.notifications.from_chat("worker-a", CONVERSATION, "first", None, interrupting=False)
    clock.advance(1)
    newest = services.notifications.from_chat("worker-a", CONVERSATION, "second", None, interrupting=False)
    assert services.notifications.refresh("worker-a", "task").from_chat == newest
    assert not services.notifications.refresh("worker-a", "chat").some
    assert (newest.type, newest.action, newest.target_purpose) == ("chat_session_notification", "check_chat", "task")
    assert CONVERSATION in newest.instruction


def test_in_urgent_cases_the_chat_session_interrupts(services: Services) -> None:
    task = running(services)
    notice = services.notifications.from_chat("worker-a", CONVERSATION, None, task.id, interrupting=True)
    assert (notice.type, notice.action, notice.task_id, notice.message) == ("interrupt", "check_chat", task.id, "")
    pending = services.notifications.refresh("worker-a", "task")
    assert (pending.interrupts, pending.from_chat) == (True, None)


def test_a_word_from_the_chat_is_a_short_text(services: Services) -> None:
    with pytest.raises(ContentTooLarge):
        services.notifications.from_chat("worker-a", CONVERSATION, "x" * 1001, None, interrupting=False)
    with pytest.raises(InvalidArguments):
        services.notifications.from_chat("worker-a", CONVERSATION, "\udc80", None, interrupting=False)
    assert notices(services, "worker-a") == []


def test_only_what_was_handed_over_is_marked_read(services: Services, clock: Clock) -> None:
    for number in range(5):
        told(services, clock, number)
    first = services.notifications.read("worker-a", "task", fits=lambda items: len(items[:2]))
    assert [item["message"] for item in first] == ["text 4", "text 3"]
    assert len(services.notifications.read("worker-a", "task")) == 3


def test_one_that_is_far_too_long_is_cut_rather_than_never_told(services: Services, clock: Clock) -> None:
    told(services, clock, 1, type="interrupt", message="m" * 50_000, instruction="i" * 50_000)
    (item,) = services.notifications.read("worker-a", "task")
    assert len(json.dumps(item)) < 6_000
    assert (item["message"][:3], item["instruction"][:3]) == ("mmm", "iii")


def test_a_corrupt_notification_hides_no_other(services: Services, owner: Agent) -> None:
    services.interrupting.interrupt(owner, "worker-a", "pause", None, None)
    (services.workspace.notices("worker-a").path / "broken.md").write_bytes(b"\xff no front matter")
    assert len(services.notifications.read("worker-a", "task")) == 1
