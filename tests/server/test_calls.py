"""The middleware around every tool call, in process: the order of its checks, interrupts, notices, execution logs."""

from __future__ import annotations

import os
from typing import Any

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.server.calls import EXECUTED, Answer, Call
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.server.seat import Seat
from tests.services.support import by_hand, send, unread
from tests.services.tasks_support import running


def test_nobody_is_bound_until_authenticate_and_after_logout(services: Services) -> None:
    seat = Seat(services, None)
    assert seat.call("read_messages")["error"] == "invalid_session"
    passkey = services.agents.stored_key("worker-a")
    assert seat.call("authenticate", agent_id="worker-a", passkey="wrong")["error"] == "invalid_session"
    bound = seat.call("authenticate", agent_id="worker-a", passkey=passkey)
    assert (bound["agent_id"], bound["role"], bound["purpose"]) == ("worker-a", "worker", "task")
    assert seat.call("get_unread_count", session_token=bound["session_token"])["unread_count"] == 0
    assert seat.call("logout")["success"]
    assert seat.call("get_unread_count")["error"] == "invalid_session"


def test_the_checks_come_in_their_order(services: Services) -> None:
    """Each call violates every remaining check; a check that was satisfied is not reported again."""
    owner, worker = Seat(services, "owner", purpose="chat"), Seat(services, "worker-a", purpose="chat")
    services.task_creation.send(services.agents.get("owner"), "admin", "Plan", "the house")  # now the Owner waits
    wrong: dict[str, Any] = {"tasks": "none", "session_token": "wrong"}
    services.interrupts.stop("worker-a", "pause")
    assert worker.call("create_tasks_batch", **wrong)["error"] == "invalid_session"  # an interrupt is the task's
    assert worker.call("create_tasks_batch", tasks="none")["error"] == "unauthorized"
    assert owner.call("create_tasks_batch", tasks="none")["error"] == "wrong_session_purpose"
    assert Seat(services, "owner").call("create_tasks_batch", tasks="none")["error"] == "owner_waiting"
    assert Seat(services, "admin").call("create_tasks_batch", tasks="none")["error"] == "invalid_arguments"
    assert Seat(services, "worker-a").call("create_tasks_batch", **wrong) == {}  # the interrupt


def test_a_call_that_an_interrupt_replaces_does_not_run(services: Services) -> None:
    ran: list[str] = []

    def mark(call: Call) -> Answer:
        ran.append(call.me.id)
        return {}

    seat = Seat(services, "worker-a", mark)
    services.interrupts.pause("worker-a", None)
    result = seat.result("mark")
    assert (ran, result.structured_content, (result.meta or {})[EXECUTED]) == ([], None, False)
    (notice,) = seat.call("get_notifications")["notifications"]
    assert notice["action"] == "pause"
    assert seat.call("mark")["success"]
    assert ran == ["worker-a"]


def test_every_answer_to_a_paused_agents_task_session_says_so_until_it_is_resumed(
    services: Services, owner: Agent
) -> None:
    seat, chat = Seat(services, "worker-a"), Seat(services, "worker-a", purpose="chat")
    services.interrupts.pause("worker-a", None, sender_id="owner")
    assert seat.call("get_notifications")["paused"]["by"] == "owner"
    for _ in range(3):
        answer = seat.call("get_my_tasks")
        assert (answer["notification"], answer["paused"]["by"]) == ("There are no notifications", "owner")
        assert "[IPC]" in answer["paused"]["instruction"]
    assert "paused" not in chat.call("get_my_tasks")
    services.interrupting.resume(owner, "worker-a")
    assert "paused" not in seat.call("get_my_tasks")


def test_mail_of_an_answer_that_an_interrupt_replaces_is_unread_again(services: Services, owner: Agent) -> None:
    send(services, "admin", "worker-a")

    def read_and_stop(call: Call) -> Answer:
        answer = call.services.reading.read(call.me, Query(), call.confirmation.lease)
        call.services.interrupts.pause(call.me.id, None)
        return answer

    result = Seat(services, "worker-a", read_and_stop).result("read_and_stop")
    assert (result.structured_content, (result.meta or {})[EXECUTED]) == (None, True)
    assert unread(services, "worker-a") == 1


@pytest.mark.parametrize("error", [ValueError("a bug"), RuntimeError("another")])
def test_mail_of_a_call_that_fails_is_unread_again(services: Services, error: Exception) -> None:
    send(services, "admin", "worker-a")

    def read_and_fail(call: Call) -> Answer:
        call.services.reading.read(call.me, Query(), call.confirmation.lease)
        raise error

    seat = Seat(services, "worker-a", read_and_fail)
    answer = seat.call("read_and_fail")
    assert (answer["success"], answer["error"], answer["unread_messages"]) == (False, "storage_error", 1)
    assert unread(services, "worker-a") == 1
    assert [message["content"] for message in seat.call("read_messages")["messages"]] == ["hello"]


def test_mail_of_an_answer_that_cannot_be_put_into_json_is_unread_again(services: Services) -> None:
    send(services, "admin", "worker-a")

    def read_and_garble(call: Call) -> Answer:
        return {**call.services.reading.read(call.me, Query(), call.confirmation.lease), "garbled": object()}

    assert Seat(services, "worker-a", read_and_garble).call("read_and_garble")["error"] == "storage_error"
    assert unread(services, "worker-a") == 1


def test_every_answer_tells_what_waits_beside_it(services: Services) -> None:
    seat = Seat(services, "worker-a")
    quiet = seat.call("list_agents")
    assert quiet["notification"] == services.texts("notification.none")
    assert "unread_messages" not in quiet
    for number in range(3):
        send(services, "admin", "worker-a", f"note {number}")
    by_hand(services, "worker-a", "broken.md", "---\n: : :\n\t[")
    services.interrupts.tell_reassigned("worker-a", "tsk_0123456789ab", "ntf_0123456789ab")
    told = seat.call("list_agents")
    assert told["notification"] == services.texts("notification.some")
    assert (told["unread_messages"], told["quarantined"]) == (3, 1)
    read = seat.call("read_messages", limit=2)
    assert (read["count"], read["unread_remaining"], read["unread_messages"]) == (2, 1, 1)
    assert "quarantined" not in read  # it was told


@pytest.mark.parametrize(("kind", "prefix"), [("notifications", "ntf"), ("tasks", "tsk"), ("delegations", "dlg")])
def test_a_broken_file_of_any_kind_is_counted_once(services: Services, kind: str, prefix: str) -> None:
    seat = Seat(services, "worker-a")
    seat.call("get_my_tasks")
    path = services.path / kind / "worker-a" / f"{prefix}_0123456789ab.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("---\nid: x\nno end\n", encoding="utf-8")
    os.utime(path, (0, 0))
    assert seat.call("get_notifications")["quarantined"] == 1
    assert "quarantined" not in seat.call("get_my_tasks")


def test_a_call_finishes_what_a_killed_process_left(services: Services) -> None:
    prepared = services.messages.compose(services.agents.get("admin"), Draft(content="to all"))
    intent = services.workspace.intents.write("send", {"mail": prepared.to_store.facts})
    services.workspace.intents.rest(intent)  # its process gave up
    assert Seat(services, "worker-a").call("get_unread_count")["unread_count"] == 1


def test_a_call_sees_an_agent_that_it_has_just_registered(services: Services) -> None:
    def register_and_look(call: Call) -> Answer:
        call.services.agents.register(Agent(id="worker-c", role="worker"), by=call.me)
        return {"known": sorted(call.services.agents.all())}

    seat = Seat(services, "admin", register_and_look)
    assert "worker-c" in seat.call("register_and_look")["known"]


def test_an_interrupt_that_comes_while_a_tool_runs_is_logged_as_what_was_answered(
    services: Services, owner: Agent, worker_a: Agent
) -> None:
    (task,) = services.task_creation.create(owner, [NewTask(title="running", assignee_id=worker_a.id)])
    task, _ = services.task_changes.start(worker_a, task.id)

    def slow(call: Call) -> Answer:
        services.task_changes.set_status(owner, task.id, "blocked", "now")
        return {"done_by": call.me.id}

    seat = Seat(services, worker_a.id, slow)
    assert seat.binding.session is not None
    services.next_action.begin(seat.binding.session, task)
    assert seat.call("slow") == {}
    (execution,) = services.workspace.executions.open(worker_a.id)
    assert "success, replaced by an interrupt (slow" in services.executions.read_log(execution).lines[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give files to other users")
@pytest.mark.parametrize("name", ["ipc", "ipc/worker-a", "notifications/worker-a"])
def test_every_tool_says_so_when_somebody_else_owns_the_mail(
    services: Services, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    seat = Seat(services, "worker-a")
    assert seat.call("get_my_tasks")["success"]
    os.chown(services.path / name, 4211, 4211)
    for tool in (
        "get_my_tasks",
        "get_notifications",
        "read_messages",
        "send_message",
        "list_agents",
        "get_next_action",
    ):
        answer = seat.call(tool)
        assert answer["error"] == "untrusted_session", tool
        assert "uid 4211" in answer["message"]
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give files to other users")
def test_mail_that_is_taken_away_while_a_tool_runs_hides_no_result(services: Services) -> None:
    def lose(_: Call) -> Answer:
        os.chown(services.path / "ipc" / "worker-a", 4211, 4211)
        return {"done": True}

    assert Seat(services, "worker-a", lose).call("lose")["done"]


def test_the_first_call_of_a_server_reads_what_a_killed_process_did_not_write(services: Services, clock: Clock) -> None:
    """An answer that is empty and announces notifications at once sends an agent in a circle."""
    task = running(services)
    change = Change(by="admin", at=clock.advance(1))
    services.workspace.tasks.update(task.id, lambda found: found.edited(change, title="Rebuild"))  # and killed
    answer = Seat(open_session(services.workspace.root, "demo"), "worker-a").call("get_notifications")
    assert [notice["action"] for notice in answer["notifications"]] == ["task_updated"]
    assert answer["notification"] == services.texts("notification.none")
