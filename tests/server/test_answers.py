"""The accuracy of what answers state: types of messages, paths, tasks, how to continue."""

from __future__ import annotations

import json
import os
from pathlib import Path

import mcp_types as types
import pytest

from multi_agent_mcp import Refused
from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.server.seat import Seat


def test_a_broadcast_whose_type_was_not_given_is_one(agent_team: MakeTeam) -> None:
    team = agent_team()
    admin = team["admin"]
    admin.send_message("to all")
    admin.send_message("to all, as asked", message_type="system")
    admin.send_message("to one", "worker-a")
    types = [message["message_type"] for message in team["worker-a"].read_messages()["messages"]]
    assert sorted(types) == ["broadcast", "request", "system"]


def test_the_path_of_a_log_can_be_opened_from_anywhere(agent_team: MakeTeam) -> None:
    team = agent_team()
    team["admin"].create_tasks_batch([{"title": "x", "assignee_id": "worker-a"}])
    worker = team["worker-a"]
    worker.get_next_action()
    (execution,) = worker.get_my_execution_history()["executions"]
    path = Path(worker.get_execution_log(execution["execution_id"])["log_file_path"])
    assert path.is_absolute()
    assert "get_next_action" in path.read_text(encoding="utf-8")


def test_a_notification_names_a_task_that_exists(agent_team: MakeTeam) -> None:
    chat = agent_team()["worker-a"].chat
    conversation_id = chat.start_conversation("worker-b", "hello")["conversation_id"]
    with pytest.raises(Refused, match="task_not_found"):
        chat.notify_task_session(conversation_id, related_task_id="tsk_0123456789ab")
    assert chat.notify_task_session(conversation_id)["success"]


def test_notifications_that_do_not_fit_into_one_answer_say_how_to_go_on_until_all_were_read(services: Services) -> None:
    for _ in range(8):
        services.interrupts.stop("worker-a", "cancel", sender_id="owner", reason="why " * 400)
    worker = Seat(services, "worker-a")
    told, answer = [], worker.call("get_notifications")
    while "truncated" in answer:
        assert "Call get_notifications again" in answer["how_to_continue"]
        told += answer["notifications"]
        answer = worker.call("get_notifications")
    assert len({notice["id"] for notice in [*told, *answer["notifications"]]}) == 8
    assert told


def test_a_limit_that_is_a_whole_number_is_told_as_one(agent_team: MakeTeam) -> None:
    with pytest.raises(Refused, match=r"600(?!\.)"):
        agent_team()["worker-a"].get_next_action(timeout_seconds=601)


def test_a_root_whose_path_is_not_utf8_is_shown_with_a_mark_and_work_goes_on(services: Services) -> None:
    """`init` refuses one; a directory may be renamed later."""
    services.task_creation.create(services.agents.get("admin"), [NewTask(title="x", assignee_id="worker-a")])
    odd = services.root.rename(services.root.with_name(os.fsdecode(b"odd\xff")))
    worker = Seat(open_session(odd, services.session.name, notifier=Recorder()), "worker-a")
    result = worker.result("get_next_action")
    answer = result.structured_content
    assert answer is not None
    assert (answer["action"], answer["task"]["title"]) == ("work", "x")
    assert "/odd?/" in json.dumps(answer)
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    assert json.loads(content.text.encode()) == answer
