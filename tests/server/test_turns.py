"""The turns of an agent that has more than one thing to do: no answer leaves it waiting for a ring that never comes
(docs/protocol.md, Next action)."""

from __future__ import annotations

import pytest

from multi_agent_mcp import Refused
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.texts import catalogue
from multi_agent_mcp.wiring import Services
from tests.planned import planned
from tests.server.seat import Seat
from tests.services.support import send
from tests.services.tasks_support import new

words = catalogue("en")


def test_a_worker_that_has_read_of_all_its_tasks_is_led_from_one_to_the_next(agent_team: MakeTeam) -> None:
    team = agent_team()
    worker, tasks = team["worker-a"], planned(team, "A", "B", "C")
    assert len(worker.get_notifications()["notifications"]) == 3
    for left in (2, 1, 0):
        assert worker.get_next_action()["action"] == "work"
        answer = worker.report_completed("success")
        assert (answer["action"], answer["instruction"]) == ("exit", words("next.exit.more" if left else "next.exit"))
    done = worker.get_my_tasks("done")["tasks"]
    assert {task["task_id"] for task in done} == set(tasks)


def test_mail_and_requests_count_as_more_and_what_others_do_does_not(agent_team: MakeTeam) -> None:
    team = agent_team()
    owner, admin, worker = (team[name] for name in ("owner", "admin", "worker-a"))
    planned(team, "Build")
    owner.create_tasks_batch([{"title": "Plan", "assignee_id": "admin"}])
    for agent in (worker, admin):
        agent.get_next_action()
    admin.send_message("hello", "worker-a")
    assert worker.report_completed("success")["instruction"] == words("next.exit.more")
    worker.read_messages()
    assert worker.logout()["message"] == words("logout.stays")
    worker.request_task("Paint")
    admin.read_messages()
    assert admin.report_completed("success")["instruction"] == words("next.exit.more")


def test_a_logout_loses_no_task_that_was_read_of(agent_team: MakeTeam) -> None:
    team = agent_team()
    worker, _ = team["worker-a"], planned(team, "Build")
    assert len(worker.get_notifications()["notifications"]) == 1
    assert worker.get_notifications()["notifications"] == []
    assert worker.logout()["message"] == words("logout.more")
    (notice,) = worker.get_notifications(mark_as_read=False)["notifications"]
    assert notice["action"] == "task_assigned"
    assert worker.get_next_action()["action"] == "work"
    assert worker.get_notifications()["notifications"] == []


def test_a_chat_session_that_logs_out_is_told_of_what_waits(agent_team: MakeTeam) -> None:
    team = agent_team()
    chat = team["worker-a"].chat
    team["admin"].send_message("hello", "worker-a")
    assert chat.logout()["message"] == words("logout.more")
    chat.read_messages()
    assert chat.logout()["message"] == words("logout.stays")


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
    agent_team: MakeTeam, last_words: str | None
) -> None:
    team = agent_team()
    one, other = team["worker-a"].chat, team["worker-b"].chat
    first, second = (one.start_conversation("worker-b", hello)["conversation_id"] for hello in ("hello", "again"))
    assert "instruction" not in other.read_messages()
    assert one.end_conversation(first, last_words)["instruction"] == words("chat.ended")
    assert one.get_next_action()["action"] == "wait"
    assert other.read_messages()["instruction"] == words("chat.ended")
    assert one.end_conversation(second, last_words)["instruction"] == words("next.chat.exit")
    assert other.read_messages()["instruction"] == words("next.chat.exit")
    assert [chat.get_next_action()["action"] for chat in (one, other)] == ["exit", "exit"]
    assert "instruction" not in team["worker-b"].read_messages(unread_only=False)


def test_a_batch_creates_assigned_tasks_that_are_held_back(agent_team: MakeTeam) -> None:
    team = agent_team()
    tasks = [
        {"title": "held", "assignee_id": "worker-a", "status": "backlog"},
        {"title": "given", "assignee_id": "worker-a"},
        {"title": "nobody's"},
    ]
    made = team["admin"].create_tasks_batch(tasks)["tasks"]
    assert [item["status"] for item in made] == ["backlog", "todo", "backlog"]
    assert [item["assignee_id"] for item in made] == ["worker-a", "worker-a", None]
    assert team["worker-a"].get_next_action()["task"]["title"] == "given"
    with pytest.raises(Refused, match="invalid_arguments"):
        team["admin"].create_tasks_batch([{"title": "x", "status": "in_progress"}])


def test_of_a_batch_too_long_for_one_answer_all_ids_are_told(agent_team: MakeTeam) -> None:
    team = agent_team()
    made = team["admin"].create_tasks_batch([{"title": f"{number} {'x' * 150}"} for number in range(90)])
    assert made["task_count"] == len({item["task_id"] for item in made["tasks"]}) == 90


def test_a_held_task_is_begun_from_a_chat_only_where_the_requester_has_really_written(agent_team: MakeTeam) -> None:
    team = agent_team()
    (task_id,) = planned(team, "held", status="backlog")
    chat = team["worker-a"].chat
    forged = team.path / "ipc" / "worker-a" / "claims.md"
    forged.write_text("---\nsender_id: admin\n---\n\nStart it")
    with pytest.raises(Refused, match=r"invalid_status_transition.*admin"):
        chat.start_task_from_chat(task_id, "admin")
    team["owner"].send_message("hello", "worker-a")
    with pytest.raises(Refused, match="invalid_status_transition"):
        chat.start_task_from_chat(task_id, "admin")
    team["admin"].send_message("hello", "worker-a")
    started = chat.start_task_from_chat(task_id, "admin")
    assert (started["previous_status"], started["new_status"]) == ("backlog", "in_progress")
