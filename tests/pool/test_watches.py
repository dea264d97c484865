"""Who asked is notified once of a state (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest
from click.testing import CliRunner

from multi_agent_mcp import Refused
from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.main import app
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.planned import planned
from tests.pool.conftest import SeatOf
from tests.server.seat import Seat


def told(services: Services, agent_id: str) -> list[str]:
    found = services.derived_notices.waiting(agent_id)
    return [str(notice.reason) for notice in found if notice.action == "state_reached"]


def test_the_end_of_a_task_is_told_once(pooled: Services, seat: SeatOf, admin: Agent) -> None:
    (task,) = pooled.task_creation.create(admin, [NewTask(title="part", assignee_id="worker-a")])
    watch = seat("worker-b").call("notify_when", target=task.id, state="done")
    assert watch["watch_id"].startswith("wch_")
    withdrawn = seat("admin").call("notify_when", target=task.id, state="done")["watch_id"]
    assert seat("worker-b").call("notify_when", target=withdrawn, state="never")["error"] == "unauthorized"
    assert seat("admin").call("notify_when", target=withdrawn, state="never")["success"]
    assert told(pooled, "worker-b") == []
    seat("worker-a").call("get_notifications")
    seat("worker-a").call("get_next_action")
    seat("worker-a").call("report_completed", result="success")
    pooled.watches.look()
    assert [task.id in words for words in told(pooled, "worker-b")] == [True]
    assert told(pooled, "admin") == []
    assert pooled.watches.known.open() == []


def test_an_agent_that_becomes_idle_is_told_and_one_that_is_so_at_once(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    pooled.task_creation.create(admin, [NewTask(title="part", assignee_id="worker-a")])
    seat("worker-a").call("get_notifications")
    seat("worker-a").call("get_next_action")
    for agent_id in ("worker-a", "worker-b"):
        seat(agent_id)
        assert seat("admin").call("notify_when", target=agent_id, state="idle")["success"]
    assert len(told(pooled, "admin")) == 1
    seat("worker-a").call("report_completed", result="success")
    assert len(told(pooled, "admin")) == 2


def test_what_makes_no_sense_is_refused(agent_team: MakeTeam) -> None:
    team = agent_team(pool="on")
    (task_id,) = planned(team, "part", assignee_id=None)
    wrong: list[tuple[str, Any, str]] = [
        ("worker-a", "done", "invalid_arguments"),
        (task_id, "idle", "invalid_arguments"),
        (task_id, "never", "invalid_arguments"),
        ("nobody", "idle", "agent_not_found"),
        ("tsk_000000000000", "done", "task_not_found"),
        ("wch_000000000000", "never", "message_not_found"),
        ("../x", "idle", "invalid_id"),
    ]
    for target, state, code in wrong:
        with pytest.raises(Refused, match=f"^{code}"):
            team["admin"].notify_when(target, state)


def test_people_wait_by_a_command(pooled: Services, seat: SeatOf, admin: Agent) -> None:
    seat("worker-a")
    run, root = CliRunner(), ["--root", str(pooled.root)]
    ends = [sys.executable, "-c", "import sys; sys.exit(7)"]
    assert run.invoke(app, ["when", "worker-a", "idle", *root, "--", *ends]).exit_code == 7
    said = run.invoke(app, ["when", "worker-a", "idle", "--json", *root])
    assert json.loads(said.output)["state"] == "idle"
    assert run.invoke(app, ["when", "worker-a", "done", *root]).exit_code == 1
    sent = run.invoke(app, ["send", "worker-a", "hello", "--when-idle", *root])
    assert (sent.exit_code, len(pooled.workspace.mailbox("worker-a").unread())) == (0, 1), sent.output


def test_a_command_that_waits_goes_on_when_a_file_changes(
    pooled: Services, seat: SeatOf, admin: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multi_agent_mcp.pool.watches.AGAIN_SECONDS", 600.0)
    (task,) = pooled.task_creation.create(admin, [NewTask(title="part", assignee_id="worker-a")])
    reached, looked, went_on = pooled.watches.reached, Event(), Event()

    def look(target: str, state: str) -> str | None:
        found: str | None = reached(target, state)
        looked.set()
        return found

    def wait() -> None:
        pooled.watches.await_state(task.id, "blocked", None, print)
        went_on.set()

    pooled.watches.reached = look
    waiting = Thread(target=wait, daemon=True)
    waiting.start()
    assert looked.wait(30)
    pooled.task_changes.set_status(admin, task.id, "blocked", "no")
    assert went_on.wait(30)
    waiting.join()


def begun(services: Services, seat: SeatOf, admin: Agent, agent_id: str) -> str:
    (task,) = services.task_creation.create(admin, [NewTask(title="part", assignee_id=agent_id)])
    seat(agent_id).call("get_notifications"), seat(agent_id).call("get_next_action")
    return task.id


def way_out(services: Services) -> str:
    """What `attention` advises of the first circle."""
    items = services.attention.of(services.agents.owner())
    return next(item.command for item in items if item.kind == "circle")


def circles_of(services: Services, agent_id: str) -> list[str]:
    found = services.derived_notices.waiting(agent_id)
    return [str(notice.reason) for notice in found if notice.action == "circle_suspected"]


def test_a_circle_of_those_who_wait_to_be_notified_is_named_at_once(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    first, second = begun(pooled, seat, admin, "worker-a"), begun(pooled, seat, admin, "worker-b")
    watch = seat("worker-a").call("notify_when", target=second, state="done")["watch_id"]
    seat("worker-b").call("ask", question="which?", to_id="worker-a", park=True)
    assert pooled.circles.found() == []  # who waits to be notified can answer
    seat("worker-b").call("notify_when", target=first, state="done")
    for agent_id in ("worker-a", "worker-b", "admin"):
        assert [first in words and second in words for words in circles_of(pooled, agent_id)] == [True], agent_id
    assert way_out(pooled) == 'multi-agent-mcp send worker-a "…"'
    seat("worker-a").call("notify_when", target=watch, state="never")
    assert pooled.circles.found() == []


def test_a_command_of_an_agent_that_waits_is_seen_in_circles_as_long_as_it_lives(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    _, second = (begun(pooled, seat, admin, one) for one in ("worker-a", "worker-b"))
    ready, telling = os.pipe()
    pid = os.fork()
    if pid == 0:
        services = open_session(pooled.root, "demo", notifier=Recorder())
        services.watches._await = lambda _: (os.write(telling, b"."), signal.pause())  # type: ignore
        services.watches.await_state(second, "done", "worker-a", print)
        os._exit(1)
    os.read(ready, 1)
    watch = seat("worker-b").call("notify_when", target="worker-a", state="idle")["watch_id"]
    assert [second in words for words in circles_of(pooled, "worker-a")] == [True]
    assert way_out(pooled) == f"kill {pid}"
    seat("worker-b").call("notify_when", target=watch, state="never")
    question = seat("worker-b").call("ask", question="which?", to_id="worker-a", park=True)["question_id"]
    assert way_out(pooled) == f"multi-agent-mcp answer {question}"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert pooled.circles.found() == []
    pooled.watches.look()
    assert (pooled.watches.known.open(), told(pooled, "worker-a")) == ([], [])


def test_a_merge_that_will_not_be_is_not_waited_for(pooled: Services, seat: SeatOf, admin: Agent) -> None:
    task_id = begun(pooled, seat, admin, "worker-a")
    said = CliRunner().invoke(app, ["when", task_id[:10], "merged", "--root", str(pooled.root)])
    assert (said.exit_code, task_id in said.output) == (1, True)
    assert seat("admin").call("notify_when", target=task_id, state="merged")["error"] == "invalid_arguments"
    seat("worker-a").call("report_completed", result="success")
    assert pooled.watches.reached(task_id, "merged") == "done"  # it was watched while its agent had a worktree
    (dropped,) = pooled.task_creation.create(admin, [NewTask(title="dropped")])
    pooled.task_changes.set_status(admin, dropped.id, "cancelled")
    said = CliRunner().invoke(app, ["when", dropped.id, "merged", "--root", str(pooled.root)])
    assert (said.exit_code, "cancelled" in said.output) == (1, True), said.output  # and not to wait for done


def test_what_is_for_whoever_is_free_is_sent_once_one_of_them_is_idle(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    send = partial(CliRunner().invoke, app)
    seat("worker-a")
    root = ["--as", "admin", "--root", str(pooled.root)]
    sent = send(["send", "@worker", "hello", "--when-idle", *root])
    assert (sent.exit_code, len(pooled.workspace.mailbox("worker-a").unread())) == (0, 1), sent.output
    assert send(["send", "@boss", "hello", "--when-idle", *root]).exit_code == 1
    refused = send(["send", "all", "hello", "--when-idle", *root])
    assert (refused.exit_code, "@any" in refused.output) == (2, True), refused.output
    assert "@any" in send(["send", "--help"]).output


def test_who_waits_is_told_what_keeps_the_agent_from_it(pooled: Services, seat: SeatOf, admin: Agent) -> None:
    def said(target: str = "worker-a", state: str = "idle") -> str:
        return str(seat("admin").call("notify_when", target=target, state=state).get("instruction"))

    assert said() == "You are notified once worker-a is idle. No server of worker-a has run yet."
    (task,) = pooled.task_creation.create(admin, [NewTask(title="part", assignee_id="worker-a")])
    worker, task_id = Seat(pooled, "worker-a"), task.id
    worker.call("get_notifications"), worker.call("get_next_action")
    assert said() == "None"
    pooled.interrupting.interrupt(admin, "worker-a", "pause", None, None)
    held_up = "worker-a has been paused since 2026-11-21 21:46 UTC, and begins nothing until it is resumed."
    assert said() == f"You are notified once worker-a is idle. {held_up}"
    assert said(task_id, "done") == f"You are notified once {task_id} is done. {held_up}"
    worker.binding.close()
    asleep = "No server of worker-a is running; its last call was at 2026-11-21 21:46 UTC."
    assert said().endswith(f"{held_up} {asleep}")
    told: list[str] = []
    pooled.watches._await = lambda reached: str(reached())
    pooled.watches.await_idle(admin, "worker-a", told.append)
    assert told == [f"Waiting until worker-a is idle. {held_up} {asleep}"]


def test_a_command_of_an_agent_does_not_wait_for_its_own_work(pooled: Services, seat: SeatOf, admin: Agent) -> None:
    task_id = begun(pooled, seat, admin, "worker-a")
    for target, state in (("worker-a", "idle"), (task_id, "done"), (task_id, "blocked")):
        with pytest.raises(Refusal, match="waits_for_itself"):
            pooled.watches.await_state(target, state, "worker-a", print)
    with pytest.raises(Refusal, match="to_oneself"):
        pooled.watches.await_idle(admin, "admin", print)
