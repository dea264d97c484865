"""Nothing is consumed without being delivered: what a reader did not get comes again, all of it
(docs/protocol.md, Confirmation)."""

from __future__ import annotations

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from tests.services.tasks_support import dies, open_session, shown


def test_every_file_of_an_id_is_given_back_when_its_reader_dies(services: Services) -> None:
    """Two files may have the same id when a message was copied by hand."""
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
