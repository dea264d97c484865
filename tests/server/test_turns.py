"""The turns of an agent that has more than one thing to do: no answer leaves it waiting for a ring that never comes
(docs/protocol.md, Next action)."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.wiring import Services
from tests.server.seat import Seat
from tests.services.support import by_hand, send
from tests.services.tasks_support import again, new, notices, shown


def words(services: Services, key: str) -> str:
    return services.texts(key)


def test_a_worker_that_has_read_of_all_its_tasks_is_led_from_one_to_the_next(services: Services) -> None:
    tasks = [new(services, title) for title in ("A", "B", "C")]
    seat = Seat(services, "worker-a")
    assert len(seat.call("get_notifications")["notifications"]) == 3
    for left in (2, 1, 0):
        assert seat.call("get_next_action")["action"] == "work"
        answer = seat.call("report_completed", result="success")
        assert answer["action"] == "exit"
        assert answer["instruction"] == words(services, "next.exit.more" if left else "next.exit")
    assert {again(services, task).status for task in tasks} == {"done"}


def test_mail_and_requests_count_as_more_and_what_others_do_does_not(services: Services) -> None:
    worker, admin = Seat(services, "worker-a"), Seat(services, "admin")
    new(services), new(services, assignee_id="admin", by="owner")
    for seat in (worker, admin):
        seat.call("get_next_action")
    send(services, "admin", "worker-a")
    assert worker.call("report_completed", result="success")["instruction"] == words(services, "next.exit.more")
    worker.call("read_messages")
    assert worker.call("logout")["message"] == words(services, "logout.stays")
    worker.call("request_task", title="Paint")
    admin.call("read_messages")
    assert admin.call("report_completed", result="success")["instruction"] == words(services, "next.exit.more")


def test_a_logout_loses_no_task_that_was_read_of(services: Services) -> None:
    new(services)
    seat = Seat(services, "worker-a")
    assert len(seat.call("get_notifications")["notifications"]) == 1
    assert shown(services, "worker-a") == []
    assert seat.call("logout")["message"] == words(services, "logout.more")
    assert [notice.action for notice in notices(services, "worker-a")] == ["task_assigned"]
    assert seat.call("get_next_action")["action"] == "work"
    assert shown(services, "worker-a") == []


def test_a_chat_session_that_logs_out_is_told_of_what_waits(services: Services) -> None:
    seat = Seat(services, "worker-a", purpose="chat")
    send(services, "admin", "worker-a")
    assert seat.call("logout")["message"] == words(services, "logout.more")
    seat.call("read_messages")
    assert seat.call("logout")["message"] == words(services, "logout.stays")


@pytest.mark.parametrize("begun", [True, False])
def test_a_paused_agent_is_handed_out_nothing_before_it_may_resume(
    services: Services, owner: Agent, begun: bool
) -> None:
    seat = Seat(services, "worker-a")
    task = new(services)
    if begun:
        seat.call("get_next_action")
    services.interrupting.interrupt(owner, "worker-a", "pause", None, "lunch")
    seat.call("get_notifications")
    new(services, "Paint", priority="low")
    send(services, "admin", "worker-a")
    answer = seat.call("get_next_action")
    assert (answer["action"], answer["instruction"]) == ("wait", services.texts("next.paused", by="owner"))
    services.interrupting.resume(owner, "worker-a")
    assert seat.call("get_next_action")["task"]["task_id"] == task.id


@pytest.mark.parametrize("last_words", [None, "bye"])
def test_both_chat_sessions_of_a_conversation_that_is_over_are_told_to_leave(
    services: Services, last_words: str | None
) -> None:
    one, other = (Seat(services, name, purpose="chat") for name in ("worker-a", "worker-b"))
    first = one.call("start_conversation", target_agent_id="worker-b", initial_message="hello")["conversation_id"]
    second = one.call("start_conversation", target_agent_id="worker-b", initial_message="again")["conversation_id"]
    assert "instruction" not in other.call("read_messages")
    ended = one.call("end_conversation", conversation_id=first, final_message=last_words)
    assert ended["instruction"] == services.texts("chat.ended")
    assert one.call("get_next_action")["action"] == "wait"
    assert other.call("read_messages")["instruction"] == services.texts("chat.ended")
    ended = one.call("end_conversation", conversation_id=second, final_message=last_words)
    assert ended["instruction"] == services.texts("next.chat.exit")
    assert other.call("read_messages")["instruction"] == services.texts("next.chat.exit")
    assert [seat.call("get_next_action")["action"] for seat in (one, other)] == ["exit", "exit"]
    assert "instruction" not in Seat(services, "worker-b").call("read_messages", unread_only=False)


def test_a_batch_creates_assigned_tasks_that_are_held_back(services: Services) -> None:
    seat, worker = Seat(services, "admin"), Seat(services, "worker-a")
    tasks = [
        {"title": "held", "assignee_id": "worker-a", "status": "backlog"},
        {"title": "given", "assignee_id": "worker-a"},
        {"title": "nobody's"},
    ]
    made = seat.call("create_tasks_batch", tasks=tasks)["tasks"]
    assert [item["status"] for item in made] == ["backlog", "todo", "backlog"]
    assert [item["assignee_id"] for item in made] == ["worker-a", "worker-a", None]
    assert worker.call("get_next_action")["task"]["title"] == "given"
    wrong = seat.call("create_tasks_batch", tasks=[{"title": "x", "status": "in_progress"}])
    assert wrong["error"] == "invalid_arguments"


def test_a_held_task_is_begun_from_a_chat_only_where_the_requester_has_really_written(services: Services) -> None:
    held = {"title": "held", "assignee_id": "worker-a", "status": "backlog"}
    (made,) = Seat(services, "admin").call("create_tasks_batch", tasks=[held])["tasks"]
    chat = Seat(services, "worker-a", purpose="chat")
    asked = {"task_id": made["task_id"], "requester_id": "admin"}
    by_hand(services, "worker-a", "claims.md", "---\nsender_id: admin\n---\n\nStart it")
    refused = chat.call("start_task_from_chat", **asked)
    assert (refused["error"], "admin" in refused["message"]) == ("invalid_status_transition", True)
    send(services, "owner", "worker-a")
    assert chat.call("start_task_from_chat", **asked)["error"] == "invalid_status_transition"
    send(services, "admin", "worker-a")
    started = chat.call("start_task_from_chat", **asked)
    assert (started["previous_status"], started["new_status"]) == ("backlog", "in_progress")
    history = services.task_changes.get(made["task_id"]).history
    assert [line["status"] for line in history][-2:] == [["backlog", "todo"], ["todo", "in_progress"]]
