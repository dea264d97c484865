"""Mail for `@role` and `@any`: one message, handed to one agent that is free (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest
from click.testing import CliRunner

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.main import app
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.pool.conftest import SeatOf


def unread(services: Services, agent_id: str) -> list[str]:
    return [message.id for _, message in services.workspace.mailbox(agent_id).unread()]


@pytest.mark.parametrize("to", ["@worker", "@any"])
def test_a_message_is_handed_to_one_agent_that_is_awake_and_idle(
    pooled: Services, seat: SeatOf, admin: Agent, to: str
) -> None:
    seat("worker-b")
    sent = seat("admin").call("send_message", receiver_id=to, content="who has time?")
    assert sent["receiver_ids"] == ["worker-b"]
    assert list(sent["delivery"]) == ["worker-b"]
    (message,) = seat("worker-b").call("read_messages")["messages"]
    assert (message["id"], message["receiver_id"], message["sender_id"]) == (sent["message_id"], "worker-b", "admin")
    assert message["authority"] == "superior"
    status = seat("admin").call("get_message_status", message_id=sent["message_id"])
    assert (status["taken_by"], status["state"]) == ("worker-b", "read")
    assert unread(pooled, "worker-a") == []


def test_until_somebody_is_free_it_waits_and_then_the_first_who_becomes_so_has_it(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    pooled.task_creation.create(admin, [NewTask(title="busy", assignee_id="worker-a")])
    seat("worker-a").call("get_notifications")
    seat("worker-a").call("get_next_action")
    sent = seat("admin").call("send_message", receiver_id="@worker", content="next?")
    assert (sent["receiver_ids"], sent["delivery"]) == ([], {"@worker": {"state": "waiting"}})
    status = seat("admin").call("get_message_status", message_id=sent["message_id"])
    assert (status["taken_by"], status["state"]) == (None, "waiting")
    assert pooled.tracking.trace(sent["message_id"])[0]["state"] == "waiting"
    told = CliRunner().invoke(app, ["trace", sent["message_id"], "--root", str(pooled.root)]).output
    assert "@worker" in told
    seat("worker-a").call("report_completed", result="success")
    assert unread(pooled, "worker-a") == [sent["message_id"]]
    (row,) = pooled.tracking.trace(sent["message_id"])
    assert (row["receiver_id"], row["taken_by"], row["to"]) == ("worker-a", "worker-a", "@worker")


def test_two_messages_go_to_two_agents_and_a_third_to_the_first_who_has_read_his(
    pooled: Services, seat: SeatOf
) -> None:
    seat("worker-a"), seat("worker-b")
    send = partial(seat("admin").call, "send_message", receiver_id="@any")
    first, second, third = (send(content=word) for word in ("one", "two", "three"))
    assert {*first["receiver_ids"], *second["receiver_ids"]} == {"worker-a", "worker-b"}
    assert third["receiver_ids"] == []
    seat("worker-b").call("read_messages")
    seat("admin").call("get_unread_count")
    assert unread(pooled, "worker-b") == [third["message_id"]]


def test_the_paused_the_sleeping_and_the_sender_get_nothing_and_nobody_of_that_kind_is_refused(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    seat("worker-a")
    pooled.interrupting.interrupt(admin, "worker-a", "pause", None, None)
    assert seat("admin").call("send_message", receiver_id="@worker", content="x")["receiver_ids"] == []
    said = CliRunner().invoke(app, ["send", "@worker", "x", "--as", "admin", "--root", str(pooled.root)])
    assert (said.exit_code, "@worker" in said.output) == (0, True), said.output
    for agent_id, to in (("admin", "@admin"), ("worker-b", "@any"), ("admin", "@boss"), ("admin", "@")):
        assert seat(agent_id).call("send_message", receiver_id=to, content="x")["error"] == "agent_not_found"


def test_who_got_it_stays_so_after_the_process_that_chose_was_killed(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    sent = pooled.messages.send(admin, Draft(content="x", receiver_id="@worker", idempotency_key="k"))
    seat("worker-a"), seat("worker-b")
    pid = os.fork()
    if pid == 0:
        services = open_session(pooled.root, "demo", notifier=Recorder())
        services.outbox.store = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore
        services.offers.hand_out()
        os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    chosen = str(pooled.offers.open.get(sent.message_id).taken_by)
    pooled.offers.became_free()
    assert unread(pooled, chosen) == [sent.message_id]
    again = pooled.messages.send(admin, Draft(content="x", receiver_id="@worker", idempotency_key="k"))
    assert (again.message_id, again.receiver_ids) == (sent.message_id, [chosen])
    assert [unread(pooled, name) for name in ("worker-a", "worker-b") if name != chosen] == [[]]


def test_a_sender_is_told_once_of_what_nobody_takes_in_time(
    pooled: Services, seat: SeatOf, admin: Agent, clock: Clock
) -> None:
    path = pooled.path / "session.yaml"
    path.write_text(path.read_text().replace("limits: {}", "limits: {return_minutes: 0.5}"))
    services = open_session(pooled.root, "demo", clock=clock, notifier=Recorder())
    services.messages.send(admin, Draft(content="x", receiver_id="@worker"))
    clock.advance(29)
    services.offers.became_free()
    assert services.derived_notices.waiting("admin") == []
    clock.advance(2)
    services.offers.became_free()
    services.offers.became_free()
    assert [notice.action for notice in services.derived_notices.waiting("admin")] == ["not_taken"]
