"""A confirmation knows what one answer hands out, whatever becomes of the answer (docs/protocol.md, Confirmation)."""

from __future__ import annotations

import threading

import pytest

from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.services.sessions.confirmation import Cancelled, Confirmation
from multi_agent_mcp.wiring import Services
from tests.services.support import contents, read, send, unread


@pytest.fixture
def session(services: Services) -> LiveSession:
    send(services, "admin", "worker-a")
    return services.sessions.open("worker-a", "task")


@pytest.fixture
def confirmation(session: LiveSession) -> Confirmation:
    confirmation = Confirmation()
    confirmation.begin()
    confirmation.open(session)
    return confirmation


def other_threads_end() -> None:
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def test_what_was_written_is_confirmed_by_the_next_call(
    services: Services, session: LiveSession, confirmation: Confirmation
) -> None:
    read(services, "worker-a", confirmation.lease)
    assert confirmation.complete()
    assert len(session.record.unconfirmed) == 1
    session.touch()
    assert len(session.record.unconfirmed) == 1  # nothing was written yet
    confirmation.written()
    session.touch()
    assert not session.record.unconfirmed
    assert unread(services, "worker-a") == 0


def test_a_call_that_was_cancelled_before_it_began_keeps_nobody_waiting() -> None:
    confirmation = Confirmation()
    confirmation.cancel()
    assert confirmation.is_settled
    assert not confirmation.begin()


def test_a_call_that_was_cancelled_hands_nothing_out(services: Services, confirmation: Confirmation) -> None:
    confirmation.cancel()
    with pytest.raises(Cancelled):
        read(services, "worker-a", confirmation.lease)
    assert not confirmation.complete()
    assert unread(services, "worker-a") == 1


def test_a_call_that_is_cancelled_at_work_requeues_when_it_is_done(
    services: Services, confirmation: Confirmation
) -> None:
    read(services, "worker-a", confirmation.lease)
    confirmation.cancel()
    assert unread(services, "worker-a") == 0  # its thread may still be at the files
    confirmation.complete()
    assert contents(read(services, "worker-a")) == ["hello"]


def test_an_answer_that_is_cancelled_on_its_way_out_is_requeued(
    services: Services, session: LiveSession, confirmation: Confirmation
) -> None:
    read(services, "worker-a", confirmation.lease)
    confirmation.complete()
    confirmation.cancel()
    other_threads_end()
    assert unread(services, "worker-a") == 1
    assert not session.record.unconfirmed


def test_one_answer_requeues_nothing_of_another(
    services: Services, session: LiveSession, confirmation: Confirmation
) -> None:
    read(services, "worker-a", confirmation.lease)
    send(services, "admin", "worker-a", "later")
    other = Confirmation()
    other.open(session)
    read(services, "worker-a", other.lease)
    other.requeue()
    assert contents(read(services, "worker-a")) == ["later"]
    assert len(session.record.unconfirmed) == 1
