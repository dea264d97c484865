"""Mail for `@role` and `@any`: one message, handed to one agent that is free (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from functools import partial

import pytest
from click.testing import CliRunner

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.main import app
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.usage.limit import LimitSeen
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.pool.conftest import SeatOf
from tests.server.seat import Seat


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
    told = CliRunner().invoke(app, ["trace", sent["message_id"], "--root", str(pooled.root)]).output
    assert "for @worker, taken at" in told, told


def test_two_messages_go_to_two_agents_and_a_third_to_the_first_who_has_read_his(agent_team: MakeTeam) -> None:
    team = agent_team(pool="on")
    admin, first, second = (team[name] for name in ("admin", "worker-a", "worker-b"))
    first.get_unread_count(), second.get_unread_count()  # they are awake
    sent = [admin.send_message(word, "@any") for word in ("one", "two", "three")]
    assert sorted(name for each in sent for name in each["receiver_ids"]) == ["worker-a", "worker-b"]
    second.read_messages()
    admin.get_unread_count()
    assert [message["id"] for message in second.read_messages()["messages"]] == [sent[2]["message_id"]]


def test_the_paused_the_sleeping_and_the_sender_get_nothing_and_nobody_of_that_kind_is_refused(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    seat("worker-a")
    pooled.interrupting.interrupt(admin, "worker-a", "pause", None, None)
    assert seat("admin").call("send_message", receiver_id="@worker", content="x")["receiver_ids"] == []
    said = CliRunner().invoke(app, ["send", "@worker", "x", "--as", "admin", "--root", str(pooled.root)])
    assert (said.exit_code, "@worker" in said.output) == (0, True), said.output
    for agent_id, to in (("admin", "@admin"), ("worker-b", "@any"), ("admin", "@boss"), ("admin", "@")):
        refused = seat(agent_id).call("send_message", receiver_id=to, content="x")
        assert refused["error"] == "agent_not_found"
        assert "@worker" in refused["message"]
        assert to not in refused["message"].partition(" for: ")[2].partition(" (")[0].split(", ")


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
    services.awake.uptime = lambda: clock.now.timestamp()
    services.messages.send(admin, Draft(content="x", receiver_id="@worker"))
    clock.advance(29)
    services.offers.became_free()
    assert services.derived_notices.waiting("admin") == []
    clock.advance(2)
    services.offers.became_free()
    services.offers.became_free()
    assert [notice.action for notice in services.derived_notices.waiting("admin")] == ["not_taken"]


def test_a_task_for_whoever_is_free_has_one_assignee_and_the_rest_wait_for_their_turn(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    seat("worker-a"), seat("worker-b")
    each = (("one", "@worker", "medium"), ("two", "@any", "urgent"), ("three", "@any", "low"))
    tasks = [{"title": name, "assignee_id": to, "priority": priority} for name, to, priority in each]
    made = seat("admin").call("create_tasks_batch", tasks=tasks)["tasks"]
    assert {made[0]["assignee_id"], made[1]["assignee_id"]} == {"worker-a", "worker-b"}
    assert (made[2]["assignee_id"], made[2]["status"]) == (None, "todo")
    first, third = made[0]["assignee_id"], made[2]["task_id"]
    assert [notice.task_id for notice in pooled.derived_notices.waiting(first)] == [made[0]["task_id"]]
    status = seat("admin").call("get_message_status", message_id=third)
    assert (status["taken_by"], status["state"]) == (None, "waiting")
    seat(first).call("get_notifications")
    assert seat(first).call("get_next_action")["task"]["task_id"] == made[0]["task_id"]
    seat(first).call("report_completed", result="success")
    assert pooled.workspace.tasks.get(third).assignee_id == first
    status = seat("admin").call("get_message_status", message_id=third)
    assert (status["taken_by"], status["state"]) == (first, "taken")
    told = CliRunner().invoke(app, ["trace", third, "--root", str(pooled.root)])
    assert f"admin → {first}: taken" in told.output, told.output
    assert pooled.offers.open.open() == []


def test_a_task_waits_for_its_dependencies_its_status_and_somebody_with_the_skills(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    pooled.agents.registry.update("worker-b", skills=["ui"])
    seat("worker-a"), seat("worker-b")
    (first,) = pooled.task_creation.create(admin, [NewTask(title="first")])
    new = [
        NewTask(title="after", assignee_id="@any", dependencies=[first.id]),
        NewTask(title="held", assignee_id="@any", status="backlog"),
        NewTask(title="screen", assignee_id="@any", needs=["ui"]),
        NewTask(title="sound", assignee_id="@any", needs=["sound"]),
    ]
    after, held, screen, sound = pooled.task_creation.create(admin, new)
    assert (screen.assignee_id, after.assignee_id, held.assignee_id, held.status) == ("worker-b", None, None, "backlog")
    pooled.task_changes.set_status(admin, held.id, "todo")
    assert pooled.workspace.tasks.get(held.id).assignee_id == "worker-a"
    pooled.task_changes.set_status(admin, sound.id, "cancelled")
    assert [offer.about for offer in pooled.offers.open.open()] == [after.id]
    assert seat("admin").call("assign_task", task_id=after.id, assignee_id="worker-a")["success"]
    assert pooled.offers.taken(after.id)["taken_by"] == "worker-a"
    again = seat("admin").call("assign_task", task_id=held.id, assignee_id="@worker")
    assert (again["assignee_id"], again["previous_assignee_id"]) == ("worker-a", "worker-a")


def test_a_task_that_is_sent_to_whoever_is_free_comes_with_its_message(agent_team: MakeTeam) -> None:
    team = agent_team(pool="on")
    owner, admin = team["owner"], team["admin"]
    sent = owner.send_task("@admin", "page", "build it")
    assert (sent["delivery"], sent["waiting"]) == ({"@admin": {"state": "waiting"}}, False)
    assert list(team.path.glob(f"tasks/admin/{sent['task_id']}.md")) == []
    admin.get_unread_count()
    assert [task["task_id"] for task in admin.get_my_tasks()["tasks"]] == [sent["task_id"]]
    (message,) = admin.read_messages()["messages"]
    assert (message["id"], message["metadata"]["task_id"]) == (sent["message_id"], sent["task_id"])
    assert admin.get_notifications()["notifications"] == []
    assert owner.get_message_status(sent["task_id"])["taken_by"] == "admin"


def test_a_question_for_whoever_is_free_is_put_to_one_agent_and_its_task_parked_meanwhile(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    pooled.task_creation.create(admin, [NewTask(title="work", assignee_id="worker-a")])
    seat("worker-a").call("get_notifications"), seat("worker-a").call("get_next_action")
    asked = seat("worker-a").call("ask", question="red or blue?", to_id="@worker", park=True)
    assert asked["to_id"] == "@worker"
    assert pooled.doctor().examine() == [] or all(one.check != "questions" for one in pooled.doctor().examine())
    seat("worker-b").call("get_unread_count")
    assert seat("worker-b").call("get_next_action")["question_id"] == asked["question_id"]
    assert seat("worker-a").call("get_message_status", message_id=asked["question_id"])["taken_by"] == "worker-b"
    assert seat("worker-b").call("answer_question", question_id=asked["question_id"], answer="red")["success"]
    waiting = seat("worker-b").call("ask", question="and then?", to_id="@admin")
    assert waiting["to_id"] == "@admin"
    assert seat("worker-a").call("answer_question", question_id=waiting["question_id"], answer="x")["success"] is False
    assert seat("owner").call("answer_question", question_id=waiting["question_id"], answer="green")["success"]
    assert [offer.about for offer in pooled.offers.open.open()] == []
    assert seat("worker-b").call("ask", question="who?", to_id="@any")["error"] == "agent_not_found"


def test_a_delegation_for_whoever_is_free_waits_and_then_names_one_agent(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    made = seat("admin").call("delegate_to_chat_session", target_agent_id="@worker", purpose="ask about colours")
    assert "@worker" in made["instruction"]
    assert pooled.delegations.offered("admin") == []
    assert pooled.derived_notices.waiting("admin") == []
    seat("worker-b").call("get_unread_count")
    (delegation,) = pooled.delegations.offered("admin")
    assert delegation.target_agent_id == "worker-b"
    assert [notice.action for notice in pooled.derived_notices.waiting("admin")] == ["delegation"]
    assert pooled.tracking.trace(delegation.id)[0]["taken_by"] == "worker-b"


def test_what_was_chosen_for_an_agent_that_is_removed_before_it_has_it_goes_to_another_one(
    pooled: Services, seat: SeatOf, admin: Agent, clock: Clock
) -> None:
    offers = pooled.offers
    sent = pooled.messages.send(admin, Draft(content="who?", receiver_id="@worker"))
    (task,) = pooled.task_creation.create(admin, [NewTask(title="dig", assignee_id="@worker")])
    for offer in offers.open.open():
        offers.open.update(offer.id, lambda found: found.taken("worker-a", clock()))  # and the process was killed
    pooled.agents.remove("worker-a")
    offers.hand_out()
    assert [offer.taken_by for offer in offers.open.open()] == [None, None]
    seat("worker-b").call("read_messages")
    assert offers.open.get(sent.message_id).taken_by == "worker-b"
    assert unread(pooled, "worker-a") == []
    offers.hand_out()
    assert pooled.workspace.tasks.get(task.id).assignee_id == "worker-b"


def test_what_a_removed_agent_has_sent_is_handed_out_and_doctor_ends_what_nobody_can_get(
    pooled: Services, seat: SeatOf
) -> None:
    for agent_id, parent_id in (("lead", "owner"), ("below", "lead")):
        pooled.agents.add(Agent(id=agent_id, role="admin", parent_id=parent_id))
    lead = pooled.agents.get("lead")
    lost = pooled.messages.send(lead, Draft(content="which of you?", receiver_id="@any")).message_id
    (task,) = pooled.task_creation.create(lead, [NewTask(title="dig", assignee_id="@worker")])
    for agent_id in ("below", "lead"):
        pooled.agents.remove(agent_id)
    seat("worker-b").call("get_unread_count")
    assert pooled.workspace.tasks.get(task.id).assignee_id == "worker-b"
    found = [one for one in pooled.doctor().examine() if one.check == "pool"]
    assert [(one.subject, "lead" in one.finding) for one in found] == [(lost, True)]
    pooled.doctor().repair(found)
    assert (pooled.offers.open.open(), pooled.offers.open.get(lost).taken_by) == ([], None)


def test_a_task_that_was_offered_and_never_written_ends_its_offer(
    pooled: Services, seat: SeatOf, admin: Agent, clock: Clock
) -> None:
    seat("worker-a")
    pooled.offers.keep(admin, "@any", "tsk_000000000000")
    pooled.offers.became_free()
    assert len(pooled.offers.open.open()) == 1
    clock.advance(61)
    pooled.offers.became_free()
    assert pooled.offers.open.open() == []


def test_a_task_stays_with_whom_it_was_given_after_the_process_that_gave_it_was_killed(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    sent = pooled.task_creation.send(admin, "@worker", "page", "build it")
    seat("worker-a"), seat("worker-b")
    pid = os.fork()
    if pid == 0:
        services = open_session(pooled.root, "demo", notifier=Recorder())
        services.outbox.store = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore
        services.offers.hand_out()
        os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    chosen = str(pooled.workspace.tasks.get(sent.task.id).assignee_id)
    pooled.offers.became_free()
    assert unread(pooled, chosen) == [sent.sent.message_id]
    assert pooled.offers.taken(sent.task.id)["taken_by"] == chosen


def test_an_agent_that_is_being_removed_gets_nothing_when_it_gives_its_task_away(
    pooled: Services, seat: SeatOf, admin: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(pooled.approvals), "require_person", lambda _: None)  # this process acts for agents, too
    (task,) = pooled.task_creation.create(admin, [NewTask(title="busy", assignee_id="worker-a")])
    seat("worker-a").call("get_next_action")
    sent = pooled.messages.send(admin, Draft(content="next?", receiver_id="@worker"))
    done = CliRunner().invoke(app, ["agent", "remove", "worker-a", "--hand-over", "--root", str(pooled.root)])
    assert done.exit_code == 0, done.output
    assert pooled.workspace.tasks.get(task.id).assignee_id == "admin"
    assert pooled.offers.open.get(sent.message_id).taken_by is None


def test_a_person_is_always_a_receiver_and_agents_come_first(
    pooled: Services, seat: SeatOf, admin: Agent, owner: Agent
) -> None:
    for _ in range(2):
        sent = seat("admin").call("send_message", receiver_id="@owner", content="look")
        assert sent["receiver_ids"] == ["owner"]
    pooled.agents.add(Agent(id="carla", role="worker", type="human", parent_id="admin"))
    seat("worker-b")
    send = partial(seat("admin").call, "send_message", receiver_id="@worker", content="who?")
    assert [send()["receiver_ids"] for _ in range(3)] == [["worker-b"], ["carla"], []]


def test_whoever_sleeps_is_started_for_what_nobody_is_free_for_another_one_for_each(
    pooled: Services, seat: SeatOf, admin: Agent
) -> None:
    for agent_id in ("worker-a", "worker-b"):
        pooled.agents.change(agent_id, command="true")
    needed = pooled.missing_sessions.needed
    pooled.task_creation.create(admin, [NewTask(title="part", assignee_id="@any")])
    (slot,) = needed()
    assert slot.purpose == "task"
    seat("admin").call("send_message", receiver_id="@worker", content="and this?")
    assert sorted(slot.agent_id for slot in needed()) == ["worker-a", "worker-b"]
    pooled.missing_sessions.put_down("worker-a")
    assert [slot.agent_id for slot in needed()] == ["worker-b"]
    seat("worker-b").call("get_unread_count")  # it is free now, and gets the message
    assert needed() == []


def test_a_task_is_traced_by_what_told_of_it(pooled: Services, seat: SeatOf, admin: Agent) -> None:
    plain, given = pooled.task_creation.create(
        admin, [NewTask(title="plain"), NewTask(title="given", assignee_id="worker-a")]
    )
    traced = partial(CliRunner().invoke, app)
    said = traced(["trace", given.id, "--root", str(pooled.root)])
    assert (said.exit_code, "worker-a" in said.output) == (0, True), said.output
    said = traced(["trace", plain.id, "--root", str(pooled.root)])
    assert (said.exit_code, "show" in said.output) == (1, True), said.output
    assert "plain" in traced(["show", plain.id, "--root", str(pooled.root)]).output
    assert "task_not_found" in traced(["trace", "tsk_000000000000", "--root", str(pooled.root)]).output
    seat("worker-b")
    sent = seat("admin").call("send_task", agent_id="@worker", title="sent", content="do it")
    rows = pooled.tracking.trace(sent["task_id"])
    assert [row["receiver_id"] for row in rows] == ["worker-b", "worker-b"]
    assert {row["id"] for row in rows} >= {sent["task_id"]}


def test_what_waits_when_the_pool_is_switched_off_is_handed_out_nevertheless(
    pooled: Services, services: Services, seat: SeatOf
) -> None:
    sent = seat("admin").call("send_message", receiver_id="@worker", content="who?")
    watch = seat("admin").call("notify_when", target="worker-a", state="idle")
    path = pooled.path / "session.yaml"
    path.write_text(path.read_text().replace("pool: 'on'", "pool: 'off'"))
    off = open_session(pooled.root, "demo", notifier=Recorder())
    assert "pool" not in off.session.features
    Seat(off, "worker-b").call("get_unread_count")
    assert unread(off, "worker-b") == [sent["message_id"]]
    Seat(off, "worker-a")
    off.contributions.end_expired()
    assert off.watches.known.get(watch["watch_id"]).ended == "met"


@pytest.mark.parametrize("policy", ["wait", "tell"])
def test_an_agent_with_a_usage_limit_gets_nothing_until_its_reset_and_is_rung_for_it_then(
    pooled: Services, seat: SeatOf, admin: Agent, clock: Clock, recorder: Recorder, policy: str
) -> None:
    pooled.workspace.registry.update("worker-a", on_limit=policy)
    seat("worker-a")
    until = clock.now + timedelta(hours=1)
    pooled.limits.saw("worker-a", "claude", LimitSeen(clock.now, "hook", until))
    sent = seat("admin").call("send_message", receiver_id="@worker", content="x")
    (task,) = seat("admin").call("create_tasks_batch", tasks=[{"title": "t", "assignee_id": "@worker"}])["tasks"]
    watch = seat("admin").call("notify_when", target="worker-a", state="available")
    assert "22:46" in watch["instruction"], watch
    pooled.workspace.registry.update("worker-a", name="Anna")
    pooled.offers.changed()
    assert (sent["receiver_ids"], task["assignee_id"], unread(pooled, "worker-a")) == ([], None, [])
    clock.now = until + timedelta(minutes=5)
    pooled.doorbell.ring("worker-a", "task", {})  # there is nothing to ring about yet
    pooled.offers.changed()
    status = seat("admin").call("get_message_status", message_id=sent["message_id"])
    assert (status["taken_by"], unread(pooled, "worker-a")) == ("worker-a", [sent["message_id"]])
    assert "state_reached" in [notice.action for notice in pooled.derived_notices.waiting("admin")]
    pooled.doorbell.ring("worker-a", "task", {})
    assert [line for agent_id, line in recorder.rings if agent_id == "worker-a"]
    seat("worker-a").call("read_messages")
    pooled.offers.changed()
    assert pooled.workspace.tasks.get(task["task_id"]).assignee_id == "worker-a"
