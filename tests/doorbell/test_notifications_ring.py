"""The doorbell rings for notifications by the rules for mail: who hears of what, how often, and what is written down
(docs/protocol.md, When to ring)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import MANY, About, Delivery
from multi_agent_mcp.domain.entity import new_id
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.hooks.answers import Event
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.store.locks import waiter_lock
from multi_agent_mcp.texts import catalogue
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import read, send
from tests.services.tasks_support import converse, delegate, notices, open_session, running

ASSIGNED = "[IPC] New notification: task_assigned from admin"
DELEGATED = "[IPC] New notification: delegation from worker-a"


def test_a_paused_agent_is_rung_about_interrupts_only_and_about_everything_after_the_pause(
    services: Services, recorder: Recorder, owner: Agent
) -> None:
    services.interrupting.interrupt(owner, "worker-a", "pause", None, None)
    services.notifications.read("worker-a", "task")
    recorder.rings.clear()
    assigned = told(services)
    assert recorder.rings == []
    told(services, "check_chat", by="worker-a", type="interrupt")
    assert len(recorder.rings) == 1
    services.notifications.read("worker-a", "chat")
    services.interrupting.resume(owner, "worker-a")
    assert assigned.id in {notice.id for notice in services.notifications.ringing("worker-a")}


def told(
    services: Services,
    action: str = "task_assigned",
    *,
    by: str | None = "admin",
    purpose: str | None = "task",
    type: str = "status_change",
) -> Notification:
    """A notification for worker-a, delivered as every one is."""
    notice = Notification(
        id=new_id("ntf"),
        target_agent_id="worker-a",
        target_purpose=purpose,
        type=type,
        action=action,
        sender_id=by,
        message="told",
        created_at=services.clock(),
    )
    return services.notice_writer.put(notice)


def delegated(services: Services) -> Notification:
    """The notification that worker-a's task session leaves for its chat session when it delegates."""
    delegate(services, open_session(services, "worker-a"))
    (notice,) = (item for item in notices(services, "worker-a") if item.action == "delegation")
    return notice


@pytest.fixture(autouse=True)
def task(services: Services, recorder: Recorder) -> Task:
    """A task that worker-a is working on, with the rings and the delivery log of its assignment removed."""
    task = running(services)
    recorder.rings.clear()
    services.workspace.delivery_log("worker-a").path.unlink()
    return task


@contextmanager
def served(services: Services, *purposes: str, agent_id: str = "worker-a") -> Iterator[None]:
    """Keeps the agent's servers for these purposes alive."""
    locks = [services.doorbell.serve(agent_id, purpose) for purpose in purposes]
    try:
        yield
    finally:
        for lock in locks:
            assert lock is not None
            lock.release()


def lines(recorder: Recorder) -> list[str]:
    return [line for _, line in recorder.rings]


def steps(services: Services, notice: Notification) -> list[tuple[str, str | None]]:
    (copy,) = services.tracking.trace(notice.id)
    return [(step["state"], step.get("reason")) for step in copy["steps"]]


def test_a_notification_rings_once_and_the_log_tells_its_steps(services: Services, recorder: Recorder) -> None:
    notice = told(services)
    assert lines(recorder) == [ASSIGNED]
    assert steps(services, notice) == [("stored", None), ("rung", None), ("submitted", None)]
    services.notifications.read("worker-a", "task")
    assert steps(services, notice)[-1] == ("read", None)
    assert services.doorbell.ring("worker-a")[0] is None


def test_the_one_who_caused_a_notification_may_ask_how_far_it_got(
    services: Services, admin: Agent, worker_a: Agent
) -> None:
    notice = told(services)
    assert services.tracking.status(admin, notice.id)["state"] == "submitted"
    with pytest.raises(Exception, match="not_sender"):
        services.tracking.status(worker_a, notice.id)


def test_mail_and_notifications_share_one_outstanding_doorbell(
    services: Services, recorder: Recorder, clock: Clock
) -> None:
    told(services)
    assert send(services, "admin", "worker-a").delivery["worker-a"] == Delivery("stored", "doorbell_outstanding")
    clock.advance(30)
    services.doorbell.ring("worker-a")
    assert lines(recorder) == [ASSIGNED, "[IPC] New messages: 1, new notifications: 1"]
    services.notifications.read("worker-a", "task")
    silent = told(services)
    assert len(recorder.rings) == 2, "the mail of the last line is unread"
    (step,) = services.workspace.delivery_log("worker-a").steps()[silent.id]
    assert (step["state"], step["reason"]) == ("deferred", "doorbell_outstanding")
    read(services, "worker-a")
    told(services)
    assert lines(recorder)[2:] == ["[IPC] New notifications: 2"]


def test_a_storm_of_fifty_assignments_is_one_line_until_the_pause_is_over(
    services: Services, recorder: Recorder, clock: Clock
) -> None:
    for _ in range(50):
        told(services)
    assert lines(recorder) == [ASSIGNED]
    clock.advance(30)
    services.doorbell.ring("worker-a")
    assert lines(recorder)[1:] == ["[IPC] New notifications: 50"]


def test_nobody_is_rung_for_their_own_doings(services: Services, recorder: Recorder) -> None:
    notice = told(services, "task_blocked", by="worker-a")
    assert services.doorbell.ring("worker-a")[0] is None
    assert recorder.rings == []
    assert steps(services, notice) == [("stored", None)]
    assert services.hooks.wake("worker-a", "task")[0] is None
    assert services.hooks.answer("worker-a", "task", Event("PostToolUse")) is None


def test_a_delegation_rings_the_agents_chat_session_and_no_other(services: Services, recorder: Recorder) -> None:
    with served(services, "task", "chat"):
        delegated(services)
        assert recorder.rings == []
        assert services.doorbell.ring("worker-a", "task")[0] is None
        assert services.hooks.wake("worker-a", "task")[0] is None
        assert services.doorbell.ring("worker-a", "chat")[0] == Delivery("submitted")
    assert lines(recorder) == [DELEGATED]


@pytest.mark.parametrize("living", [(), ("task",)])
def test_a_delegation_rings_no_other_session_while_no_chat_session_lives(
    services: Services, recorder: Recorder, living: tuple[str, ...]
) -> None:
    with served(services, *living):
        notice = delegated(services)
        for purpose in (None, "task"):
            assert services.doorbell.ring("worker-a", purpose)[0] is None
    assert recorder.rings == []
    assert steps(services, notice) == [("stored", None), ("deferred", "no_chat_session")]
    with served(services, "chat"):
        services.doorbell.ring("worker-a", "chat")
    assert lines(recorder) == [DELEGATED]


def test_a_chat_session_alone_hears_of_no_task_that_it_cannot_read_of(services: Services, recorder: Recorder) -> None:
    with served(services, "chat"):
        notice = told(services)
        assert services.doorbell.ring("worker-a", "chat")[0] is None
        assert steps(services, notice)[-1] == ("deferred", "no_task_session")
        told(services, purpose=None)
        services.doorbell.ring("worker-a", "chat")
    assert lines(recorder) == [ASSIGNED]


def test_a_conversation_is_left_to_the_chat_session_that_the_supervisor_opens_a_window_for(
    services: Services, recorder: Recorder, clock: Clock
) -> None:
    services.agents.change("worker-a", command="claude")
    with served(services, "task"):
        admin, worker = services.agents.get("admin"), services.agents.get("worker-a")
        services.conversations.begin(admin, worker, "are you there?")
        services.supervision.begin()
        clock.advance(10)
        delivery, decision = services.doorbell.ring("worker-a", "task")
        assert (delivery, decision.after) == (None, timedelta(seconds=20)), "a chat window is being opened"
        assert services.hooks.wake("worker-a", "task")[0] is None
        services.missing_sessions.put_down("worker-a")
        assert services.doorbell.meant_for("worker-a", "task", services.doorbell._unread("worker-a"))
        services.missing_sessions.put_up("worker-a")
        clock.advance(20)
        services.doorbell.ring("worker-a", "task")
    assert lines(recorder) == ["[IPC] New message: conversation from admin"], "no chat session has begun"


def test_an_agents_chat_session_rings_its_task_session(services: Services, recorder: Recorder) -> None:
    services.notifications.from_chat("worker-a", "cnv_0123456789ab", "look", None, interrupting=False)
    assert lines(recorder) == ["[IPC] New notification: check_chat from worker-a"]


def test_an_interrupt_rings_until_its_task_is_reopened(
    services: Services, recorder: Recorder, clock: Clock, owner: Agent, task: Task
) -> None:
    services.task_changes.set_status(owner, task.id, "blocked")
    services.task_changes.set_status(owner, task.id, "in_progress")
    clock.advance(30)
    services.doorbell.ring("worker-a")
    services.hooks.wake("worker-a", "task")
    assert [line for line in lines(recorder) if "blocked" in line] == ["[IPC] New notification: blocked from owner"]
    (mark,) = services.timeline.of().marks
    assert mark.submitted_at is not None


def test_an_interrupt_that_a_killed_process_left_out_rings_when_it_is_written(
    services: Services, recorder: Recorder, owner: Agent, task: Task
) -> None:
    change = Change(by="owner", at=services.clock())
    services.workspace.tasks.update(task.id, lambda found: found.interrupted("blocked", change, new_id("ntf")))
    assert recorder.rings == []
    services.notifications.repair("worker-a")
    assert lines(recorder) == ["[IPC] New notification: blocked from owner"]


def test_a_hook_says_the_doorbells_line_once_and_the_waiter_does_not_repeat_it(
    services: Services, clock: Clock
) -> None:
    with served(services, "task"):
        told(services)
        clock.advance(1)
        told(services, "task_blocked", by=None)
        said = services.hooks.answer("worker-a", "task", Event("UserPromptSubmit"))
        assert said is not None
        assert said["hookSpecificOutput"]["additionalContext"].splitlines()[:2] == [
            "[IPC] New notification: task_blocked from system",
            ASSIGNED,
        ]
        assert services.hooks.answer("worker-a", "task", Event("PostToolUse")) is None
        assert services.hooks.wake("worker-a", "task")[0] is None
        clock.advance(30)
        assert services.hooks.wake("worker-a", "task")[0] == "[IPC] New notifications: 2"


def test_a_session_is_reached_by_its_own_waiter_and_in_its_own_thread_of_codex(services: Services) -> None:
    asked: list[Agent] = []

    class Asked(Recorder):
        def ring(self, agent: Agent, line: str, about: About = MANY) -> Delivery:
            asked.append(agent)
            return super().ring(agent, line, about)

    services.workspace.registry.update("worker-a", codex_thread_id="thread-task")
    bell = replace(services, session=replace(services.session, texts=catalogue("ja")), chosen_notifier=Asked()).doorbell
    with served(services, "task", "chat"):
        delegated(services)
        bell.ring("worker-a", "chat")
        told(services)
        bell.ring("worker-a", "task", {"codex_thread_id": "thread-task", "pane_id": "%1"})
    seen = [(agent.extra["purpose"], agent.extra["codex_thread_id"], agent.pane_id) for agent in asked]
    assert seen == [("chat", None, None), ("task", "thread-task", "%1")]


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(hours=1)], ids=["ours", "another machine's clock"])
def test_a_waiter_that_was_faster_than_the_sender_s_own_look_has_rung(
    services: Services, clock: Clock, ahead: timedelta
) -> None:
    services.workspace.registry.update("worker-a", pane_id=None)
    bell = replace(services, chosen_notifier=Recorder(Delivery("stored", "no_pane"))).doorbell
    message_id = send(services, "admin", "worker-a").message_id
    read(services, "worker-a")
    found = services.workspace.mailbox("worker-a").find(message_id)
    assert found is not None
    first, second = (
        replace(found[1], id=new_id("msg"), created_at=clock.advance(60) + ahead, read_at=None) for _ in range(2)
    )
    assert bell.announce([first])["worker-a"] == Delivery("stored", "no_pane")
    services.workspace.mailbox("worker-a").deliver(second)
    with services.workspace.locks.lock(waiter_lock("worker-a", "task")):
        assert services.hooks.wake("worker-a", "task")[0] is not None
    clock.advance(0.01)
    assert bell.announce([second])["worker-a"] == Delivery("rung", "hook")
    steps = services.workspace.delivery_log("worker-a").steps()
    assert [[step["state"] for step in steps[each.id]] for each in (first, second)] == [["deferred"], ["rung"]]


@pytest.mark.parametrize("last_words", [None, "bye"])
def test_the_end_of_a_conversation_rings_the_chat_session_and_the_task_session_of_the_delegator_only(
    services: Services, recorder: Recorder, clock: Clock, last_words: str | None
) -> None:
    task_session, chat = (open_session(services, "worker-a", purpose) for purpose in ("task", "chat"))
    delegate(services, task_session)
    talk = converse(services, chat.record)
    chat.end()
    task_session.end()
    for agent_id in ("worker-a", "worker-b"):
        read(services, agent_id)
        services.notifications.read(agent_id, "chat")
    for speaker, other, rung in (("worker-a", "worker-b", {"chat"}), ("worker-b", "worker-a", {"chat", "task"})):
        recorder.rings.clear()
        services.workspace.conversations.update(talk.id, lambda found: replace(found, status="active", ended_at=None))
        with served(services, "task", "chat", agent_id=other):
            services.conversations.end(services.agents.get(speaker), talk.id, last_words)
            assert recorder.rings == []
            unread = [mail for _, mail in services.workspace.mailbox(other).unread()]
            heard = {purpose for purpose in ("task", "chat") if services.doorbell.meant_for(other, purpose, unread)}
            assert heard == rung, other
        with served(services, "task", agent_id=other):
            delivery, _ = services.doorbell.ring(other, "task")
            assert (delivery is not None) == ("task" in rung), other
        read(services, other)


def test_the_end_of_a_conversation_rings_nobody_who_has_no_chat_session_but_a_person(
    services: Services, recorder: Recorder, owner: Agent, worker_a: Agent
) -> None:
    talk, _ = services.conversations.begin(owner, worker_a, "are you there?")
    read(services, "worker-a")
    recorder.rings.clear()
    services.conversations.end(owner, talk.id)
    assert recorder.rings == []
    assert services.missing_sessions.needed() == []
    talk, _ = services.conversations.begin(owner, worker_a, "and now?")
    recorder.rings.clear()
    services.conversations.end(worker_a, talk.id)
    assert [agent_id for agent_id, _ in recorder.rings] == ["owner"]


def test_mail_that_only_claims_the_end_of_a_conversation_rings_as_any_other(
    services: Services, recorder: Recorder, admin: Agent, worker_a: Agent
) -> None:
    talk, _ = services.conversations.begin(admin, worker_a, "are you there?")
    read(services, "worker-a")
    for number, said in enumerate((talk.id, "cnv_0123456789ab", "../x", ["cnv"])):
        recorder.rings.clear()
        claim = Draft(content="x", receiver_id="worker-a", metadata={"conversation_id": said, "ended": True})
        services.messages.send(admin, claim)
        assert len(recorder.rings) == 1, number
        read(services, "worker-a")
