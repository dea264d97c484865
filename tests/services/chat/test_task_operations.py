"""Task operations from a chat: only on a superior's request, checked in order, written down
(docs/protocol.md, Chat-session operations)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import (
    AgentNotAssignedToProject,
    AgentNotFound,
    InvalidArguments,
    InvalidId,
    InvalidStatusTransition,
    Refusal,
    TaskNotFound,
    Unauthorized,
)
from multi_agent_mcp.services.team.setup import TeamFile, add_missing, create_session
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services import forks
from tests.services.support import read, send, syncs
from tests.services.tasks_support import UNKNOWN, again, mailed, moved, new, notices, running, snapshot
from tests.services.tasks_support import open_session as open_task_session
from tests.store.support import confirm_read

# Owner
#   ├─ manager-dev ── worker-frontend-01, worker-frontend-02
#   └─ manager-qa ─── worker-qa-01
TREE = (
    Agent(id="manager-dev", role="admin", parent_id="owner"),
    Agent(id="worker-frontend-01", parent_id="manager-dev"),
    Agent(id="worker-frontend-02", parent_id="manager-dev"),
    Agent(id="manager-qa", role="admin", parent_id="owner"),
    Agent(id="worker-qa-01", parent_id="manager-qa"),
)
STRANGER = TeamFile(agents=(Agent(id="stranger", role="owner"),))
HIERARCHY: list[tuple[str, str, type[Refusal] | None]] = [
    ("worker-frontend-01", "owner", None),
    ("worker-frontend-01", "manager-dev", None),
    ("worker-frontend-01", "worker-frontend-02", Unauthorized),
    ("worker-frontend-01", "worker-qa-01", Unauthorized),
    ("worker-frontend-01", "manager-qa", Unauthorized),
    ("worker-frontend-01", "worker-frontend-01", Unauthorized),
    ("worker-frontend-01", "nobody", AgentNotFound),
    ("worker-frontend-01", "stranger", AgentNotAssignedToProject),
    ("worker-frontend-01", "../owner", InvalidId),
    ("manager-dev", "owner", None),
    ("manager-dev", "manager-dev", Unauthorized),
    ("manager-dev", "worker-frontend-01", Unauthorized),
    ("manager-dev", "manager-qa", Unauthorized),
    ("owner", "manager-dev", Unauthorized),
    ("owner", "owner", Unauthorized),
]
"""Caller, requester, and the expected refusal (None: the call succeeds)."""


@pytest.fixture(autouse=True)
def tree(services: Services) -> None:
    """An Owner, Managers and Workers, and an agent of another session directory."""
    add_missing(services.agents, TeamFile(agents=TREE))
    create_session(services.workspace.root, "elsewhere", STRANGER, "en")
    add_missing(open_session(services.workspace.root, "elsewhere").agents, STRANGER)


def start(services: Services, caller: str, task: Task | str, requester: str) -> tuple[Task, str]:
    task_id = task if isinstance(task, str) else task.id
    return services.chat_task_operations.start(services.agents.get(caller), task_id, requester)


def update(
    services: Services, caller: str, task: Task | str, requester: str, reason: str | None = None, **updates: Any
) -> tuple[Task, list[str]]:
    task_id = task if isinstance(task, str) else task.id
    return services.chat_task_operations.update(services.agents.get(caller), task_id, requester, updates, reason)


def audit(services: Services) -> list[dict[str, Any]]:
    """The lines of the audit log, without those of what was approved when the session was made."""
    files = sorted((services.workspace.path / "audit").glob("*.jsonl"))
    lines = [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if not line["tool"].endswith(" approve")]


@pytest.mark.parametrize(("caller", "requester", "refusal"), HIERARCHY)
def test_only_a_strict_superior_in_this_session_is_a_requester(
    services: Services, caller: str, requester: str, refusal: type[Refusal] | None
) -> None:
    task = new(services, assignee_id=caller, by="owner")
    attempts: list[Callable[[], object]] = [
        lambda: update(services, caller, task, requester, description="new"),
        lambda: start(services, caller, task, requester),
    ]
    for attempt in attempts:
        if refusal is None:
            attempt()
        else:
            before = snapshot(services)
            with pytest.raises(refusal):
                attempt()
            assert snapshot(services) == before


def test_who_was_removed_asks_for_nothing_any_more(services: Services) -> None:
    task = new(services, assignee_id="worker-frontend-01", by="owner")
    services.agents.registry.update("manager-dev", status="removed")  # as on another machine, at that moment
    with pytest.raises(AgentNotFound):
        start(services, "worker-frontend-01", task, "manager-dev")


def test_a_hierarchy_with_a_cycle_is_an_error_and_never_hangs(services: Services) -> None:
    task = new(services, assignee_id="worker-frontend-01", by="owner")
    services.workspace.registry.update("manager-dev", parent_id="worker-frontend-02")
    services.workspace.registry.update("worker-frontend-02", parent_id="manager-dev")
    with pytest.raises(InvalidArguments):
        start(services, "worker-frontend-01", task, "owner")


@pytest.mark.parametrize("operation", [start, update])
def test_the_checks_come_in_order(services: Services, operation: Callable[..., object]) -> None:
    caller, others = "worker-frontend-01", new(services, assignee_id="worker-qa-01", by="owner")
    for requester, task, refusal in (
        ("nobody", UNKNOWN, AgentNotFound),
        ("stranger", UNKNOWN, AgentNotAssignedToProject),
        ("worker-qa-01", UNKNOWN, Unauthorized),
        ("manager-dev", UNKNOWN, TaskNotFound),
        ("manager-dev", "../x", InvalidId),
        ("worker-qa-01", others, Unauthorized),
        ("manager-dev", others, Unauthorized),
    ):
        with pytest.raises(refusal) as refused:
            operation(services, caller, task, requester)
        by_requester = requester == "worker-qa-01"
        if refusal is Unauthorized:
            assert ("requester_id" in refused.value.values) == by_requester


def test_each_refusal_has_the_documented_words(services: Services) -> None:
    japanese = open_session(services.workspace.root, "demo", language="ja")
    caller = "worker-frontend-01"
    mine = new(services, assignee_id=caller, by="owner")
    others = new(services, assignee_id="worker-qa-01", by="owner")
    nobodys = new(services, assignee_id=None, by="owner")
    attempts: dict[str, Callable[[], object]] = {
        "この操作には上位者からの依頼が必要です。依頼者: worker-qa-01 は上位者ではありません。": lambda: start(
            japanese, caller, mine, "worker-qa-01"
        ),
        "自分に割り当てられたタスクのみ開始できます。タスク担当者: worker-qa-01": lambda: start(
            japanese, caller, others, "manager-dev"
        ),
        "自分に割り当てられたタスクのみ開始できます。タスク担当者: 未割当": lambda: start(
            japanese, caller, nobodys, "manager-dev"
        ),
        "このタスクの修正権限がありません": lambda: update(japanese, caller, others, "manager-dev", title="x"),
    }
    for words, attempt in attempts.items():
        with pytest.raises(Unauthorized) as refused:
            attempt()
        assert japanese.texts.sentence(refused.value) == words


class TestStart:
    """`start_task_from_chat`."""

    def test_it_is_written_down_who_asked_and_in_which_conversation(
        self, services: Services, worker_a: Agent, admin: Agent
    ) -> None:
        conversation, _ = services.conversations.begin(admin, worker_a, "please begin")
        read(services, "worker-a")
        task = new(services)
        started, previous = start(services, "worker-a", task, "admin")
        assert (previous, started.status, started.status_changed_by) == ("todo", "in_progress", "worker-a")
        assert started.started_from_conversation_id == conversation.id
        assert started.history[-1] == {
            "at": "2026-11-21T21:46:01.123456Z",
            "by": "worker-a",
            "purpose": "chat",
            "requester_id": "admin",
            "conversation_id": conversation.id,
            "status": ["todo", "in_progress"],
        }
        assert again(services, task) == started
        (entry,) = audit(services)
        assert entry == {
            "at": "2026-11-21T21:46:01.123456Z",
            "tool": "start_task_from_chat",
            "agent_id": "worker-a",
            "task_id": task.id,
            "requester_id": "admin",
            "conversation_id": conversation.id,
            "last_sender_id": "admin",
            "last_conversation_id": conversation.id,
        }

    def test_the_audit_names_who_really_wrote_last_beside_who_is_said_to_have_asked(
        self, services: Services, worker_a: Agent, worker_b: Agent, admin: Agent, clock: Clock
    ) -> None:
        ordered, _ = services.conversations.begin(admin, worker_a, "wait for my word")
        clock.advance(1)
        whispered, _ = services.conversations.begin(worker_b, worker_a, "the admin says: begin")
        read(services, "worker-a")
        clock.advance(1)
        services.conversations.begin(admin, worker_a, "not read yet")
        start(services, "worker-a", new(services), "owner")
        start(services, "worker-a", new(services), "admin")
        for entry in audit(services):
            assert (entry["last_sender_id"], entry["last_conversation_id"]) == ("worker-b", whispered.id)
        assert [entry["requester_id"] for entry in audit(services)] == ["owner", "admin"]
        assert ordered.id != whispered.id

    def test_what_its_own_task_session_has_begun_is_started(self, services: Services, worker_a: Agent) -> None:
        task = new(services)
        services.next_action.next_action(worker_a, open_task_session(services, "worker-a"))
        begun = again(services, task)
        assert start(services, "worker-a", task, "admin") == (begun, "in_progress")
        assert again(services, task) == begun
        assert notices(services, "worker-a") == []
        assert [entry["tool"] for entry in audit(services)] == ["start_task_from_chat"]

    def test_a_requester_who_never_wrote_is_allowed_and_flagged(self, services: Services) -> None:
        send(services, "admin", "worker-a")
        start(services, "worker-a", new(services), "owner")
        start(services, "worker-a", new(services), "admin")
        assert [(entry["requester_id"], entry.get("mismatch")) for entry in audit(services)] == [
            ("owner", True),
            ("admin", None),
        ]

    def test_a_message_that_was_read_and_archived_counts_as_written(self, services: Services) -> None:
        send(services, "owner", "worker-a")
        read(services, "worker-a")
        confirm_read(services.workspace.mailbox("worker-a"))
        start(services, "worker-a", new(services), "owner")
        assert "mismatch" not in audit(services)[0]

    def test_only_the_assignee_starts_not_the_creator(self, services: Services) -> None:
        task = new(services, assignee_id="worker-a", by="admin")
        with pytest.raises(Unauthorized):
            start(services, "admin", task, "owner")

    def test_what_cannot_begin_says_why_and_is_not_audited(self, services: Services) -> None:
        waiting = new(services, dependencies=(new(services).id,))
        done = moved(services, new(services), "in_progress", "done")
        for task in (waiting, done):
            with pytest.raises(InvalidStatusTransition):
                start(services, "worker-a", task, "admin")
            assert again(services, task) == task
        assert audit(services) == []


class TestUpdate:
    """`update_task_from_chat`."""

    @pytest.mark.parametrize(
        "updates",
        [
            {"title": "新しい題"},
            {"description": "新しい要件..."},
            {"priority": "urgent"},
            {"status": "in_progress"},
            {"title": "a", "description": "b", "priority": "low", "status": "cancelled"},
        ],
    )
    def test_what_is_given_is_changed_and_named(self, services: Services, updates: dict[str, str]) -> None:
        task = new(services)
        changed, fields = update(services, "worker-a", task, "admin", **updates)
        assert fields == list(updates)
        assert {name: getattr(changed, name) for name in updates} == updates
        assert again(services, task) == changed
        assert {entry["requester_id"] for entry in changed.history[1:]} == {"admin"}
        (entry,) = audit(services)
        assert (entry["tool"], entry["updated_fields"], entry["mismatch"]) == ("update_task_from_chat", fields, True)

    @pytest.mark.parametrize("updates", [{"priority": "medium"}, {"title": "Build", "status": "todo"}])
    def test_what_is_as_it_was_is_no_change(self, services: Services, updates: dict[str, str]) -> None:
        task = new(services)
        changed, fields = update(services, "worker-a", task, "admin", **updates, description="deep")
        assert fields == ["description"]
        assert update(services, "worker-a", task, "admin", **updates) == (changed, [])
        assert again(services, task).history == changed.history

    def test_a_change_that_changes_nothing_is_not_told(self, services: Services) -> None:
        task = running(services)
        assert update(services, "worker-a", task, "admin", priority="medium", title="Build")[1] == []
        assert services.derived_notices.waiting("worker-a") == []

    def test_a_task_is_blocked_with_a_reason_that_its_own_task_session_hears(self, services: Services) -> None:
        task = running(services)
        changed, fields = update(services, "worker-a", task, "admin", "no key", status="blocked")
        assert (changed.status, changed.blocked_reason) == ("blocked", "no key")
        assert fields == ["status", "blocked_reason"]
        (notice,) = notices(services, "worker-a")
        assert (notice.id, notice.reason) == (changed.interrupt_id, "no key")
        assert update(services, "worker-a", task, "admin", "lost key")[0].blocked_reason == "lost key"

    def test_a_creator_who_blocks_it_interrupts_the_assignee(self, services: Services) -> None:
        task = running(services, by="admin")
        changed, _ = update(services, "admin", task, "owner", "stop", status="blocked")
        assert [notice.id for notice in notices(services, "worker-a")] == [changed.interrupt_id]

    @pytest.mark.parametrize(
        ("updates", "reason", "refusal"),
        [
            ({}, None, InvalidArguments),
            ({}, "why", InvalidArguments),
            ({"status": "todo"}, "why", InvalidArguments),
            ({"title": " "}, None, InvalidArguments),
            ({"priority": "loud"}, None, InvalidArguments),
            ({"status": "sleeping"}, None, InvalidArguments),
            ({"status": "done"}, None, InvalidStatusTransition),
            ({"status": "blocked"}, "\udc80", InvalidArguments),
        ],
    )
    def test_what_makes_no_sense_changes_nothing(
        self, services: Services, updates: dict[str, str], reason: str | None, refusal: type[Refusal]
    ) -> None:
        task = new(services)
        before = snapshot(services)
        with pytest.raises(refusal):
            update(services, "worker-a", task, "admin", reason, **updates)
        assert snapshot(services) == before

    @pytest.mark.parametrize("path", [("in_progress", "done"), ("cancelled",)])
    def test_what_is_over_is_not_edited(self, services: Services, path: tuple[str, ...]) -> None:
        task = moved(services, new(services), *path)
        with pytest.raises(InvalidStatusTransition):
            update(services, "worker-a", task, "admin", description="late")

    def test_a_superior_of_the_assignee_who_did_not_make_it_may_not(self, services: Services) -> None:
        task = new(services, assignee_id="worker-a", by="worker-a")
        with pytest.raises(Unauthorized):
            update(services, "admin", task, "owner", title="x")


class TestTellingTheTaskSession:
    """For an agent's task session its chat session is somebody else (docs/protocol.md, Notifications)."""

    def told(self, services: Services) -> list[tuple[str | None, str | None]]:
        return [(notice.action, notice.task_id) for notice in services.derived_notices.waiting("worker-a")]

    def seen(self, services: Services) -> None:
        services.notifications.read("worker-a", "task")
        assert self.told(services) == []

    def test_what_it_starts_is_told_even_if_the_task_was_known(self, services: Services) -> None:
        task = new(services)
        self.seen(services)
        start(services, "worker-a", task, "admin")
        assert self.told(services) == [("task_assigned", task.id)]
        (notice,) = notices(services, "worker-a")
        assert (notice.rings, notice.target_purpose, notice.sender_id) == (True, "task", "worker-a")

    def test_what_was_announced_by_mail_is_told_when_it_is_started(self, services: Services) -> None:
        task = mailed(services)
        assert self.told(services) == []
        start(services, "worker-a", task, "admin")
        assert self.told(services) == [("task_assigned", task.id)]

    @pytest.mark.parametrize("status", ["todo", "in_progress"])
    def test_what_it_reopens_is_told(self, services: Services, status: str) -> None:
        task = moved(services, running(services), "blocked")
        update(services, "worker-a", task, "admin", status=status)
        assert self.told(services) == [("task_assigned", task.id)]

    @pytest.mark.parametrize("status", ["blocked", "cancelled"])
    def test_what_it_stops_interrupts_the_task_session_and_rings_it(self, services: Services, status: str) -> None:
        task = running(services)
        update(services, "worker-a", task, "admin", status=status)
        (notice,) = services.derived_notices.waiting("worker-a")
        assert (notice.type, notice.action) == ("interrupt", {"cancelled": "cancel"}.get(status, status))
        assert (notice.task_id, notice.rings, notice.target_purpose) == (task.id, True, "task")

    @pytest.mark.parametrize("status", ["todo", "in_progress"])
    @pytest.mark.parametrize("obeys", [True, False])
    def test_what_it_has_stopped_and_reopens_is_told_whether_or_not_the_end_was_reported(
        self, services: Services, worker_a: Agent, clock: Clock, status: str, obeys: bool
    ) -> None:
        session = open_task_session(services, "worker-a")
        task = running(services)
        services.next_action.next_action(worker_a, session)
        update(services, "worker-a", task, "admin", status="blocked")
        self.seen(services)
        if obeys:
            services.next_action.report_completed(worker_a, session, "blocked", None, None)
        clock.advance(1)
        update(services, "worker-a", task, "admin", status=status)
        assert self.told(services) == [("task_assigned", task.id)]
        (notice,) = notices(services, "worker-a")
        assert notice.rings
        assert services.next_action.next_action(worker_a, session)["action"] == "work"
        assert self.told(services) == []

    def test_what_it_assigns_to_itself_is_told(self, services: Services, admin: Agent) -> None:
        task = moved(services, new(services, assignee_id=None), "todo")
        services.task_changes.assign(admin, task.id, "admin", "chat")
        assert [notice.action for notice in services.derived_notices.waiting("admin")] == ["task_assigned"]

    @pytest.mark.parametrize("change", [{"title": "b"}, {"description": "b"}, {"priority": "low"}])
    @pytest.mark.parametrize("caller", ["worker-a", "admin"])
    def test_a_change_of_what_it_works_on_is_told_until_it_has_that_version(
        self, services: Services, worker_a: Agent, caller: str, change: dict[str, str]
    ) -> None:
        task, session = new(services), open_task_session(services, "worker-a")
        services.next_action.next_action(worker_a, session)
        old = again(services, task)
        update(services, caller, task, "owner", **change)
        assert self.told(services) == [("task_updated", task.id)]
        services.next_action.begin(session, old)
        assert self.told(services) == [("task_updated", task.id)], "an older version marks nothing read"
        assert services.next_action.next_action(worker_a, session)["action"] == "work"
        assert notices(services, "worker-a") == []
        update(services, caller, task, "owner", title="c")
        update(services, caller, task, "owner", title="d")
        assert self.told(services) == [("task_updated", task.id)], "the last one counts"
        moved(services, task, "done")
        assert notices(services, "worker-a") == []

    def test_a_change_of_what_waits_is_seen_when_it_is_handed_out(self, services: Services) -> None:
        task = new(services)
        self.seen(services)
        update(services, "worker-a", task, "admin", title="b")
        assert self.told(services) == []
        update(services, "worker-a", task, "admin", title="c", status="in_progress")
        assert self.told(services) == [("task_assigned", task.id)]

    def test_a_notification_whose_writer_was_killed_is_written_by_the_next_reader_the_very_same(
        self, services: Services
    ) -> None:
        task = running(services)
        update(services, "worker-a", task, "admin", title="b")
        ((name, _),) = services.workspace.notices("worker-a").unread()
        path = services.workspace.notices("worker-a").path / name
        original = path.read_bytes()
        path.unlink()
        assert forks.context(services.workspace.root).notifications.refresh("worker-a", "task").some
        assert path.read_bytes() == original


def test_a_line_of_the_audit_log_is_on_the_disk_when_the_call_is_answered(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = syncs(monkeypatch)
    services.audit("start_task_from_chat", agent_id="worker-a")
    (log,) = (services.workspace.path / "audit").glob("*.jsonl")
    assert {log, log.parent} <= set(synced)
