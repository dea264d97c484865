"""Agent sessions: their purposes, their end, and the mail of a dead reader."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent, AgentSession
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.errors import InvalidSession, NoSuchSession
from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.services.sessions.confirmation import Confirmation
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import contents, mail, read, send, syncs, unread

HOUR = 3600


def begun(services: Services, number: int, **fields: object) -> Task:
    task = Task(
        id=f"tsk_{number:012x}", status="in_progress", assignee_id="worker-a", created_at=services.clock(), title="t"
    )
    return services.workspace.tasks.add(replace(task, **fields))  # type: ignore[arg-type]


def die(services: Services, session: LiveSession) -> None:
    """Simulates the death of the session's process: its process id now belongs to another process."""
    services.workspace.sessions.update(session.record.id, lambda found: replace(found, pid_started_at="earlier"))


def handed_out(services: Services, session: LiveSession) -> list[str]:
    """Reads mail as the server does, with a lease and a written answer; returns the contents."""
    confirmation = Confirmation()
    confirmation.open(session)
    answer = read(services, session.record.agent_id, lease=confirmation.lease)
    confirmation.written()
    return contents(answer)


def stored(services: Services, session: LiveSession) -> AgentSession:
    return services.workspace.sessions.get(session.record.id)


def test_an_opened_session_is_a_file_without_its_token(services: Services) -> None:
    session = services.sessions.open("worker-a")
    record = stored(services, session)
    assert (record.agent_id, record.purpose, record.state) == ("worker-a", "task", "active")
    assert record.created_at == services.clock()
    directory = services.workspace.path / "sessions" / "worker-a"
    assert session.token not in (directory / f"{record.id}.md").read_text()
    assert services.sessions.alive("worker-a")
    assert not services.sessions.alive("worker-b")


@pytest.mark.parametrize("token", ["", "x", None, 7, "\ud800"])
def test_only_the_live_token_is_a_token(services: Services, token: object) -> None:
    session = services.sessions.open("worker-a")
    session.require_token(session.token)
    with pytest.raises(InvalidSession):
        session.require_token(token)


def test_with_nothing_to_do_a_session_is_for_tasks(services: Services) -> None:
    assert services.sessions.open("worker-a").record.purpose == "task"
    assert services.sessions.open("worker-a").record.purpose == "task"


def test_work_in_progress_without_a_session_asks_for_a_task_session_first(services: Services) -> None:
    begun(services, 1)
    send(services, "admin", "worker-a", message_type="conversation")
    assert [services.sessions.open("worker-a").record.purpose for _ in range(3)] == ["task", "chat", "task"]


def test_waiting_chat_work_asks_for_a_chat_session(services: Services) -> None:
    send(services, "admin", "worker-a", message_type="conversation")
    assert services.sessions.open("worker-a").record.purpose == "chat"
    assert services.sessions.open("worker-a").record.purpose == "task"


def test_a_dead_or_expired_session_blocks_no_new_one(services: Services, clock: Clock) -> None:
    send(services, "admin", "worker-a", message_type="conversation")
    die(services, services.sessions.open("worker-a"))
    assert services.sessions.open("worker-a").record.purpose == "chat"
    clock.advance(HOUR)
    assert services.sessions.open("worker-a").record.purpose == "chat"


def test_a_purpose_that_is_given_is_kept(services: Services) -> None:
    assert services.sessions.open("worker-a", "chat").record.purpose == "chat"


def test_a_task_session_takes_the_most_urgent_and_then_the_oldest_task(services: Services, clock: Clock) -> None:
    begun(services, 1, priority="low")
    clock.advance(1)
    begun(services, 2, priority="high")
    clock.advance(1)
    begun(services, 3, priority="high")
    begun(services, 4, priority="urgent", status="todo")
    assert services.sessions.open("worker-a", "task").record.task_id == "tsk_000000000002"
    assert services.sessions.open("worker-a", "task").record.task_id == "tsk_000000000003"
    assert services.sessions.open("worker-a", "chat").record.task_id is None


def test_the_hour_slides_with_every_call(services: Services, clock: Clock) -> None:
    session = services.sessions.open("worker-a")
    clock.advance(HOUR - 1)
    assert session.is_live()
    session.touch()
    clock.advance(HOUR - 1)
    assert session.is_live()
    assert len(services.sessions.live("worker-a")) == 1
    clock.advance(1)
    assert not session.is_live()
    assert services.sessions.live("worker-a") == []


def test_an_hour_that_somebody_has_shortened_in_the_file_is_over(services: Services) -> None:
    session = services.sessions.open("worker-a")
    path = services.workspace.path / "sessions" / "worker-a" / f"{session.record.id}.md"
    assert session.is_live()
    path.write_text(re.sub("expires_at: .*", "expires_at: 2020-01-01T00:00:00Z", path.read_text()))
    assert not session.is_live()
    path.write_text("not a session")
    assert not session.is_live()


def test_a_session_that_ended_is_over(services: Services) -> None:
    session = services.sessions.open("worker-a")
    session.end()
    assert not session.is_live()
    assert (stored(services, session).state, stored(services, session).ended_at) == ("ended", services.clock())
    assert not services.sessions.alive("worker-a")


def test_what_a_dead_reader_never_confirmed_is_unread_again(services: Services) -> None:
    send(services, "admin", "worker-a", "important")
    session = services.sessions.open("worker-a")
    assert handed_out(services, session) == ["important"]
    die(services, session)
    assert services.sessions.recover("worker-a") == 1
    assert contents(read(services, "worker-a")) == ["important"]
    assert stored(services, session).ended_at is not None
    assert services.sessions.recover("worker-a") == 0


def test_a_living_readers_mail_is_left_alone(services: Services) -> None:
    send(services, "admin", "worker-a")
    handed_out(services, services.sessions.open("worker-a"))
    assert services.sessions.recover("worker-a") == 0
    assert unread(services, "worker-a") == 0


def test_the_next_call_confirms_what_was_answered(services: Services) -> None:
    send(services, "admin", "worker-a")
    session = services.sessions.open("worker-a")
    handed_out(services, session)
    session.touch()
    die(services, session)
    assert services.sessions.recover("worker-a") == 0
    assert unread(services, "worker-a") == 0


def test_a_death_between_lease_and_answer_requeues_the_message(services: Services) -> None:
    send(services, "admin", "worker-a")
    session = services.sessions.open("worker-a")
    read(services, "worker-a", lease=session.lease)
    session.touch()  # another call of the same process does not confirm what was never answered
    die(services, session)
    assert services.sessions.recover("worker-a") == 1
    assert unread(services, "worker-a") == 1


def test_a_message_is_not_archived_before_it_is_confirmed(services: Services) -> None:
    send(services, "admin", "worker-a", "old")
    session = services.sessions.open("worker-a")
    handed_out(services, session)
    assert len(list(services.workspace.mailbox("worker-a").path.glob("*.md"))) == 1
    die(services, session)
    assert services.sessions.recover("worker-a") == 1
    assert contents(read(services, "worker-a")) == ["old"]


def test_what_somebody_wrote_into_a_session_file_leads_nowhere_else(services: Services) -> None:
    send(services, "admin", "worker-b", "another's")
    read(services, "worker-b")
    (path,) = mail(services)
    session = services.sessions.open("worker-a")
    forged = (f"ipc/worker-a/../worker-b/{path.name}", f"ipc/worker-b/{path.name}", "ipc/worker-a/", "ipc/worker-a/.md")
    services.workspace.sessions.update(session.record.id, lambda found: found.with_unconfirmed(forged))
    die(services, session)
    assert services.sessions.recover("worker-a") == 0
    assert unread(services, "worker-b") == 0


def test_an_execution_whose_session_was_lost_in_a_power_cut_is_ended(services: Services) -> None:
    """A file of no bytes is what a file system may leave."""
    session = services.sessions.open("worker-a", "task")
    lost = services.executions.begin(session.record, begun(services, 1).id)
    other = services.sessions.open("worker-a", "task")
    alive = services.executions.begin(other.record, begun(services, 2).id)
    path = services.workspace.path / "sessions" / "worker-a" / f"{session.record.id}.md"
    path.write_bytes(b"")
    assert services.sessions.recover("worker-a") == 0
    assert services.executions.get(None, lost.id).error_message == "its session was lost"
    assert services.executions.get(None, alive.id).running


def test_a_session_file_is_never_put_in_place_before_its_content_is_on_the_disk(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power cut leaves it empty, and it is lost which items the session was handed."""
    send(services, "admin", "worker-a")
    session = services.sessions.open("worker-a")
    handed_out(services, session)
    synced = syncs(monkeypatch)
    session.touch()
    assert [path.parent.name for path in synced][-1] == ".tmp"


def test_a_session_at_its_end_takes_nothing_more(services: Services) -> None:
    """Nothing would be given back: the server ends while a call is in progress."""
    send(services, "admin", "worker-a")
    session = services.sessions.open("worker-a")
    session.end()
    with pytest.raises(InvalidSession):
        read(services, "worker-a", lease=session.lease)
    assert unread(services, "worker-a") == 1
    assert stored(services, session).unconfirmed == ()


def test_two_calls_that_lease_the_same_file_let_go_of_it_one_by_one(services: Services) -> None:
    """One call was replaced and requeued the mail after the other had read it: the other's lease must remain."""
    send(services, "admin", "worker-a")
    session = services.sessions.open("worker-a")
    handed_out(services, session)
    (held,) = session.record.unconfirmed
    session.lease((held,))
    session.requeue((held,))
    assert stored(services, session).unconfirmed == (held,)


def test_a_hand_written_message_comes_back_too(services: Services) -> None:
    path = services.workspace.path / "ipc" / "worker-a" / "20261121_120000_note.md"
    path.write_text("---\nsubject: x\n---\n\nby hand")
    session = services.sessions.open("worker-a")
    assert handed_out(services, session) == ["by hand"]
    die(services, session)
    assert services.sessions.recover("worker-a") == 1
    assert contents(read(services, "worker-a")) == ["by hand"]


def test_an_answer_that_was_replaced_gives_its_messages_back_at_once(services: Services) -> None:
    send(services, "admin", "worker-a")
    session = services.sessions.open("worker-a")
    read(services, "worker-a", lease=session.lease)
    session.requeue(session.record.unconfirmed)
    assert unread(services, "worker-a") == 1
    assert stored(services, session).unconfirmed == ()


def test_a_regular_end_confirms_the_last_answer_and_gives_back_the_rest(services: Services) -> None:
    send(services, "admin", "worker-a", "answered")
    session = services.sessions.open("worker-a")
    handed_out(services, session)
    send(services, "admin", "worker-a", "held only")
    read(services, "worker-a", lease=session.lease)
    session.end()
    assert contents(read(services, "worker-a")) == ["held only"]


def test_a_session_is_bound_to_the_task_it_works_on(services: Services) -> None:
    session = services.sessions.open("worker-a")
    session.bind_task("tsk_0123456789ab")
    assert stored(services, session).task_id == "tsk_0123456789ab"


def test_a_session_that_does_not_exist_cannot_be_opened(root: Path, recorder: Recorder, owner: Agent) -> None:
    with pytest.raises(NoSuchSession):
        open_session(root, "another", notifier=recorder)


def test_what_was_ended_for_nobody_is_archived_by_the_next_recovery_after_a_kill(services: Services) -> None:
    tasks = services.workspace.tasks
    tasks.add(Task(id="tsk_000000000001", title="For whoever is free", status="cancelled"))
    (belongs,) = tasks.base.rglob("tsk_000000000001.md")
    left = tasks.base / "_unassigned" / belongs.name
    belongs.rename(left)  # as the killed process left it
    services.sessions.recover("worker-a")
    assert belongs.exists()
    assert not left.exists()
