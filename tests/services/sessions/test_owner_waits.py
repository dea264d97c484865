"""The Owner's wait-lock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import OwnerWaiting, PollingBlocked, StorageError
from multi_agent_mcp.wiring import Services
from tests.services import forks
from tests.services.support import contents, mail, read, send
from tests.services.tasks_support import forked, inbox, snapshot


@pytest.fixture
def waiting(services: Services, owner: Agent) -> Services:
    """The Owner has handed a task to the Admin."""
    assert services.task_creation.send(owner, "admin", "Build", "the house").waiting
    return services


def test_the_lock_names_whom_the_owner_waits_for(waiting: Services) -> None:
    wait = waiting.owner_waits.of("owner")
    assert wait is not None
    assert (wait.owner_id, wait.admin_id, wait.since, wait.empty_checks) == ("owner", "admin", waiting.clock(), 0)
    assert waiting.task_changes.get(wait.task_id).title == "Build"
    assert (waiting.workspace.path / "owner_wait" / "owner.md").is_file()


def test_a_task_for_a_worker_or_from_an_admin_locks_nothing(services: Services, owner: Agent, admin: Agent) -> None:
    assert not services.task_creation.send(owner, "worker-a", "Build", "x").waiting
    assert not services.task_creation.send(admin, "worker-a", "Build", "x").waiting
    assert services.owner_waits.of("owner") is None


@pytest.mark.parametrize("tool", ["send_message", "send_task", "get_dashboard", "list_agents", "get_next_action"])
def test_while_waiting_the_owner_may_do_nothing_else(waiting: Services, owner: Agent, admin: Agent, tool: str) -> None:
    with pytest.raises(OwnerWaiting) as refusal:
        waiting.owner_waits.require_allowed(owner, tool)
    assert refusal.value.values["admin_id"] == "admin"
    waiting.owner_waits.require_allowed(admin, tool)


@pytest.mark.parametrize(
    "tool", ["read_messages", "get_unread_count", "unlock_owner_wait", "get_notifications", "logout", "authenticate"]
)
def test_while_waiting_the_owner_may_look_and_unlock(waiting: Services, owner: Agent, tool: str) -> None:
    waiting.owner_waits.require_allowed(owner, tool)


@pytest.mark.parametrize("first", ["read", "count"])
@pytest.mark.parametrize("second", ["read", "count"])
def test_the_second_empty_look_in_a_row_is_blocked(waiting: Services, owner: Agent, first: str, second: str) -> None:
    def look(way: str) -> None:
        if way == "read":
            read(waiting, "owner")
        else:
            waiting.reading.count(owner)

    look(first)
    for _ in range(2):
        with pytest.raises(PollingBlocked):
            look(second)


def test_a_look_at_history_is_no_polling(waiting: Services) -> None:
    for _ in range(3):
        read(waiting, "owner", unread_only=False)
    assert read(waiting, "owner")["count"] == 0


def test_an_arrival_ends_the_blockade_and_the_count_begins_again(waiting: Services, owner: Agent) -> None:
    read(waiting, "owner")
    send(waiting, "worker-a", "owner")
    assert waiting.reading.count(owner) == 1
    assert read(waiting, "owner")["count"] == 1
    assert read(waiting, "owner")["count"] == 0
    with pytest.raises(PollingBlocked):
        read(waiting, "owner")


def test_without_a_lock_an_owner_may_look_as_often_as_it_likes(services: Services) -> None:
    assert [read(services, "owner")["count"] for _ in range(3)] == [0, 0, 0]


def test_an_admin_may_look_as_often_as_it_likes(waiting: Services) -> None:
    read(waiting, "admin")
    assert [read(waiting, "admin")["count"] for _ in range(3)] == [0, 0, 0]


def test_the_awaited_admins_message_releases_the_lock(waiting: Services) -> None:
    send(waiting, "admin", "owner", "done")
    assert contents(read(waiting, "owner")) == ["done"]
    assert waiting.owner_waits.of("owner") is None
    assert len(list((waiting.workspace.path / "owner_wait" / "archive").iterdir())) == 1


def test_another_admin_below_the_owner_releases_it_too(waiting: Services, admin: Agent) -> None:
    waiting.agents.register(Agent(id="deputy", role="admin"), by=admin)
    send(waiting, "deputy", "owner")
    read(waiting, "owner")
    assert waiting.owner_waits.of("owner") is None


def test_an_admin_of_somebody_else_or_a_worker_releases_nothing(waiting: Services, owner: Agent) -> None:
    waiting.agents.add(Agent(id="boss", role="owner"))
    waiting.agents.add(Agent(id="stranger", role="admin", parent_id="boss"))
    waiting.agents.add(Agent(id="orphan", role="admin", parent_id="gone"))
    for sender in ("stranger", "orphan", "worker-a"):
        send(waiting, sender, "owner")
        assert read(waiting, "owner")["count"] == 1
    assert waiting.owner_waits.of("owner") is not None


@pytest.mark.parametrize("query", [{"mark_as_read": False}, {"mark_as_read": False, "unread_only": False}])
def test_a_message_that_is_not_marked_read_releases_nothing(waiting: Services, query: dict[str, Any]) -> None:
    send(waiting, "admin", "owner")
    assert read(waiting, "owner", **query)["count"] == 1
    assert waiting.owner_waits.of("owner") is not None


def test_reading_an_old_message_again_releases_nothing(services: Services, owner: Agent) -> None:
    send(services, "admin", "owner")
    read(services, "owner")
    services.task_creation.send(owner, "admin", "Build", "x")
    assert read(services, "owner", unread_only=False)["count"] == 1
    assert services.owner_waits.of("owner") is not None


def test_somebody_elses_reading_releases_nothing(waiting: Services) -> None:
    send(waiting, "admin", "worker-a")
    read(waiting, "worker-a")
    assert waiting.owner_waits.of("owner") is not None


def test_the_lock_can_be_taken_away_by_hand_once(waiting: Services) -> None:
    assert waiting.owner_waits.release("owner")
    assert not waiting.owner_waits.release("owner")
    assert waiting.owner_waits.of("owner") is None


def test_the_lock_survives_a_restart(waiting: Services) -> None:
    read(waiting, "owner")
    again = open_session(waiting.workspace.root, "demo", clock=waiting.clock, notifier=waiting.notifier)
    with pytest.raises(PollingBlocked):
        read(again, "owner")


def test_a_second_task_that_was_sent_before_the_lock_was_seen_is_refused_and_leaves_nothing(
    waiting: Services, owner: Agent
) -> None:
    waiting.agents.register(Agent(id="deputy", role="admin"), by=owner)
    before = snapshot(waiting)
    for admin_id in ("admin", "deputy"):
        with pytest.raises(OwnerWaiting) as refusal:
            waiting.task_creation.send(owner, admin_id, "More", "x")
        assert refusal.value.values["admin_id"] == "admin"
    assert snapshot(waiting) == before
    assert waiting.operations.finish() == 0


def test_of_tasks_that_an_owner_sends_at_once_one_arrives_and_is_waited_for(services: Services) -> None:
    said = forked("hand_over", services.root, "6")
    assert sorted(said)[:-1] == ["owner_waiting"] * 5
    (task,) = services.workspace.tasks.all()
    wait = services.owner_waits.of("owner")
    assert wait is not None
    assert (task.id, wait.task_id) == (max(said), max(said))
    assert inbox(services, "admin") == [("task_assign", "owner", "x")]


def test_a_task_of_a_killed_owner_is_handed_over_whole_or_not_at_all(tmp_path: Path) -> None:
    told = forked("hand_over_and_die", tmp_path)
    assert len(told) >= 3, "the intent, the wait, the task, the message"
    for number in range(len(told)):
        services = forks.context(tmp_path / str(number))
        begun = services.operations.finish()
        wait = services.owner_waits.of("owner")
        assert [task.id for task in services.workspace.tasks.all()] == ([wait.task_id] if wait else [])
        assert (begun, len(inbox(services, "admin"))) == ((1, 1) if wait else (0, 0))


def test_what_a_killed_owner_has_only_decided_gives_way_to_the_task_it_waits_for_since(tmp_path: Path) -> None:
    forked("hand_over_and_die", tmp_path)
    services = forks.context(tmp_path / "1")  # the intent is written, and nothing else
    assert services.owner_waits.of("owner") is None
    sent = services.task_creation.send(services.agents.get("owner"), "admin", "Later", "y").task
    assert services.operations.finish() == 1
    wait = services.owner_waits.of("owner")
    assert wait is not None
    assert [task.id for task in services.workspace.tasks.all()] == [wait.task_id] == [sent.id]
    assert inbox(services, "admin") == [("task_assign", "owner", "y")]


def test_a_task_whose_message_cannot_be_stored_leaves_no_task_and_no_lock(services: Services, owner: Agent) -> None:
    mailbox = services.workspace.path / "ipc" / "admin"
    mailbox.rmdir()
    mailbox.write_text("in the way")
    with pytest.raises(StorageError):
        services.task_creation.send(owner, "admin", "Build", "x")
    assert services.workspace.tasks.all() == []
    assert services.owner_waits.of("owner") is None
    assert mail(services) == []
