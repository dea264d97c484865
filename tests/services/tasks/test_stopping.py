"""Stopping concerns work that is being done (docs/protocol.md, Interrupts, Completion)."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import InvalidStatusTransition, Unauthorized
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.crash.stage import Seat
from tests.planned import planned
from tests.services import forks
from tests.services.tasks_support import again, dies, mailed, moved, new, notices, open_session, running, shown


def read(services: Services, agent_id: str = "worker-a") -> list[tuple[Any, Any]]:
    """Reads all notifications of an agent; their actions and tasks."""
    return [(item["action"], item["task_id"]) for item in services.notifications.read(agent_id, "task")]


@pytest.mark.parametrize("status", ["blocked", "cancelled"])
def test_what_only_waits_and_nobody_has_read_of_is_withdrawn_without_a_word(
    services: Services, owner: Agent, status: str
) -> None:
    waiting = new(services)
    services.task_changes.set_status(owner, waiting.id, status)
    assert notices(services, "worker-a") == []
    assert not forks.context(services.workspace.root).notifications.refresh("worker-a", "task").some
    assert again(services, waiting).interrupt_id is None


@pytest.mark.parametrize("former", ["backlog", "todo", "blocked", "review"])
@pytest.mark.parametrize("status", ["blocked", "cancelled"])
def test_the_withdrawal_of_a_task_that_the_agent_knows_interrupts_nobody(
    services: Services, owner: Agent, former: str, status: str
) -> None:
    if (former, status) == ("backlog", "blocked"):
        pytest.skip("not a transition")
    task = new(services)
    assert read(services) == [("task_assigned", task.id)]
    if former in ("blocked", "review"):
        moved(services, task, "in_progress", former)
    elif former == "backlog":
        services.task_changes.set_status(owner, task.id, former)
    services.task_changes.set_status(owner, task.id, status, "not now")
    (told,) = shown(services, "worker-a")
    assert (told["type"], told["action"], told["reason"]) == ("status_change", "task_withdrawn", "not now")
    pending = forks.context(services.workspace.root).notifications.refresh("worker-a", "task")
    assert (pending.some, pending.interrupts) == (True, False)
    if status == "blocked":
        services.task_changes.set_status(owner, task.id, "todo")
        assert [notice.action for notice in services.notifications.waiting("worker-a")] == ["task_assigned"]


def test_a_task_that_mail_has_brought_is_known(services: Services, owner: Agent) -> None:
    task = mailed(services)
    services.task_changes.set_status(owner, task.id, "cancelled")
    assert read(services) == [("task_withdrawn", task.id)]


def test_the_withdrawal_that_a_killed_process_left_out_is_written_by_the_next_reader(
    services: Services, owner: Agent
) -> None:
    task = new(services)
    read(services)
    services.task_changes.set_status(owner, task.id, "cancelled")
    ((name, _),) = services.workspace.notices("worker-a").unread()
    (services.workspace.notices("worker-a").path / name).unlink()
    late = forks.context(services.workspace.root)
    assert late.notifications.refresh("worker-a", "task").some
    assert read(late) == [("task_withdrawn", task.id)]
    assert not forks.context(services.workspace.root).notifications.refresh("worker-a", "task").some


def test_an_announcement_that_was_only_ended_counts_as_unread_for_ever(services: Services, owner: Agent) -> None:
    task = new(services)
    services.task_changes.set_status(owner, task.id, "blocked")
    services.task_changes.set_status(owner, task.id, "cancelled")
    late = forks.context(services.workspace.root)
    late.derived_notices.repair("worker-a")
    late.derived_notices.ensure(again(late, task))
    assert notices(late, "worker-a") == []


@pytest.mark.parametrize("status", ["blocked", "cancelled"])
def test_obeying_an_interrupt_about_another_task_leaves_the_one_in_hand_as_it_is(
    agent_team: MakeTeam, status: Literal["blocked", "cancelled"]
) -> None:
    team = agent_team()
    worker, (other,) = team["worker-a"], planned(team, "other")
    worker.update_task_status(other, "in_progress")
    (in_hand,) = planned(team, "in hand")
    worker.get_next_action()  # the first one, then the other is begun beside it
    worker.update_task_status(in_hand, "in_progress")
    team["owner"].update_task_status(other, status)
    assert [item["task_id"] for item in worker.get_notifications()["notifications"]] == [other]
    answer = worker.report_completed("blocked")
    assert (answer["task_id"], answer["status"], answer["action"]) == (other, status, "exit")
    assert [task["task_id"] for task in worker.get_my_tasks("in_progress")["tasks"]] == [in_hand]
    executions = worker.get_my_execution_history(status="running")["executions"]
    assert [execution["task_id"] for execution in executions] == [in_hand]
    mail = [message["message_type"] for message in team["admin"].read_messages()["messages"]]
    assert mail == ["status_update"]  # it was stopped, and has not failed
    done = worker.report_completed("success")
    assert (done["task_id"], done["status"]) == (in_hand, "done")


def test_what_was_read_before_a_crash_is_obeyed_after_it(services: Services, owner: Agent) -> None:
    other, in_hand = running(services, "other"), running(services, "in hand")
    session = open_session(services, "worker-a")
    services.next_action.begin(session, in_hand)
    services.task_changes.set_status(owner, other.id, "blocked")
    read(services)
    session.told_to_stop([other.id])
    dies(services, session)
    answer = Seat(services, "worker-a").call("report_completed", result="blocked")
    assert (answer["task_id"], again(services, in_hand).status) == (other.id, "in_progress")


def test_a_block_in_earnest_after_that_concerns_the_task_in_hand(services: Services, owner: Agent) -> None:
    other, in_hand = running(services, "other"), running(services, "in hand")
    seat = Seat(services, "worker-a")
    services.next_action.begin(seat.binding.live_session(), in_hand)
    services.task_changes.set_status(owner, other.id, "blocked")
    seat.call("get_notifications")
    seat.call("report_completed", result="blocked")
    assert seat.call("report_completed", result="blocked", summary="no key")["task_id"] == in_hand.id
    assert again(services, in_hand).status == "blocked"


@pytest.mark.parametrize("meanwhile", ["another's", "taken up again"])
def test_obeying_an_interrupt_whose_task_has_gone_on_changes_nothing_of_it(
    services: Services, owner: Agent, meanwhile: str
) -> None:
    other, in_hand = running(services, "other"), running(services, "in hand")
    seat = Seat(services, "worker-a")
    services.next_action.begin(seat.binding.live_session(), in_hand)
    services.task_changes.set_status(owner, other.id, "blocked")
    seat.call("get_notifications")
    if meanwhile == "another's":
        services.task_changes.assign(owner, other.id, "worker-b")
    services.task_changes.set_status(owner, other.id, "in_progress")
    before = again(services, other)
    assert seat.call("report_completed", result="blocked")["task_id"] == other.id
    assert (again(services, other), again(services, in_hand).status) == (before, "in_progress")


def test_an_idle_agent_that_obeys_an_interrupt_is_not_refused(services: Services, owner: Agent) -> None:
    seat, fresh = Seat(services, "worker-a"), Seat(services, "worker-b")
    running(services)
    seat.call("get_next_action")
    seat.call("report_completed", result="success")
    for agent_id in ("worker-a", "worker-b"):
        services.interrupting.interrupt(owner, agent_id, "blocked", None, None)
    seat.call("get_notifications")
    fresh.call("get_notifications")
    answer = seat.call("report_completed", result="blocked")
    assert (answer["task_id"], answer["status"], answer["action"]) == (None, "blocked", "exit")
    assert fresh.call("report_completed", result="blocked")["task_id"] is None


@pytest.mark.parametrize("rest", ["in review", "reported", "blocked by itself", "parked", "handed in after a stop"])
def test_an_agent_without_work_that_obeys_an_interrupt_changes_no_task(
    services: Services, owner: Agent, rest: str
) -> None:
    seat, task = Seat(services, "worker-a"), running(services, done_when=["review"] if rest[0] in "ih" else [])
    seat.call("get_next_action")
    if rest == "handed in after a stop":
        services.task_changes.set_status(owner, task.id, "blocked")
        seat.call("get_notifications")
        services.task_changes.set_status(owner, task.id, "in_progress")
    if rest == "reported":
        seat.call("report_task_completion", task_id=task.id, status="completed", message="all of it")
    elif rest == "parked":
        seat.call("ask", to_id="admin", question="Which one?", park=True)
    else:
        result = "blocked" if rest == "blocked by itself" else "success"
        seat.call("report_completed", result=result, summary="all of it")
    before = again(services, task)
    services.interrupting.interrupt(owner, "worker-a", "blocked", None, None)
    seat.call("get_notifications")
    answer = seat.call("report_completed", result="blocked", summary="I stop")
    of_a_stop_before = task.id if rest == "handed in after a stop" else None
    assert (answer["task_id"], answer["action"]) == (of_a_stop_before, "exit")
    assert again(services, task) == before


def test_an_interrupt_without_a_task_ends_the_one_that_was_begun_since(services: Services, owner: Agent) -> None:
    seat = Seat(services, "worker-a")
    services.interrupting.interrupt(owner, "worker-a", "blocked", None, None)
    seat.call("get_notifications")
    task = new(services)
    assert seat.call("get_next_action")["task"]["task_id"] == task.id
    assert seat.call("report_completed", result="blocked", summary="I stop")["task_id"] == task.id
    assert again(services, task).status == "blocked"


@pytest.mark.parametrize("action", ["blocked", "cancel"])
def test_an_interrupt_without_a_task_speaks_of_none(services: Services, owner: Agent, action: str) -> None:
    services.interrupting.interrupt(owner, "worker-a", action, None, "fire drill")
    (told,) = shown(services, "worker-a")
    assert (told["action"], told["task_id"], told["reason"]) == (action, None, "fire drill")
    assert told["message"] == services.texts("interrupt.stop.message")


@pytest.mark.parametrize("gone", [False, True])
def test_of_two_stopped_tasks_the_answer_to_the_first_names_the_second(
    services: Services, owner: Agent, gone: bool
) -> None:
    first, second = running(services, "first"), running(services, "second")
    seat = Seat(services, "worker-a")
    services.next_action.begin(seat.binding.live_session(), first)
    for task in (first, second):
        services.task_changes.set_status(owner, task.id, "blocked")
    seat.call("get_notifications")
    answer = seat.call("report_completed", result="blocked", summary="I stop")
    assert (answer["task_id"], answer["action"]) == (first.id, "exit")
    assert answer["instruction"] == services.texts("next.exit.stopped", task_id=second.id)
    if gone:
        services.task_changes.assign(owner, second.id, "worker-b")
    before = again(services, second)
    answer = seat.call("report_completed", result="blocked", summary="I stop", task_id=second.id)
    assert (answer["task_id"], second.id in answer["instruction"]) == (second.id, False)
    assert (again(services, second) == before) == gone
    assert seat.binding.live_session().record.stopped is None


def test_a_report_may_name_its_task(services: Services) -> None:
    seat = Seat(services, "worker-a")
    named, in_hand = running(services, "named"), running(services, "in hand")
    services.next_action.begin(seat.binding.live_session(), in_hand)
    answer = seat.call("report_completed", result="success", task_id=named.id)
    assert (answer["task_id"], answer["status"]) == (named.id, "done")
    assert again(services, in_hand).status == "in_progress"
    session = seat.binding.live_session()
    with pytest.raises(Unauthorized):
        services.next_action.reported_task(
            services.agents.get("worker-a"), session, "success", new(services, "theirs", "worker-b").id
        )


def test_an_interrupt_about_a_task_that_the_agent_never_had_is_never_shown(services: Services, owner: Agent) -> None:
    task = running(services)
    services.task_changes.set_status(owner, task.id, "blocked")
    (notice,) = notices(services, "worker-a")
    theirs = services.workspace.notices("worker-b")
    copied = services.workspace.notices("worker-a").path / next(iter(theirs.path.parent.glob("worker-a/*.md"))).name
    text = copied.read_text().replace("target_agent_id: worker-a", "target_agent_id: worker-b")
    (theirs.path / copied.name).write_text(text.replace(notice.id, "ntf_0123456789ab"))
    late = forks.context(services.workspace.root)
    assert late.notifications.refresh("worker-a", "task").interrupts
    assert not late.notifications.refresh("worker-b", "task").some


@pytest.mark.parametrize("by", ["admin", "owner"])
def test_a_parked_task_is_stopped_for_good_by_whoever_blocks_it(services: Services, clock: Clock, by: str) -> None:
    worker, task = services.agents.get("worker-a"), running(services)
    session = open_session(services, "worker-a")
    services.next_action.begin(session, task)
    question, _ = services.next_action.ask(worker, session, Asking(question="which?", to_id="admin", park=True))
    clock.advance(1)
    _, previous = services.task_changes.set_status(services.agents.get(by), task.id, "blocked", "not at all")
    action = services.next_action.next_action(worker, session)
    assert (action["action"], "parked" in action["instruction"]) == ("exit", False)
    services.questions.answer(services.agents.get("admin"), question.id, "this one")
    late = forks.context(services.workspace.root)
    late.contributions.tell("looked")
    found = again(late, task)
    assert (previous, found.status, found.blocked_reason) == ("blocked", "blocked", "not at all")
    assert not late.notifications.refresh("worker-a", "task").interrupts
    assert "task_withdrawn" in [item["action"] for item in shown(late, "worker-a")]


def test_blocking_the_parent_stops_a_parked_part_of_it_too(services: Services, owner: Agent) -> None:
    parent = new(services, "parent", "admin")
    worker, part = services.agents.get("worker-a"), running(services, "part", parent=parent.id)
    session = open_session(services, "worker-a")
    services.next_action.begin(session, part)
    question, _ = services.next_action.ask(worker, session, Asking(question="which?", to_id="admin", park=True))
    services.task_changes.set_status(owner, parent.id, "blocked")
    services.questions.answer(services.agents.get("admin"), question.id, "this one")
    assert again(services, part).status == "blocked"


def test_who_has_blocked_a_task_cannot_block_it_again(services: Services, owner: Agent, admin: Agent) -> None:
    task = running(services)
    services.task_changes.set_status(owner, task.id, "blocked")
    with pytest.raises(InvalidStatusTransition):
        services.task_changes.set_status(owner, task.id, "blocked")
    services.task_changes.set_status(admin, task.id, "blocked", "and I say so")
    assert again(services, task).blocked_reason == "and I say so"
    assert [notice.action for notice in services.notifications.waiting("worker-a")] == ["blocked"]
