"""Changes to several files are completed as a whole, by any process that finds them unfinished (docs/protocol.md,
Operations)."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp import pool, repository
from multi_agent_mcp import services as all_services
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import InvalidStatusTransition, StorageError
from multi_agent_mcp.services.mail import Send
from multi_agent_mcp.services.operations import Operation, Run
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.tasks.changes import GiveBack, MoveTask
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.store.records import Intent
from multi_agent_mcp.wiring import Services
from tests.services import forks
from tests.services.support import send
from tests.services.tasks_support import again, inbox, new, notices, running
from tests.store.support import NOON, confirm_read


def left_by_the_dead(services: Services, intent: Intent) -> None:
    """The intent as a killed process leaves it."""
    path = services.workspace.intents.path / f"{intent.id}.json"
    record = json.loads(path.read_bytes())
    path.write_text(json.dumps({**record, "pid": 2**22 + 1, "pid_started_at": "0"}), encoding="utf-8")


def written(services: Services, kind: str, facts: Mapping[str, Any]) -> Intent:
    intent = services.workspace.intents.write(kind, facts)
    services.workspace.intents.rest(intent)
    left_by_the_dead(services, intent)
    return intent


def began(services: Services, operation: Operation) -> Intent:
    """An operation whose process was killed before it did anything."""
    return written(services, operation.KIND, operation.facts())


def blocking(task: Task, *parts: Task, **cause: Any) -> MoveTask:
    change = Change(by="owner", at=NOON, **cause)
    return MoveTask(task_id=task.id, status="blocked", children=[part.id for part in parts], change=change, fields={})


def intents(services: Services) -> list[Path]:
    return sorted(services.workspace.intents.path.glob("*"))


def test_nothing_is_left_of_an_operation_that_came_through(services: Services, admin: Agent) -> None:
    send(services, "admin", None, "hear")
    services.task_creation.create(admin, [NewTask(title="one"), NewTask(title="two")])
    assert intents(services) == []
    assert services.operations.finish() == 0


def test_what_a_living_process_is_at_is_left_to_it(services: Services) -> None:
    services.workspace.intents.write("send", {"messages": [], "conversation_id": None})
    assert services.operations.finish() == 0
    assert len(intents(services)) == 1


def test_a_cascade_that_was_cut_off_is_completed_by_the_next_reader(services: Services, owner: Agent) -> None:
    top = running(services, "top", "admin")
    children = [running(services, name, "worker-b", parent=top.id) for name in ("wall", "roof")]
    intent = began(services, blocking(top, *children, reason="stop"))
    services.task_changes.set_status(owner, children[0].id, "blocked", "stop")  # as far as it got
    assert forks.context(services.workspace.root).operations.finish() == 1
    assert [again(services, task).status for task in (top, *children)] == ["blocked"] * 3
    assert sorted(str(notice.task_id) for notice in notices(services, "worker-b")) == sorted(c.id for c in children)
    assert again(services, top).history[-1]["intent_id"] == intent.id
    assert intents(services) == []


def test_a_subtask_that_was_reopened_after_its_cascade_stays_open(services: Services, owner: Agent) -> None:
    top = running(services, "top", "admin")
    part = running(services, "part", "worker-b", parent=top.id)
    operation = blocking(top, part)
    intent = began(services, operation)
    services.task_changes.apply_move(operation, Run(intent.id))  # killed just before the intent was removed
    services.task_changes.set_status(owner, part.id, "in_progress")
    assert services.operations.finish() == 1
    assert again(services, part).status == "in_progress"
    assert again(services, top).status == "blocked"


@pytest.mark.parametrize("is_done", [False, True], ids=["before all", "before the intent went"])
def test_a_rejection_with_remarks_of_a_killed_reviewer_is_mailed_once(
    services: Services, admin: Agent, worker_a: Agent, is_done: bool
) -> None:
    reason = "a.txt:1: no"
    task = running(services, done_when=("review",))
    task = services.deliveries.conclude(services.deliveries.deliver(worker_a, task.id, None)).task
    prepared = services.messages.compose(admin, Draft(content=reason, receiver_id=worker_a.id))
    change = Change(by=admin.id, at=NOON, reason=reason)
    operation = GiveBack(task_id=task.id, change=change, mail=prepared.to_store)
    intent = began(services, operation)
    if is_done:
        services.task_changes.apply_giving_back(operation, Run(intent.id))
    assert services.operations.finish() == 1
    assert again(services, task).status == "in_progress"
    assert [words for *_, words in inbox(services, worker_a.id)] == [reason]


def test_an_intent_that_makes_no_sense_any_more_is_dropped(services: Services, owner: Agent) -> None:
    task = running(services)
    began(services, blocking(task))
    services.task_changes.set_status(owner, task.id, "done")
    assert services.operations.finish() == 1
    assert again(services, task).status == "done"
    assert intents(services) == []


def test_an_intent_nobody_knows_or_can_read_stays_and_blocks_nobody(services: Services) -> None:
    written(services, "of_the_future", {})
    written(services, "send", {"messages": "none of ours"})
    for number, text in enumerate(("{", "[" * 100_000, '{"pid": 1e999, "kind": "send", "facts": {}}')):
        (services.workspace.intents.path / f"int_00000000000{number}.json").write_text(text, encoding="utf-8")
    assert services.operations.finish() == 0
    assert len(intents(services)) == 5
    send(services, "admin", "worker-a", "still here")


def test_a_broadcast_whose_first_copy_was_read_meanwhile_is_completed_without_a_second_one(services: Services) -> None:
    prepared = services.messages.compose(services.agents.get("admin"), Draft(content="hear"))
    began(services, Send(mail=prepared.to_store))
    services.outbox.store(prepared.messages[:1], None)
    box = services.workspace.mailbox(prepared.messages[0].receiver_id)
    box.mark_read([name for name, _ in box.unread()], services.clock())
    confirm_read(box)
    assert services.operations.finish() == 1
    copies = [len(list(services.workspace.mailbox(message.receiver_id).history())) for message in prepared.messages]
    assert copies == [1, 1, 1]


def test_an_operation_that_an_earlier_version_has_begun_is_carried_on(services: Services) -> None:
    prepared = services.messages.compose(services.agents.owner(), Draft(content="begun before", receiver_id="admin"))
    written(services, "send", {"letters": prepared.to_store.facts})
    assert services.operations.finish() == 1
    assert [content for _, _, content in inbox(services, "admin")] == ["begun before"]


def test_a_refused_operation_leaves_no_intent_and_nothing_else(services: Services, owner: Agent) -> None:
    top = running(services, "top", "admin")
    part = running(services, "part", "worker-b", parent=top.id)
    services.task_changes.set_status(owner, top.id, "done")
    with pytest.raises(InvalidStatusTransition):
        services.task_changes.set_status(owner, top.id, "blocked")
    assert intents(services) == []
    assert again(services, part) == part


def test_a_batch_the_disk_refuses_leaves_nothing(services: Services, admin: Agent) -> None:
    tasks = services.workspace.path / "tasks"
    (tasks / "worker-a").parent.mkdir(exist_ok=True)
    (tasks / "worker-b").write_text("in the way", encoding="utf-8")
    items = [NewTask(title="one", assignee_id="worker-a"), NewTask(title="two", assignee_id="worker-b")]
    with pytest.raises(StorageError):
        services.task_creation.create(admin, items)
    assert services.workspace.tasks.all("worker-a") == []
    assert intents(services) == []


def test_a_change_the_disk_refuses_halfway_is_finished_once_it_allows_it(services: Services, owner: Agent) -> None:
    task = running(services)
    partition = services.workspace.path / "tasks" / "worker-b"
    partition.write_text("in the way", encoding="utf-8")
    with pytest.raises(StorageError):
        services.task_changes.assign(owner, task.id, "worker-b")
    assert len(intents(services)) == 1
    partition.unlink()
    assert services.operations.finish() == 1
    assert [found.id for found in services.workspace.tasks.all("worker-b")] == [task.id]
    assert [notice.task_id for notice in notices(services, "worker-a")] == [task.id]
    assert services.operations.finish() == 0


def test_an_approval_that_was_cut_off_reaches_the_requester_once(services: Services) -> None:
    task, _ = services.task_creation.request(services.agents.get("worker-a"), NewTask(title="Test"))
    services.task_changes.decide(services.agents.get("admin"), task.id, approve=True)
    assert [kind for kind, _, _ in inbox(services, "worker-a")] == ["task_approved"]
    assert new(services, "other").status == "todo"


def test_doctor_names_what_was_cut_off_and_its_repair_carries_it_out(services: Services) -> None:
    prepared = services.messages.compose(services.agents.get("admin"), Draft(content="hear"))
    intent = began(services, Send(mail=prepared.to_store))
    doctor = services.doctor(lambda _: None)
    (finding,) = [item for item in doctor.examine() if item.check == "operations"]
    assert (finding.level, finding.subject) == ("problem", intent.id)
    doctor.repair([finding])
    assert [item for item in doctor.examine() if item.check == "operations"] == []
    assert inbox(services, "worker-a") == [("broadcast", "admin", "hear")]


def test_every_kind_that_is_declared_can_be_finished_by_another_process(services: Services) -> None:
    packages = (all_services, pool, repository)
    names = [module.name for one in packages for module in pkgutil.walk_packages(one.__path__, f"{one.__name__}.")]
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    declared = {value for value in values if isinstance(value, type) and issubclass(value, Operation)}
    kinds = {operation for operation in declared if "KIND" in vars(operation)}
    assert len(kinds) > 7
    assert kinds == set(services.operations.applied)
    assert len({operation.KIND for operation in kinds}) == len(kinds)


def test_words_that_the_disk_refuses_are_said_once_when_they_are_said_again(services: Services) -> None:
    initiator, target = services.agents.get("worker-a"), services.agents.get("worker-b")
    conversation, _ = services.conversations.begin(initiator, target, "hello")
    mailbox = services.workspace.mailbox("worker-b").path
    mailbox.rename(mailbox.with_name("elsewhere"))
    mailbox.write_text("in the way", encoding="utf-8")
    with pytest.raises(StorageError):
        services.conversations.say(initiator, conversation.id, Draft(content="again"))
    mailbox.unlink()
    mailbox.with_name("elsewhere").rename(mailbox)
    services.conversations.say(initiator, conversation.id, Draft(content="again"))
    services.operations.finish()
    assert [content for _, _, content in inbox(services, "worker-b")] == ["again", "hello"]
    spoken = services.conversations.messages_of(conversation.id)
    assert sorted(message.content for message in spoken) == ["again", "hello"]
