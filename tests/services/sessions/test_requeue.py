"""Nothing is consumed without being delivered: what a reader did not get comes again, all of it
(docs/protocol.md, Confirmation)."""

from __future__ import annotations

from pathlib import Path

import pytest

from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services import forks
from tests.services.support import contents, read
from tests.services.tasks_support import agent, dies, forked, open_session, shown


def test_every_file_of_an_id_is_given_back_when_its_reader_dies(services: Services) -> None:
    """Two files may have the same id when a person copied a message."""
    session = open_session(services, "worker-a")
    first = services.messages.send(services.agents.get("admin"), Draft(content="one", receiver_id="worker-a"))
    box = services.workspace.mailbox("worker-a")
    ((name, _),) = box.unread()
    (box.path / "copy.md").write_bytes((box.path / name).read_bytes())
    assert len(services.reading.read(services.agents.get("worker-a"), Query(), session.lease)["messages"]) == 2
    dies(services, session)
    assert services.sessions.recover("worker-a") == 2
    assert [message.id for _, message in box.unread(fresh=True)] == [first.message_id] * 2


def test_a_notification_whose_reader_dies_is_unread_again(services: Services) -> None:
    notice = services.interrupts.pause("worker-a", None)
    session = open_session(services, "worker-a")
    assert services.notifications.read("worker-a", "task", lease=session.lease)
    dies(services, session)
    assert services.sessions.recover("worker-a") == 1
    assert [item["id"] for item in shown(services, "worker-a")] == [notice.id]


def test_a_notification_of_a_call_that_nobody_waits_for_any_more_is_unread_again(services: Services) -> None:
    notice = services.interrupts.pause("worker-a", None)
    session = open_session(services, "worker-a")
    services.notifications.read("worker-a", "task", lease=session.lease)
    session.requeue(session.record.unconfirmed)
    assert [item["id"] for item in shown(services, "worker-a")] == [notice.id]
    assert session.record.unconfirmed == ()


def test_an_owner_waits_again_when_the_answer_was_not_delivered(services: Services) -> None:
    owner, admin = services.agents.get("owner"), services.agents.get("admin")
    task = services.task_creation.send(owner, "admin", "Plan", "the house").task
    services.task_reports.report_progress(admin, task.id, 10)
    session = open_session(services, "owner")
    services.reading.read(owner, Query(), session.lease)
    assert services.owner_waits.of("owner") is None
    session.requeue(session.record.unconfirmed)  # an interrupt replaced it
    wait = services.owner_waits.of("owner")
    assert wait is not None
    assert (wait.task_id, wait.released_by) == (task.id, None)
    services.reading.read(owner, Query(), session.lease)
    assert services.owner_waits.of("owner") is None


def test_an_owners_wait_ended_by_another_message_stays_ended(services: Services) -> None:
    owner, admin = services.agents.get("owner"), services.agents.get("admin")
    services.task_creation.send(owner, "admin", "Plan", "the house")
    services.owner_waits.release("owner")
    services.messages.send(admin, Draft(content="late", receiver_id="owner"))
    session = open_session(services, "owner")
    services.reading.read(owner, Query(), session.lease)
    session.requeue(session.record.unconfirmed)
    assert services.owner_waits.of("owner") is None


def confirmed(session: LiveSession) -> None:
    """The session's answers arrive, and it ends regularly."""
    session.written(session.record.unconfirmed)
    session.end()


@pytest.mark.parametrize("reader", ["worker-a", "owner"])
def test_what_a_session_read_after_another_had_died_over_it_does_not_come_again(tmp_path: Path, reader: str) -> None:
    """Killed between noting what it would hand out and marking it, at each step."""
    for number, _ in enumerate(forked("read_mail", tmp_path, reader)):
        services = forks.context(tmp_path / str(number))
        session = open_session(services, reader, "task")
        first = contents(read(services, reader, session.lease))
        confirmed(session)
        assert services.sessions.recover(reader) == 3 - len(first)
        assert (services.owner_waits.of(reader) is not None) == (reader == "owner" and not first)
        again = contents(read(services, reader))
        assert sorted([*first, *again]) == ["one", "three", "two"]


def test_a_regular_end_that_is_killed_on_its_way_confirms_what_arrived_before_all_else(tmp_path: Path) -> None:
    """Closing has a second, which is short on a busy machine, and ends executions and offers tasks again."""
    came_again = []
    for number, agent_id in enumerate(forked("read_and_end", tmp_path)):
        services = forks.context(tmp_path / str(number))
        if (services.root / "ending").exists():
            services.sessions.recover(agent_id)
            came_again.append("one" in contents(read(services, agent_id)))
    assert len(came_again) > 2
    assert not any(came_again[4:]), "nothing but making the archive may come before"
    assert came_again == sorted(came_again, reverse=True), "what was confirmed once stays so"


def test_a_session_that_ends_while_the_dead_are_looked_for_is_not_taken_for_one_of_them(tmp_path: Path) -> None:
    services = forks.made(tmp_path)
    services.messages.send(services.agents.get("admin"), Draft(content="one", receiver_id="worker-a"))
    assert forked("recover_late", tmp_path) == ["0"]
    assert contents(read(services, "worker-a")) == []


def test_a_notification_read_after_another_session_had_died_over_it_does_not_come_again(tmp_path: Path) -> None:
    for number, agent_id in enumerate(forked("read_notifications", tmp_path)):
        services = forks.context(tmp_path / str(number))
        session = open_session(services, agent_id)
        first = [notice["id"] for notice in services.notifications.read(agent_id, "task", lease=session.lease)]
        session.touch()  # its next call; an end would offer the tasks again
        services.sessions.recover(agent_id)
        again = [notice["id"] for notice in services.notifications.read(agent_id, "task")]
        assert len({*first, *again}) == len([*first, *again]) == 2


def test_what_a_person_read_after_a_session_had_died_over_it_does_not_come_again(
    services: Services, clock: Clock
) -> None:
    session = open_session(services, "worker-a", "chat")
    services.messages.send(agent(services, "admin"), Draft(content="one", receiver_id="worker-a"))
    box = services.workspace.mailbox("worker-a")
    ((name, _),) = box.unread()
    session.lease((box.reference(name, clock()),))
    dies(services, session)
    clock.advance(1)
    assert contents(read(services, "worker-a")) == ["one"]
    assert services.sessions.recover("worker-a") == 0
    assert contents(read(services, "worker-a")) == []
