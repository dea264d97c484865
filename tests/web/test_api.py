"""The JSON API of the page, over the same services as the tools: queries and changes."""

from __future__ import annotations

import re
import struct
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

import multi_agent_mcp.web
from multi_agent_mcp.domain.task import TASK_STATUSES
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.features.ours import ALL
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.web.api import endpoints_of
from tests.end_to_end.support import Team
from tests.services.support import send
from tests.services.tasks_support import running
from tests.usage.support import took
from tests.web.support import Guest, Visitor

STATIC = Path(multi_agent_mcp.web.__file__).parent / "static"


@pytest.fixture
def visitor(guest: Guest) -> Visitor:
    return guest


def column(answer: dict[str, Any], status: str) -> dict[str, Any]:
    (found,) = [item for item in answer["columns"] if item["status"] == status]
    return dict(found)


def make(visitor: Visitor, title: str = "a task", assignee_id: str | None = None, **more: Any) -> dict[str, Any]:
    return dict(visitor.act("/tasks", {"title": title, "assignee_id": assignee_id, **more})["task"])


def test_the_board_has_a_column_for_every_status(visitor: Visitor) -> None:
    answer = visitor.see("/tasks")
    assert [item["status"] for item in answer["columns"]] == list(TASK_STATUSES)


def test_a_task_made_here_is_a_task_everywhere(team: Team, visitor: Visitor) -> None:
    made = make(visitor, "書く", "worker-a", description="**bold**", priority="high")
    task = team.services.task_changes.get(made["task_id"])
    assert (task.title, task.status, task.assignee_id, task.priority) == ("書く", "todo", "worker-a", "high")
    assert task.created_by == "owner"
    assert column(visitor.see("/tasks"), "todo")["tasks"][0]["task_id"] == task.id
    assert visitor.see(f"/tasks/{task.id}")["task"]["description"]["html"] == "<p><strong>bold</strong></p>\n"


def test_a_card_says_where_it_may_go_and_why_not_elsewhere(visitor: Visitor) -> None:
    targets = make(visitor, "nobody's")["targets"]
    assert targets["todo"] is None
    assert targets["cancelled"] is None
    assert targets["in_progress"]
    assert targets["done"]
    assert set(targets) == set(TASK_STATUSES) - {"backlog"}


def test_what_a_card_says_is_what_happens(team: Team, visitor: Visitor) -> None:
    for status, why in make(visitor, "x", "worker-a")["targets"].items():
        fresh = make(visitor, f"to {status}", "worker-a")["task_id"]
        reply = visitor.post(f"/api/tasks/{fresh}/status", {"status": status})
        assert (reply.status == 200) is (why is None), status
        moved = team.services.task_changes.get(fresh).status
        assert moved == (status if why is None else "todo")


def test_blocking_interrupts_the_assignee(team: Team, visitor: Visitor) -> None:
    task_id = make(visitor, "running", "worker-a")["task_id"]
    services = team.services
    services.task_changes.start(services.agents.get("worker-a"), task_id)
    answer = visitor.act(f"/tasks/{task_id}/status", {"status": "blocked", "reason": "仕様を見直します"})
    assert answer["interrupted"] == "worker-a"
    assert answer["previous_status"] == "in_progress"
    assert answer["task"]["blocked_reason"] == "仕様を見直します"
    (notice,) = [notice for _, notice in team.services.workspace.notices("worker-a").unread()]
    assert (notice.type, notice.action, notice.task_id) == ("interrupt", "blocked", task_id)


def test_a_move_that_is_not_allowed_says_why_and_changes_nothing(team: Team, visitor: Visitor) -> None:
    task_id = make(visitor)["task_id"]
    assert visitor.refused(f"/tasks/{task_id}/status", {"status": "done"}) == (409, "invalid_status_transition")
    assert team.services.task_changes.get(task_id).status == "backlog"


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/tasks/tsk_000000000000/status", {"status": "todo"}, 404, "task_not_found"),
        ("/tasks/..%2f..%2fetc/status", {"status": "todo"}, 404, ""),
        ("/tasks/nonsense/status", {"status": "todo"}, 400, "invalid_id"),
        ("/tasks", {}, 400, "invalid_arguments"),
        ("/tasks", {"title": 3}, 400, "invalid_arguments"),
        ("/messages", {"content": ""}, 400, "invalid_arguments"),
        ("/messages", {"content": " \n", "receiver_id": "worker-a"}, 400, "invalid_arguments"),
        ("/tasks", {"title": "x", "assignee_id": "nobody"}, 404, "agent_not_found"),
        ("/tasks", {"title": "x", "assignee_id": "../admin"}, 400, "invalid_id"),
        ("/agents/nobody/interrupt", {"action": "pause"}, 404, "agent_not_found"),
        ("/agents/worker-a/interrupt", {"action": "explode"}, 400, "invalid_arguments"),
        ("/agents/nobody/resume", {}, 404, "agent_not_found"),
        ("/agents/worker-a/resume", {}, 409, "invalid_status_transition"),
        ("/agents/worker-a/release", {}, 400, "invalid_arguments"),
        ("/messages", {"content": "x", "receiver_id": "nobody"}, 404, "agent_not_found"),
        ("/messages", {"content": "x" * (1 << 20) + "x", "receiver_id": "admin"}, 413, "content_too_large"),
        ("/messages/00000000-0000-4000-8000-000000000000/read", {}, 404, "message_not_found"),
        ("/messages/00000000-0000-4000-8000-000000000000/reply", {"content": "x"}, 404, "message_not_found"),
        ("/conversations", {"target_agent_id": "admin"}, 400, "invalid_arguments"),
        ("/conversations", {"target_agent_id": "admin", "content": " "}, 400, "invalid_arguments"),
        ("/conversations", {"target_agent_id": "nobody", "content": "x"}, 404, "agent_not_found"),
        ("/conversations/cnv_000000000000/messages", {"content": "x"}, 404, "conversation_not_found"),
        ("/conversations/nonsense/end", {}, 400, "invalid_id"),
    ],
)
def test_what_is_refused_has_a_status_and_a_code(
    visitor: Visitor, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    reply = visitor.post(f"/api{path}", body)
    assert reply.status == status
    if code:
        assert reply.json["error"] == code


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused_in_words(visitor: Visitor, body: bytes) -> None:
    reply = visitor.post("/api/tasks", body)
    assert reply.status == 400
    assert reply.json["error"] == "invalid_arguments"


@pytest.mark.parametrize(
    "path",
    [
        "/tasks?limit=x",
        "/tasks?offset=-1",
        "/tasks?limit=%C2%B2",
        "/tasks?status=lost",
        "/messages?box=spam",
        "/messages?between=admin",
        "/messages?before=nothing",
        "/timeline?from=yesterday",
        "/tasks?limit=" + "9" * 5000,
    ],
)
def test_a_query_that_means_nothing_is_refused_in_words(visitor: Visitor, path: str) -> None:
    reply = visitor.get(f"/api{path}")
    assert reply.status in (400, 404)
    assert reply.json["success"] is False


def test_a_request_waits_on_the_board_until_it_is_approved(team: Team, visitor: Visitor) -> None:
    services = team.services
    worker = services.agents.get("worker-a")
    task, _ = services.task_creation.request(worker, NewTask(title="let me"))
    assert [item["id"] for item in visitor.see("/attention")["items"] if item["kind"] == "request"] == [task.id]
    answer = visitor.act(f"/tasks/{task.id}/decision", {"approve": True})
    assert answer["task"]["approval_status"] == "approved"
    assert "request" not in [item["kind"] for item in visitor.see("/attention")["items"]]
    assert [message.message_type for message in team.mailbox("worker-a")] == ["task_approved"]


def test_a_rejection_reaches_the_requester_with_its_reason(team: Team, visitor: Visitor) -> None:
    services = team.services
    task, _ = services.task_creation.request(services.agents.get("worker-a"), NewTask(title="let me"))
    visitor.act(f"/tasks/{task.id}/decision", {"approve": False, "reason": "not now"})
    assert team.mailbox("worker-a")[0].content == "not now"


def test_a_task_is_handed_to_another_agent(team: Team, visitor: Visitor) -> None:
    task_id = make(visitor, "x", "worker-a")["task_id"]
    assert visitor.act(f"/tasks/{task_id}/assignee", {"assignee_id": "worker-b"})["previous_assignee_id"] == "worker-a"
    assert team.services.task_changes.get(task_id).assignee_id == "worker-b"
    visitor.act(f"/tasks/{task_id}/assignee", {"assignee_id": None})
    assert team.services.task_changes.get(task_id).assignee_id is None


def test_columns_come_in_pages(visitor: Visitor, team: Team) -> None:
    services = team.services
    owner = services.agents.owner()
    services.task_creation.create(owner, [NewTask(title=f"task {number}") for number in range(7)])
    first = column(visitor.see("/tasks?status=backlog&limit=5"), "backlog")
    rest = column(visitor.see("/tasks?status=backlog&limit=5&offset=5"), "backlog")
    assert first["total"] == rest["total"] == 7
    assert [task["title"] for task in first["tasks"] + rest["tasks"]] == [f"task {number}" for number in range(7)]


def test_finished_tasks_come_in_pages_too(visitor: Visitor, team: Team) -> None:
    services = team.services
    owner = services.agents.owner()
    tasks = services.task_creation.create(owner, [NewTask(title=f"task {number}") for number in range(7)])
    for task in tasks:
        services.task_changes.set_status(owner, task.id, "cancelled")
    pages = [column(visitor.see(f"/tasks?status=cancelled&limit=3&offset={at}"), "cancelled") for at in (0, 3, 6)]
    assert [len(page["tasks"]) for page in pages] == [3, 3, 1]
    assert {task["task_id"] for page in pages for task in page["tasks"]} == {task.id for task in tasks}


def test_the_team_is_a_tree(visitor: Visitor) -> None:
    agents = visitor.see("/agents")["agents"]
    tree = [(agent["id"], agent["depth"]) for agent in agents]
    assert tree == [("owner", 0), ("admin", 1), ("worker-a", 2), ("worker-b", 2)]
    assert not any(agent["alive"] for agent in agents)


def test_an_agents_unread_notifications_are_shown_with_how_far_they_got(team: Team, visitor: Visitor) -> None:
    services = team.services
    for action in ("pause", "blocked"):
        services.interrupting.interrupt(services.agents.owner(), "worker-a", action, None, None)
    (shown,) = [agent["notifications"] for agent in visitor.see("/agents")["agents"] if agent["notifications"]]
    assert [(notice["action"], notice["sender_id"]) for notice in shown] == [("blocked", "owner"), ("pause", "owner")]
    assert {(notice["state"], notice["reason"]) for notice in shown} == {("stored", "no_pane")}
    services.notifications.read("worker-a", "task")
    assert not any(agent["notifications"] for agent in visitor.see("/agents")["agents"])


def test_an_agent_that_is_stuck_is_shown_with_what_was_seen(team: Team, visitor: Visitor) -> None:
    services = team.services
    services.workspace.registry.update("worker-a", pane_id="%7", socket_path="/nowhere/s")
    seen = {"host": "claude", "state": "login", "served": False, "since": "2026-01-01T00:00:00.000000Z"}
    now = format_time(services.clock())
    services.workspace.pane_looks.write({"at": now, "panes": {"worker-a": seen}})
    stuck = {agent["id"]: agent["stuck"] for agent in visitor.see("/agents")["agents"]}
    assert [agent_id for agent_id, found in stuck.items() if found] == ["worker-a"]
    assert stuck["worker-a"] == {
        "cause": "login", "since": seen["since"],
        "what": "ホスト claude がログインを待っています（画面: ログイン待ち）",
    }  # fmt: skip


@pytest.mark.anyio
async def test_a_living_agent_is_alive_with_its_session(team: Team, visitor: Visitor) -> None:
    async with team.server("worker-a", "--purpose", "chat"):
        seen = await anyio.to_thread.run_sync(visitor.see, "/agents")
    (worker,) = [agent for agent in seen["agents"] if agent["id"] == "worker-a"]
    assert worker["alive"] is True
    assert [session["purpose"] for session in worker["sessions"]] == ["chat"]


def test_the_owners_wait_is_shown_and_released(team: Team, visitor: Visitor) -> None:
    services = team.services
    services.task_creation.send(services.agents.owner(), "admin", "wait for me", "please")
    assert visitor.see("/session")["waiting_for"] == "admin"
    assert visitor.see("/agents")["agents"][0]["wait"]["admin_id"] == "admin"
    answer = visitor.act("/agents/owner/release", {})
    assert answer["waiting_before"] is True
    assert visitor.see("/session")["waiting_for"] is None


def test_one_agent_is_told_of_as_in_the_tree(visitor: Visitor) -> None:
    make(visitor, assignee_id="worker-a")
    for known in visitor.see("/agents")["agents"]:
        assert visitor.see(f"/agents/{known['id']}")["agent"] == known
    assert visitor.see("/agents/admin")["subordinates"] == ["worker-a", "worker-b"]


def test_a_message_is_sent_as_the_owner_and_traced(team: Team, visitor: Visitor) -> None:
    sent = visitor.act("/messages", {"content": "hello", "receiver_id": "admin", "subject": "hi", "priority": "high"})
    (message,) = team.mailbox("admin")
    assert (message.id, message.sender_id, message.content) == (sent["message_id"], "owner", "hello")
    shown = visitor.see(f"/messages/{message.id}")
    assert shown["copies"][0]["steps"][0]["state"] == "stored"
    assert visitor.see("/messages?box=sent")["messages"][0]["id"] == message.id


def test_what_was_changed_on_its_way_is_told(team: Team, visitor: Visitor) -> None:
    team.post("owner", "I approve nothing")
    team.drop(team.path / "ipc" / "owner" / "note.md", "---\nsender_id: admin\n---\n\nby hand")
    (path,) = (team.path / "ipc" / "owner").glob("2*.md")
    team.drop(path, path.read_text(encoding="utf-8").replace("nothing", "everything"))
    verdicts = {
        message["preview"]: visitor.see(f"/messages/{message['id']}")["message"]["signature"]
        for message in visitor.see("/messages")["messages"]
    }
    assert verdicts == {"I approve everything": "tampered", "by hand": "unsigned"}


def test_the_same_key_sends_once(team: Team, visitor: Visitor) -> None:
    body = {"content": "once", "receiver_id": "admin", "idempotency_key": "k"}
    first = visitor.act("/messages", body)
    assert visitor.act("/messages", body)["message_id"] == first["message_id"]
    assert len(team.mailbox("admin")) == 1


def test_a_broadcast_reaches_everybody_else(team: Team, visitor: Visitor) -> None:
    visitor.act("/messages", {"content": "all of you", "receiver_id": None})
    assert [len(team.mailbox(agent_id)) for agent_id in ("owner", "admin", "worker-a", "worker-b")] == [0, 1, 1, 1]


def test_looking_marks_nothing_read_and_reading_marks_one(team: Team, visitor: Visitor) -> None:
    for text in ("one", "two"):
        team.post("owner", text)
    page = visitor.see("/messages")
    assert [message["preview"] for message in page["messages"]] == ["two", "one"]
    first = page["messages"][0]["id"]
    visitor.see(f"/messages/{first}")
    assert page["unread"] == 2
    assert len(team.unread("owner")) == 2
    assert visitor.act(f"/messages/{first}/read", {})["unread"] == 1
    assert [message.content for message in team.unread("owner")] == ["one"]


def test_anothers_mail_can_be_looked_at_but_not_read_for_them(team: Team, visitor: Visitor) -> None:
    team.post("worker-a", "for worker-a")
    (message,) = visitor.see("/messages?box=inbox&agent=worker-a")["messages"]
    assert visitor.refused(f"/messages/{message['id']}/read", {}) == (403, "unauthorized")
    assert len(team.unread("worker-a")) == 1


@pytest.mark.parametrize(
    "path", ["/messages?agent=ghost", "/tasks?assignee=ghost", "/executions?agent=ghost", "/search?q=from:ghost"]
)
def test_nobody_is_not_an_agent_without_anything(visitor: Visitor, path: str) -> None:
    reply = visitor.get(f"/api{path}")
    assert (reply.status, reply.json["error"]) == (404, "agent_not_found")


def test_reading_the_awaited_answer_ends_the_wait(team: Team, visitor: Visitor) -> None:
    services = team.services
    services.task_creation.send(services.agents.owner(), "admin", "wait for me", "please")
    team.post("owner", "done")
    (message,) = visitor.see("/messages")["messages"]
    visitor.act(f"/messages/{message['id']}/read", {})
    assert visitor.see("/session")["waiting_for"] is None


def test_mail_comes_in_pages(team: Team, visitor: Visitor) -> None:
    for number in range(7):
        team.post("owner", str(number))
    first = visitor.see("/messages?limit=5")
    rest = visitor.see(f"/messages?limit=5&before={first['messages'][-1]['id']}")
    assert (first["more"], rest["more"]) == (True, False)
    assert [message["preview"] for message in first["messages"] + rest["messages"]] == list("6543210")


def test_a_conversation_is_shown_with_what_it_belongs_to(team: Team, visitor: Visitor) -> None:
    services = team.services
    one, other = services.agents.get("worker-a"), services.agents.get("worker-b")
    task_id = make(visitor, "talk", "worker-a")["task_id"]
    conversation, _ = services.conversations.begin(one, other, "しりとり", purpose="play", task_id=task_id)
    services.conversations.say(other, conversation.id, Draft(content="りんご"))
    assert [item["purpose"] for item in visitor.see("/conversations")["conversations"]] == ["play"]
    shown = visitor.see(f"/conversations/{conversation.id}")
    assert [message["content"]["html"] for message in shown["messages"]] == ["<p>しりとり</p>\n", "<p>りんご</p>\n"]
    assert shown["task"]["task_id"] == task_id


def test_the_owner_takes_part_in_their_own_conversations_only(team: Team, visitor: Visitor) -> None:
    services = team.services
    admin, one, other = (services.agents.get(name) for name in ("admin", "worker-a", "worker-b"))
    talk, asked = services.conversations.begin(admin, services.agents.owner(), "Which database?")
    assert visitor.see(f"/conversations/{talk.id}")["unread"] == [asked.message_id]
    assert visitor.see(f"/messages/{asked.message_id}")["conversation"]["status"] == "pending"
    reply = {"content": "Postgres.", "idempotency_key": "k"}
    answered = visitor.act(f"/messages/{asked.message_id}/reply", reply)
    assert answered["conversation_id"] == talk.id
    assert visitor.act(f"/messages/{asked.message_id}/reply", reply)["message_id"] == answered["message_id"]
    visitor.act(f"/conversations/{talk.id}/messages", {"content": "17, please."})
    visitor.act(f"/messages/{asked.message_id}/read", {})
    shown = visitor.see(f"/conversations/{talk.id}")
    assert (shown["conversation"]["status"], shown["total"], shown["unread"]) == ("active", 3, [])
    assert visitor.act(f"/conversations/{talk.id}/end", {})["conversation"]["ended_by"] == "owner"
    late = {"content": "One more thing."}
    assert visitor.refused(f"/conversations/{talk.id}/messages", late) == (409, "conversation_not_active")

    theirs, said = services.conversations.begin(one, other, "りんご")
    assert visitor.see(f"/conversations/{theirs.id}")["unread"] == []
    assert visitor.refused(f"/conversations/{theirs.id}/messages", late) == (403, "not_participant")
    assert visitor.refused(f"/conversations/{theirs.id}/end", {}) == (403, "not_participant")
    assert visitor.refused(f"/messages/{said.message_id}/reply", late) == (403, "unauthorized")


def test_a_copy_that_was_put_into_a_conversation_by_hand_marks_no_mail_read(team: Team, visitor: Visitor) -> None:
    services = team.services
    talk, _ = services.conversations.begin(services.agents.owner(), services.agents.get("admin"), "hello")
    team.post("owner", "urgent")
    (message,) = visitor.see("/messages")["messages"]
    header = f"id: {message['id']}\nsender_id: admin\nreceiver_id: owner\nmetadata: {{conversation_id: {talk.id}}}"
    team.drop(team.path / "conversations" / talk.id / "20300101_000000_00000000.md", f"---\n{header}\n---\n\nnothing")
    shown = visitor.see(f"/conversations/{talk.id}")
    assert (shown["total"], shown["unread"]) == (2, [])


def test_a_long_conversation_comes_as_far_as_a_page_can_draw_it_and_the_rest_on_demand(
    team: Team, visitor: Visitor
) -> None:
    services = team.services
    one, other = services.agents.get("worker-a"), services.agents.get("worker-b")
    conversation, _ = services.conversations.begin(one, other, "first")
    for _ in range(30):
        services.conversations.say(other, conversation.id, Draft(content="- word\n" * 2_800))
    services.conversations.say(one, conversation.id, Draft(content="*last*"))
    reply = visitor.get(f"/api/conversations/{conversation.id}?limit=200")
    messages = reply.json["messages"]
    assert len(reply.text) < 500_000
    assert len(messages) == 32
    assert messages[-1]["content"]["html"] == "<p><em>last</em></p>\n"
    whole = [message["content"] is not None for message in messages]
    assert whole == sorted(whole), "the newest have their words"
    assert messages[0]["preview"] == "first"
    path = f"/conversations/{conversation.id}/messages"
    assert visitor.see(f"{path}/{messages[0]['id']}")["message"]["content"]["html"] == "<p>first</p>\n"
    assert visitor.get(f"/api{path}/nobody").status == 404


def test_a_log_is_followed_from_where_one_was(team: Team, visitor: Visitor) -> None:
    services = team.services
    task_id = make(visitor, "run", "worker-a")["task_id"]
    session = services.sessions.open("worker-a", "task")
    execution = services.executions.begin(session.record, task_id)
    for number in range(3):
        services.executions.log(execution, f"line {number}")
    (row,) = visitor.see("/executions")["executions"]
    assert (row["execution_id"], row["status"]) == (execution.id, "running")
    assert row["task_title"] == services.task_changes.get(task_id).title
    log = visitor.see(f"/executions/{execution.id}/log")
    services.executions.log(execution, "one more")
    more = visitor.see(f"/executions/{execution.id}/log?offset={log['next_offset']}")
    assert [line.partition("] ")[2] for line in more["lines"]] == ["one more"]
    session.end()


def test_health_is_what_doctor_finds(team: Team, visitor: Visitor) -> None:
    team.drop(team.path / "ipc" / "owner" / "20261121_000000_00000000.md", "---\nid: [\n---\n\nx")
    team.services.workspace.mailbox("owner").unread(fresh=True)
    found = visitor.see("/health?wait=10")
    told = team.run("doctor", "--json").json
    assert found["problems"] == told["problems"] >= 1
    assert any("quarantine" in item["subject"] for item in found["findings"])


def test_health_answers_with_what_is_known_while_an_examination_takes_long(team: Team, visitor: Visitor) -> None:
    before = visitor.see("/health?wait=10")
    assert "examining" not in before
    with team.services.workspace.locks.lock("registry"):  # doctor looks twice whether a lock is held
        answer = visitor.see("/health?again=1")
        assert answer["examining"]["count"] < answer["examining"]["total"]
        assert answer["findings"] == before["findings"]
        assert answer["examined_at"] == before["examined_at"]
        answer = visitor.see("/health?wait=10")
    assert "examining" not in answer
    assert [found["subject"] for found in answer["findings"] if found["check"] == "locks"] == ["registry"]


def test_the_timeline_is_a_picture_of_its_own(team: Team, visitor: Visitor) -> None:
    team.post("owner", "hello")
    shown = visitor.see("/timeline?width=900&zone=Asia/Tokyo&theme=dark")
    assert shown["svg"].startswith("<svg ")
    assert 0 < shown["plot"]["left"] < shown["plot"]["right"] < 900
    saved = visitor.get("/timeline.svg")
    assert saved.headers["content-type"].startswith("image/svg+xml")
    assert saved.headers["content-disposition"] == 'attachment; filename="demo-timeline.svg"'


def test_the_console_speaks_the_sessions_language(team: Team, visitor: Visitor) -> None:
    assert visitor.facts()["texts"]["page.board"] == "ボード"
    assert '<html lang="ja">' in visitor.get("/").text


def test_a_parent_counts_its_finished_subtasks_too(team: Team, visitor: Visitor) -> None:
    parent = make(visitor, "parent", "worker-a")["task_id"]
    children = [make(visitor, f"part {number}", "worker-b", parent_task_id=parent)["task_id"] for number in range(3)]
    services = team.services
    worker = services.agents.get("worker-b")
    services.task_changes.start(worker, children[0])
    services.task_changes.set_status(worker, children[0], "done")
    (card,) = [card for card in column(visitor.see("/tasks"), "todo")["tasks"] if card["task_id"] == parent]
    assert card["subtasks"] == {"total": 3, "done": 1}
    whole = visitor.see(f"/tasks/{parent}")["task"]
    assert whole["subtasks"] == {"total": 3, "done": 1}
    assert {card["task_id"] for card in whole["subtask_cards"]} == set(children)
    assert visitor.see(f"/tasks/{children[0]}")["task"]["parent_title"] == whole["title"]


def test_the_figures_are_those_of_the_days_that_are_asked_for_where_the_reader_lives(visitor: Visitor) -> None:
    task_id = make(visitor, "x", "worker-a")["task_id"]
    for status in ("in_progress", "done"):
        visitor.act(f"/tasks/{task_id}/status", {"status": status})
    found = visitor.see("/stats?days=3&zone=Pacific/Kiritimati")  # fourteen hours ahead: whole hours like UTC
    assert [sum(day["done"].values()) for day in found["days"]] == [0, 0, 1]
    assert found["start"].endswith("T10:00:00.000000Z")
    assert [(day["day"], day["tokens"]) for day in found["usage"]["days"]] == [
        (day["day"], {}) for day in found["days"]
    ]
    assert (found["usage"]["rows"], found["usage"]["currency"], found["usage"]["budgets"]) == ([], None, [])
    assert {day["cost"] for day in found["usage"]["days"]} == {None}
    assert visitor.see(f"/tasks/{task_id}")["task"]["usage"] == []
    assert len(visitor.see("/stats?days=99999")["days"]) == 366
    assert [len(visitor.see(f"/stats?days={days}")["days"]) for days in ("0", "")] == [1, 7]


def test_what_waits_is_listed_with_what_helps_and_a_question_that_is_gone_is_not_answered(visitor: Visitor) -> None:
    task_id = make(visitor, "x", "worker-a")["task_id"]
    visitor.act(f"/tasks/{task_id}/status", {"status": "blocked", "reason": "why not"})
    (item,) = visitor.see("/attention")["items"]
    assert (item["kind"], item["id"], item["agent_id"], item["dialog"]) == ("blocked", task_id, "worker-a", None)
    assert item["command"] == f"multi-agent-mcp task show {task_id}"
    given = {"dialog_id": "0123456789ab", "choice": "1"}
    assert visitor.refused("/agents/worker-a/answer", given)[1] == "not_answered"


def test_the_console_says_what_it_is_as_an_application_to_whoever_came_in(visitor: Visitor) -> None:
    reply = visitor.get("/manifest.webmanifest")
    assert (reply.json["short_name"], reply.json["start_url"], reply.json["display"]) == ("demo", "/", "standalone")
    assert reply.headers["content-type"].startswith("application/manifest+json")
    first, *drawn = reply.json["icons"]
    assert first["src"] == "/static/icon.svg"
    assert [(icon["sizes"], icon["purpose"]) for icon in drawn] == [
        *(("192x192", "any"), ("512x512", "any"), ("192x192", "maskable"), ("512x512", "maskable")),
    ]
    for icon in drawn:
        picture = visitor.get(icon["src"])
        assert (picture.status, picture.headers["content-type"]) == (200, "image/png")
        width, height = struct.unpack(">II", (STATIC / Path(icon["src"]).name).read_bytes()[16:24])
        assert f"{width}x{height}" == icon["sizes"]
    visitor.cookies.clear()
    assert visitor.get("/manifest.webmanifest").status == 401


def test_where_there_is_one_machine_nothing_of_machines_is_to_be_seen(team: Team, guest: Guest) -> None:
    assert guest.get("/machines").status == 404
    assert "machines" not in re.findall(r'href="/(\w+)"', guest.get("/agents").text)
    assert "homes" not in guest.facts() | guest.see("/session")
    assert guest.get("/api/machines").json["error"] == "invalid_arguments"
    assert {"elsewhere", "away"} & guest.see("/agents")["agents"][-1].keys() == set()
    told = team.services.timeline.of().as_answer()
    assert all("machine" not in lane for lane in told["lanes"])


def test_files_that_several_agents_edit_show_on_cards_and_pages(visitor: Visitor, team: Team) -> None:
    for agent_id in ("worker-a", "worker-b"):
        task = make(visitor, agent_id, agent_id)
        visitor.act(f"/tasks/{task['task_id']}/status", {"status": "in_progress"})
    services = team.services
    for agent_id in ("worker-a", "worker-b"):
        services.edits.note(agent_id, ["/nowhere/src/app.py"], "/nowhere")
        services.edits.tell(agent_id, ["/nowhere/src/app.py"], "/nowhere")
    services.reservations.reserve(services.agents.get("worker-a"), ["src/"], minutes=5)
    cards = column(visitor.see("/tasks"), "in_progress")["tasks"]
    assert [card["shared_files"] for card in cards] == [["src/app.py"], ["src/app.py"]]
    files = visitor.see("/agents/worker-a/files")
    assert [(edit["path"], edit["others"]) for edit in files["edits"]] == [("src/app.py", ["worker-b"])]
    assert [one["patterns"] for one in files["reservations"]] == [["src/"]]
    assert files["workspace"] is None


def test_pages_of_a_session_that_was_removed_say_so_and_are_there_again_with_it(team: Team, guest: Guest) -> None:
    away = team.path.with_name("away")
    team.path.rename(away)
    for path in ("/", "/agents", "/api/agents"):
        answer = guest.get(path)
        assert answer.status == 507, path
        assert str(team.path) in answer.text, path
    assert not team.path.exists()
    away.rename(team.path)
    assert guest.get("/").status == 200


def test_what_is_not_there_is_answered_in_words_below_the_api_as_json_and_elsewhere_as_a_page_with_the_way_back(
    guest: Guest,
) -> None:
    for path, reply, status in (
        ("/api/nothing", guest.get("/api/nothing"), 404),
        ("/api/tasks/x/status", guest.get("/api/tasks/x/status"), 405),
        ("/api/stats", guest.post("/api/stats", {}), 405),
    ):
        assert reply.status == status
        assert (reply.json["success"], reply.json["error"]) == (False, "invalid_arguments")
        assert path in reply.json["message"]
    for path in ("/nothing", "/agents/nobody", "/<script>"):
        lost = guest.get(path)
        assert lost.status == 404
        assert '<a href="/">' in lost.text
        assert "<script>" not in lost.text


def test_prices_that_are_no_numbers_leave_the_statistics_without_costs(team: Team, guest: Guest) -> None:
    took(team.services, "worker-a", 1_000_000)
    for price in (".inf", "-.inf", ".nan", "1e308"):
        (team.root / "prices.yaml").write_text(f"currency: EUR\nper_million:\n  m-1: {{input: {price}}}\n")
        usage = guest.see("/stats")["usage"]
        assert [row.get("cost") for row in usage["rows"]] == [None]
        assert usage["days"][-1]["cost"] is None


DATE = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+Z")


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
@pytest.mark.parametrize("date", [b"9999-12-31T23:59:59.999999Z", b"0001-01-01T00:00:00.000000Z"])
def test_dates_at_the_ends_of_the_calendar_break_no_endpoint(
    team: Team, monkeypatch: pytest.MonkeyPatch, zone: str, date: bytes
) -> None:
    services = team.services
    owner, admin = services.agents.get("owner"), services.agents.get("admin")
    task = running(services)
    message_id = send(services, "admin", "owner").message_id
    services.questions.ask(admin, Asking(question="Which colour?", to_id="owner"), None)
    talk, _ = services.human_conversations.start(owner, "admin", "hello")
    execution = services.executions.begin(services.sessions.open("worker-a", "task").record, task.id)
    services.interrupting.interrupt(owner, "worker-a", "pause", None, None)
    for path in services.workspace.path.rglob("*.md"):
        path.write_bytes(DATE.sub(date, path.read_bytes()))
    ids = {"task_id": task.id, "agent_id": "worker-a", "message_id": message_id}
    ids |= {"conversation_id": talk.id, "execution_id": execution.id}
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        guest = Guest(team)
        for place in [place for method, place, _ in endpoints_of(ALL) if method == "GET"]:
            assert guest.get(f"/api{place.format(**ids)}").status < 500, place
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_timeline_says_times_by_this_machine_s_clock(
    team: Team, guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.post("owner", "hello")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        shown = guest.get("/timeline.svg").text
    finally:
        monkeypatch.undo()
        time.tzset()
    assert " JST" in shown
    assert "UTC" not in shown


def test_what_waits_is_sent_once_and_questions_by_their_deadlines(team: Team, visitor: Visitor) -> None:
    services, owner = team.services, team.services.agents.owner()
    for minutes in (None, 50, 20):
        asking = Asking(question=f"{minutes}? {'why ' * 300}", to_id=owner.id, minutes=minutes)
        services.questions.ask(services.agents.get("admin"), asking, None)
    found = visitor.see("/attention")
    asked = [item["question"]["question"].split("?")[0] for item in found["items"] if item["kind"] == "question"]
    assert asked == ["20", "50", "None"]
    assert [state["name"] for state in found["states"]] == ["asking"]
    again = visitor.see(f"/attention?seen={found['state']}")
    assert again.keys() <= {"success", "state"}
    assert again["state"] == found["state"]


@pytest.mark.parametrize(("path", "encoding"), [("/static/console.css", "gzip"), ("/", None), ("/timeline", None)])
def test_what_has_no_secret_in_it_is_compressed(visitor: Visitor, path: str, encoding: str | None) -> None:
    reply = visitor.get(path, **{"Accept-Encoding": "gzip"})
    assert (reply.status, reply.headers.get("content-encoding")) == (200, encoding)
