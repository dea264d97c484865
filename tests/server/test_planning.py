"""Tasks and conversations by their tools: planned, requested, handed over, reported, delegated; every error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from multi_agent_mcp import Refused, Team
from multi_agent_mcp.pytest_plugin import MakeTeam
from tests.planned import planned

OWNER = {"id": "owner", "role": "owner", "type": "human"}
MANAGED = (
    OWNER,
    {"id": "manager-dev", "role": "admin"},
    {"id": "worker-frontend-01", "role": "worker"},
    {"id": "worker-qa-01", "role": "worker", "parent": "owner"},
)


def refused(call: Callable[..., Any], /, *words: str, **arguments: Any) -> str:
    """The code with which a call is refused, in a sentence that has all these words; it changes nothing."""
    with pytest.raises(Refused) as raised:
        call(**arguments)
    assert all(word in raised.value.message for word in words), raised.value.message
    return raised.value.code


def entities(team: Team) -> dict[str, bytes]:
    """Every file of an entity, except agent sessions (which record every call) and execution logs."""
    found = {path.relative_to(team.path): path for path in sorted(team.path.rglob("*")) if path.is_file()}
    return {
        str(name): path.read_bytes()
        for name, path in found.items()
        if not any(part.startswith(".") or part in ("sessions", "logs") for part in name.parts)
    }


@pytest.fixture
def managed(agent_team: MakeTeam) -> Team:
    """A team whose messages are Japanese, beside one of another session under its root."""
    agent_team([{"id": "stranger", "role": "owner"}], session="elsewhere")
    return agent_team(MANAGED, language="ja")


def test_tasks_are_planned_requested_and_handed_over_by_their_tools(agent_team: MakeTeam) -> None:
    team = agent_team(language="ja")
    admin, worker = team["admin"], team["worker-a"]
    first = {"local_id": "api", "title": "API", "assignee_id": "worker-a"}
    second = {"local_id": "ui", "title": "UI", "assignee_id": "worker-a", "dependencies": ["api"]}
    batch = admin.create_tasks_batch(tasks=[first, second])
    api, ui = (batch["local_id_to_real_id"][name] for name in ("api", "ui"))
    assert (batch["task_count"], [item["task_id"] for item in batch["tasks"]]) == (2, [api, ui])
    before = entities(team)
    bad = [{"title": "fine"}, {"title": "bad", "dependencies": ["nowhere"]}]
    assert refused(admin.create_tasks_batch, tasks=bad) == "task_not_found"
    cycle = [{"local_id": one, "title": one, "dependencies": [other]} for one, other in ("ab", "ba")]
    assert refused(admin.create_tasks_batch, tasks=cycle) == "invalid_arguments"
    assert entities(team) == before
    move = worker.update_task_status
    assert refused(move, api, task_id=ui, status="in_progress") == "invalid_status_transition"
    sentence = (
        f"タスク '{api}' のステータスを todo から done へは変更できません。"
        "変更できるのは: in_progress, backlog, blocked, cancelled"
    )
    assert refused(move, sentence, task_id=api, status="done") == "invalid_status_transition"
    moved = move(task_id=api, status="in_progress")
    assert (moved["previous_status"], moved["new_status"]) == ("todo", "in_progress")
    assert worker.get_next_action()["task"]["task_id"] == api
    given = admin.assign_task(task_id=ui, assignee_id=None)
    assert (given["assignee_id"], given["previous_assignee_id"]) == (None, "worker-a")
    requested = worker.request_task(title="Tidy up", description="the attic", priority="low")
    assert (requested["approval_status"], requested["approvers"]) == ("pending", ["admin", "owner"])
    review = admin.get_next_action()
    assert (review["action"], review["tasks"][0]["task_id"]) == ("review", requested["task_id"])
    assert admin.approve_task_request(requested["task_id"], approve=True)["approval_status"] == "approved"
    assert refused(worker.assign_task, task_id=api, assignee_id=None) == "unauthorized"


def test_both_ways_of_reporting_tell_the_superior_once(agent_team: MakeTeam) -> None:
    team = agent_team()
    planned(team, "Build")
    worker = team["worker-a"]
    task_id = worker.get_next_action()["task"]["task_id"]
    worker.report_task_completion(task_id=task_id, status="completed", message="all of it")
    worker.report_completed(result="success", summary="all of it")
    (mail,) = team["admin"].read_messages()["messages"]
    assert (mail["message_type"], mail["content"]) == ("task_complete", "all of it")


def test_a_list_that_is_cut_still_says_how_many_there_are(agent_team: MakeTeam) -> None:
    team = agent_team()
    planned(team, *(f"{number} " + "x" * 480 for number in range(30)))
    worker = team["worker-a"]
    answer = worker.get_my_tasks(limit=25)
    assert (answer["truncated"], answer["total_count"], len(answer["tasks"]) < 25) == (True, 30, True)
    for bad in ({"limit": 0}, {"limit": 100_000}, {"status": "sleeping"}):
        assert refused(worker.get_my_tasks, **bad) == "invalid_arguments"


def test_a_pending_delegation_is_shown_to_the_admin_and_to_a_new_assignee(agent_team: MakeTeam) -> None:
    team = agent_team()
    (task_id,) = planned(team, "Talk")
    team["worker-a"].get_next_action()
    team["worker-a"].delegate_to_chat_session(target_agent_id="worker-b", purpose="six rounds")
    team["admin"].assign_task(task_id=task_id, assignee_id="worker-b")
    for agent_id in ("admin", "worker-b"):
        (waiting,) = team[agent_id].get_task_conversations(task_id=task_id)["conversations"]
        assert (waiting["conversation_id"], waiting["status"]) == (None, "pending")


def test_every_error_of_a_task_from_a_chat_is_as_documented_and_changes_nothing(managed: Team) -> None:
    (mine,) = planned(managed, "mine", assignee_id="worker-frontend-01", by="manager-dev")
    (others,) = planned(managed, "others", assignee_id="worker-qa-01", by="owner")
    hierarchy = "この操作には上位者からの依頼が必要です。依頼者: {} は上位者ではありません。"
    refusals: list[tuple[str, str, str, str]] = [
        (mine, "worker-qa-01", "unauthorized", hierarchy.format("worker-qa-01")),
        (mine, "worker-frontend-01", "unauthorized", hierarchy.format("worker-frontend-01")),
        (mine, "stranger", "agent_not_assigned_to_project", ""),
        (mine, "nobody", "agent_not_found", ""),
        ("tsk_000000000000", "nobody", "agent_not_found", ""),
        ("tsk_000000000000", "manager-dev", "task_not_found", ""),
        ("../x", "manager-dev", "invalid_id", ""),
    ]
    chat = managed["worker-frontend-01"].chat
    chat.get_unread_count()
    before = entities(managed)
    for call, extra, permission in (
        (
            chat.start_task_from_chat,
            {},
            "自分に割り当てられたタスクのみ開始できます。タスク担当者: worker-qa-01",
        ),
        (chat.update_task_from_chat, {"title": "x"}, "このタスクの修正権限がありません"),
    ):
        for task_id, requester, code, words in (*refusals, (others, "manager-dev", "unauthorized", permission)):
            assert refused(call, words, task_id=task_id, requester_id=requester, **extra) == code, (task_id, requester)
    bad: tuple[dict[str, str], ...] = (
        {},
        {"status": "sleeping"},
        {"priority": "loud"},
        {"blocked_reason": "no status"},
        {"title": " "},
    )
    asked = {"task_id": mine, "requester_id": "manager-dev"}
    for arguments in bad:
        assert refused(chat.update_task_from_chat, **asked, **arguments) == "invalid_arguments"
    assert refused(chat.update_task_from_chat, **asked, status="done") == "invalid_status_transition"
    assert entities(managed) == before


def test_only_participants_look_in_join_in_and_end_and_what_has_ended_is_over(agent_team: MakeTeam) -> None:
    team = agent_team()
    chat, looking, stranger = team["worker-a"].chat, team["worker-b"], team["worker-b"].chat
    begun = chat.start_conversation(target_agent_id="admin", initial_message="private")
    theirs = {"conversation_id": begun["conversation_id"]}
    looking.get_unread_count(), stranger.get_unread_count()
    before = entities(team)
    assert refused(looking.get_conversation_messages, **theirs) == "not_participant"
    assert refused(looking.send_message, content="me too", **theirs) == "not_participant"
    ends: list[Callable[..., Any]] = [stranger.end_conversation, stranger.notify_task_session]
    for call in ends:
        assert refused(call, **theirs) == "not_participant"
    for call in (*ends, looking.get_conversation_messages):
        assert refused(call, conversation_id="cnv_000000000000") == "conversation_not_found"
        assert refused(call, conversation_id="../../x") == "invalid_id"
    tell = chat.notify_task_session
    assert refused(tell, **theirs, message="x" * 1001) == "content_too_large"
    assert refused(tell, **theirs, priority="loud") == "invalid_arguments"
    assert refused(tell, **theirs, related_task_id="x") == "invalid_id"
    assert entities(team) == before
    chat.end_conversation(**theirs)
    assert refused(chat.send_message, content="one more", **theirs) == "conversation_not_active"
    assert refused(chat.end_conversation, **theirs) == "conversation_not_active"


def test_nobody_talks_to_themselves_to_nobody_or_to_another_team(managed: Team) -> None:
    manager = managed["manager-dev"]
    for target, code in (
        ("manager-dev", "invalid_arguments"),
        ("nobody", "agent_not_found"),
        ("stranger", "agent_not_assigned_to_project"),
        ("../x", "invalid_id"),
    ):
        assert refused(manager.delegate_to_chat_session, target_agent_id=target, purpose="p") == code
        assert refused(manager.chat.start_conversation, target_agent_id=target, initial_message="hello") == code
    assert refused(manager.get_task_conversations) == "task_not_found"
    missing = {"target_agent_id": "owner", "initial_message": "x", "delegation_id": "dlg_000000000000"}
    assert refused(manager.chat.start_conversation, **missing) == "delegation_not_found"
