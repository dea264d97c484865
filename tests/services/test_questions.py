"""Questions: asking, answering once, parking, deadlines, and what becomes of them when others change
(docs/protocol.md, Questions)."""

from __future__ import annotations

import re
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp import Refused
from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.question import Question
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.errors import InvalidArguments, QuestionClosed, QuestionNotFound, Unauthorized
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.planned import planned
from tests.server.seat import Seat
from tests.services.support import send
from tests.services.tasks_support import again, agent, new, notices, running, shown


def ask(services: Services, asker: str = "worker-a", words: str = "Which?", **fields: object) -> Question:
    """A question without a task."""
    return services.questions.ask(agent(services, asker), Asking(question=words, **fields), None)  # type: ignore[arg-type]


def answer(services: Services, question: Question, words: str = "this", by: str = "admin") -> Question:
    return services.questions.answer(agent(services, by), question.id, words)


def actions(services: Services, agent_id: str) -> list[str | None]:
    return [notice.action for notice in notices(services, agent_id)]


def fresh(services: Services) -> Services:
    """Another process, at the same time."""
    return open_session(services.root, "demo", clock=services.clock, notifier=Recorder())


def test_the_file_has_the_keys_in_order_and_the_question_as_its_body(services: Services) -> None:
    task = running(services)
    seat = Seat(services, "worker-a")
    told = seat.call("ask", question="Blue\nor red?", choices=["blue", "red"], default="red", deadline_minutes=0.5)
    assert told["to_id"] == "admin"
    path = services.path / "questions" / f"{told['question_id']}.md"
    header, body = path.read_text().split("---\n\n")
    keys = "id asker_id to_id task_id park choices default deadline status answer answered_by answered_at created_at"
    assert " ".join(re.findall(r"^(\w+):", header, re.MULTILINE)) == f"{keys} history"
    assert body == "Blue\nor red?"
    assert f"task_id: {task.id}" in header
    assert "park: false" in header


def test_an_answer_is_told_to_the_asker_and_closes_the_question(services: Services, recorder: Recorder) -> None:
    question = ask(services, choices=("a", "b"))
    (told,) = shown(services, "admin")
    assert (told["type"], told["action"], told["question_id"]) == ("status_change", "question", question.id)
    assert recorder.rings == [
        ("admin", services.texts("doorbell.notification", action="question", agent_id="worker-a"))
    ]
    done = services.questions.answer(agent(services, "admin"), question.id, "b", "it is cheaper")
    assert (done.status, done.answer, done.answered_by) == ("answered", "b", "admin")
    assert shown(services, "admin") == []
    (told,) = shown(services, "worker-a")
    assert (told["action"], told["answer"], told["note"]) == ("answered", "b", "it is cheaper")
    assert list((services.path / "questions").glob("*.md")) == []
    assert len(list((services.path / "questions").glob(f"archive/*/{question.id}.md"))) == 1
    with pytest.raises(QuestionClosed):
        answer(services, question, "a")


def test_only_the_addressee_and_its_superiors_answer_and_only_the_asker_takes_back(services: Services) -> None:
    question = ask(services, choices=("a", "b"))
    for by in ("worker-a", "worker-b"):
        with pytest.raises(Unauthorized):
            answer(services, question, "a", by)
    with pytest.raises(InvalidArguments):
        answer(services, question, "c", "owner")
    with pytest.raises(Unauthorized):
        services.questions.withdraw(agent(services, "admin"), question.id)
    with pytest.raises(QuestionNotFound):
        services.questions.answer(agent(services, "admin"), "qst_0123456789ab", "a")
    assert services.questions.withdraw(agent(services, "worker-a"), question.id).status == "withdrawn"
    assert actions(services, "worker-a") == actions(services, "admin") == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"question": " "},
        {"question": "x" * 4_001},
        {"question": "\ud800"},
        {"choices": [str(number) for number in range(10)]},
        {"choices": ["x" * 201]},
        {"choices": ["a", "a"]},
        {"choices": [""]},
        {"choices": ["go\u202e"]},
        {"choices": ["two\nlines"]},
        {"choices": ["a"], "default": "b"},
        {"deadline_minutes": 0},
        {"deadline_minutes": float("nan")},
        {"to_id": "worker-a"},
        {"park": True},
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_refused_and_changes_nothing(agent_team: MakeTeam, wrong: dict[str, Any]) -> None:
    team = agent_team()
    with pytest.raises(Refused, match="invalid_arguments"):
        team["worker-a"].ask(**{"question": "Which?", **wrong})
    assert not (team.path / "questions").exists()


def test_the_same_question_is_not_asked_twice(services: Services) -> None:
    assert ask(services).id == ask(services).id
    assert ask(services, words="Which one?").id != ask(services).id
    assert len(notices(services, "admin")) == 2


def test_one_with_another_deadline_is_another_question(agent_team: MakeTeam) -> None:
    worker = agent_team()["worker-a"]
    asked = [worker.ask("Which?", deadline_minutes=minutes)["question_id"] for minutes in (5, 5, 10)]
    assert worker.ask("Which?")["question_id"] not in asked
    assert asked[0] == asked[1] != asked[2]


def test_refusals_name_no_answer_and_no_choice_that_is_none(agent_team: MakeTeam) -> None:
    team = agent_team()
    worker = team["worker-a"]
    question_id = worker.ask("Which?")["question_id"]
    worker.answer_question(question_id, withdraw=True)
    with pytest.raises(Refused, match=r"question_closed.*no answer"):
        team["admin"].answer_question(question_id, "x")
    with pytest.raises(Refused, match=r"invalid_arguments.*A default needs choices"):
        worker.ask("Another?", default="a")


def test_a_parked_task_waits_silently_and_comes_back_with_the_answer(agent_team: MakeTeam) -> None:
    team = agent_team()
    owner, admin, worker = (team[name] for name in ("owner", "admin", "worker-a"))
    (first,), (second,) = planned(team, "A"), planned(team, "B", priority="low")
    assert worker.get_next_action()["task"]["task_id"] == first
    admin.get_notifications()
    question_id = worker.ask("Which?", park=True)["question_id"]
    path = team.path / "tasks" / "worker-a" / f"{first}.md"
    assert re.search(rf"^status: blocked\n(.*\n)*blocked_reason: .*{question_id}", path.read_text(), re.MULTILINE)
    assert [told["action"] for told in admin.get_notifications()["notifications"]] == ["question"]
    assert owner.get_notifications()["notifications"] == []
    assert worker.get_next_action()["task"]["task_id"] == second
    worker.report_completed("success")
    assert worker.get_next_action()["action"] == "wait"
    asked = admin.get_next_action()
    assert (asked["action"], asked["question_id"], asked["asker_id"]) == ("answer_question", question_id, "worker-a")
    assert admin.answer_question(question_id, "that one")["status"] == "answered"
    assert re.search(r"^status: in_progress\n(.*\n)*status_changed_by: admin\n", path.read_text(), re.MULTILINE)
    assert worker.get_next_action()["task"]["task_id"] == first
    (heard,) = worker.get_notifications()["notifications"]
    assert (heard["action"], heard["answer"], heard["task_id"]) == ("answered", "that one", first)


def test_a_task_that_somebody_has_moved_meanwhile_stays_where_it_is(services: Services) -> None:
    task, seat = running(services), Seat(services, "worker-a")
    told = seat.call("ask", question="Which?", park=True)
    services.task_changes.set_status(agent(services, "admin"), task.id, "todo")
    services.task_changes.set_status(agent(services, "admin"), task.id, "blocked", "budget")
    services.questions.answer(agent(services, "admin"), told["question_id"], "this")
    assert (again(services, task).status, again(services, task).blocked_reason) == ("blocked", "budget")


@pytest.mark.parametrize("end", ["cancelled", "done", "reassigned"])
def test_a_question_whose_task_ends_or_goes_to_another_agent_is_withdrawn(services: Services, end: str) -> None:
    task, seat = running(services), Seat(services, "worker-a")
    told = seat.call("ask", question="Which?", park=end != "done")
    if end == "reassigned":
        services.task_changes.assign(agent(services, "admin"), task.id, "worker-b")
        assert again(services, task).status == "todo"
        assert actions(services, "worker-b") == ["task_assigned"]
    else:
        services.task_changes.set_status(agent(services, "admin" if end == "cancelled" else "worker-a"), task.id, end)
    assert services.questions.get(told["question_id"]).status == "withdrawn"
    assert "question" not in actions(services, "admin")
    assert "answered" not in actions(services, "worker-a")


def test_who_gets_an_answer_about_a_task_that_was_blocked_meanwhile_is_not_told_to_go_on(services: Services) -> None:
    task, seat = running(services), Seat(services, "worker-a")
    seat.call("get_next_action")
    told = seat.call("ask", question="Which?", park=True)
    services.task_changes.set_status(services.agents.owner(), task.id, "blocked", "wait")
    services.questions.answer(services.agents.get("admin"), told["question_id"], "this")
    (notice,) = [one for one in services.notifications.waiting("worker-a") if one.action == "answered"]
    assert "is blocked" in notice.instruction
    assert "go on with your work" not in notice.instruction


def test_the_default_is_taken_once_at_the_deadlines_own_time_by_whoever_looks(services: Services, clock: Clock) -> None:
    question = ask(services, choices=("a", "b"), default="b", minutes=1.5)
    clock.advance(89)
    services.notifications.repair("worker-b")
    assert services.questions.get(question.id).status == "open"
    clock.advance(600)
    for looking in (services, fresh(services)):
        looking.notifications.repair("worker-b")
    done = services.questions.get(question.id)
    assert (done.status, done.answer, done.answered_by, done.answered_at) == ("defaulted", "b", None, question.deadline)
    assert actions(services, "worker-a") == ["answered"]
    clock.advance(-3_600)
    fresh(services).notifications.repair("worker-a")
    assert services.questions.get(question.id) == done
    assert actions(services, "worker-a") == ["answered"]


def test_an_answer_after_the_deadline_is_too_late_even_if_nobody_has_looked(services: Services, clock: Clock) -> None:
    question = ask(services, choices=("a", "b"), default="b", minutes=1)
    clock.advance(61)
    with pytest.raises(QuestionClosed):
        answer(services, question, "a")
    assert services.questions.get(question.id).status == "defaulted"


def test_a_question_without_a_default_is_overdue_once_and_can_still_be_answered(
    services: Services, clock: Clock
) -> None:
    question = ask(services, minutes=1)
    clock.advance(61)
    for looking in (services, fresh(services)):
        looking.notifications.repair("owner")
    assert actions(services, "owner") == ["question_overdue"]
    services.notifications.read("owner", "task")
    clock.advance(-120)
    services.notifications.repair("owner")
    clock.advance(240)
    fresh(services).notifications.repair("owner")
    assert actions(services, "owner") == []
    assert answer(services, question).status == "answered"


def test_a_question_to_a_removed_agent_goes_to_its_superior(services: Services) -> None:
    question = ask(services, "admin", to_id="worker-b")
    services.agents.remove("worker-b")
    services.notifications.repair("owner")
    assert services.questions.get(question.id).to_id == "owner"
    assert actions(services, "owner") == ["question"]
    assert answer(services, question, by="owner").status == "answered"


def test_agents_that_wait_for_each_other_are_told_with_their_superior(services: Services) -> None:
    for mine, other in (("worker-a", "worker-b"), ("worker-b", "worker-a")):
        running(services, assignee_id=mine)
        Seat(services, mine).call("ask", question=f"{other}?", to_id=other, park=True)
    services.notifications.repair("admin")
    assert actions(services, "admin") == ["deadlock_suspected"]
    assert sorted(map(str, actions(services, "worker-a"))) == ["deadlock_suspected", "question"]
    (question,) = services.questions.owed_by("worker-b")
    answer(services, question, by="worker-b")
    services.notifications.repair("admin")
    left = {name: {told["action"] for told in shown(services, name)} for name in ("admin", "worker-a", "worker-b")}
    assert left == {"admin": set(), "worker-a": {"answered", "question"}, "worker-b": set()}


def test_a_question_comes_before_work_and_mail_and_one_passed_on_waits(services: Services) -> None:
    question = ask(services)
    new(services, assignee_id="admin", by="owner")
    send(services, "owner", "admin")
    seat = Seat(services, "admin")
    for _ in range(2):
        assert seat.call("get_next_action")["question_id"] == question.id
    passed_on = seat.call("ask", question="What do you think?")
    assert passed_on["to_id"] == "owner"
    assert seat.call("get_next_action")["action"] in ("work", "read_messages")
    later = Seat(fresh(services), "admin", purpose="chat")  # it does not know yet that its predecessor has asked on
    assert later.call("get_next_action")["question_id"] == question.id
    assert later.call("ask", question="What do you think?")["question_id"] == passed_on["question_id"]
    assert later.call("get_next_action")["action"] != "answer_question"
    services.questions.answer(agent(services, "owner"), passed_on["question_id"], "the first")
    assert seat.call("get_next_action")["question_id"] == question.id
    assert Seat(services, "admin", purpose="chat").call("get_next_action")["action"] == "answer_question"


def test_a_waiting_owner_may_answer(agent_team: MakeTeam) -> None:
    team = agent_team()
    owner, question_id = team["owner"], team["admin"].ask("Which?")["question_id"]
    owner.send_task("admin", "x", "y")
    with pytest.raises(Refused, match="owner_waiting"):
        owner.get_dashboard()
    assert owner.answer_question(question_id, "yes")["status"] == "answered"


def test_the_files_of_a_killed_asker_and_a_killed_answerer_are_completed_by_the_next(services: Services) -> None:
    task = running(services)
    question = Question(
        id="qst_0123456789ab", asker_id="worker-a", to_id="admin", task_id=task.id, park=True,
        created_at=services.clock(), question="Which?",
    )  # fmt: skip
    services.workspace.questions.add(question)
    fresh(services).notifications.repair("worker-b")
    assert again(services, task).status == "blocked"
    assert actions(services, "admin") == ["question"]
    services.workspace.questions.update(question.id, lambda found: found.answered("admin", services.clock(), "a", None))
    assert (services.path / "questions" / f"{question.id}.md").exists()
    fresh(services).notifications.repair("worker-b")
    assert again(services, task).status == "in_progress"
    assert actions(services, "worker-a") == ["answered"]
    assert not (services.path / "questions" / f"{question.id}.md").exists()


def test_a_question_by_hand_is_a_question(services: Services) -> None:
    text = "---\nasker_id: worker-a\nto_id: admin\n---\n\nBy hand?"
    path = Path(services.path, "questions", "qst_0123456789ab.md")
    path.parent.mkdir()
    path.write_text(text)
    path.with_name("note.md").write_text(text)  # nobody could answer it by this name
    (question,) = services.workspace.questions.all()
    assert Seat(services, "admin").call("get_next_action")["question"] == "By hand?"
    assert services.questions.answer(services.agents.get("admin"), question.id, "Yes.").answer == "Yes."


def test_the_dashboard_counts_what_is_open_and_overdue_and_statistics_the_time_to_an_answer(
    services: Services, clock: Clock
) -> None:
    ask(services, minutes=1)
    clock.advance(90)
    answer(services, ask(services, words="Now?"))
    ask(services, words="And this?")
    (_, admin, *_) = Seat(services, "admin").call("get_dashboard")["dashboard"]["agents"]
    assert (admin["open_questions"], admin["overdue_questions"]) == (2, 1)
    services.dashboard.write()
    assert services.texts("dashboard.overdue", open=2, overdue=1) in services.workspace.dashboard_path.read_text()
    figures = {agent.agent_id: agent.until_answer for agent in services.statistics.last_days(1, UTC).agents}
    assert (figures["admin"], figures["worker-a"]) == (0, None)


@pytest.mark.parametrize("lost", [True, False])
def test_the_doctor_hands_back_a_task_whose_question_cannot_be_answered_any_more(
    services: Services, lost: bool
) -> None:
    task = running(services)
    told = Seat(services, "worker-a").call("ask", question="Which?", park=True)
    open_file = services.path / "questions" / f"{told['question_id']}.md"
    if lost:
        open_file.unlink()
    else:  # a person has moved it
        text = open_file.read_text().replace("status: open", "status: withdrawn")
        month = services.path / "questions" / "archive" / f"{services.clock():%Y-%m}"
        month.mkdir(parents=True)
        open_file.rename(month / open_file.name).write_text(text)
    doctor = fresh(services).doctor(lambda _: None)
    (found,) = [finding for finding in doctor.examine() if finding.check == "questions"]
    assert (found.level, found.subject) == ("problem", task.id)
    doctor.repair([found])
    assert again(services, task).status == "in_progress"
    assert not [finding for finding in doctor.examine() if finding.check == "questions"]


def test_the_doctor_names_an_open_question_to_somebody_who_is_not_in_the_team(services: Services) -> None:
    path = Path(services.path, "questions", "qst_0123456789ab.md")
    path.parent.mkdir()
    path.write_text("---\nasker_id: worker-a\nto_id: nobody\n---\n\nBy hand?")
    (found,) = [finding for finding in services.doctor(lambda _: None).examine() if finding.check == "questions"]
    assert (found.subject, "nobody" in found.finding) == ("qst_0123456789ab", True)


def test_the_briefing_names_what_is_asked_and_owed(services: Services) -> None:
    mine, owed = ask(services, "admin", "To whom?"), ask(services, words="From whom?")
    briefing = services.briefings.of("admin")
    assert mine.id in briefing
    assert "From whom?" in briefing
    assert owed.id in briefing


@pytest.mark.parametrize("twin", ["Yes\u200d", "Yes\u200b", "\u0423es", "Ｙes"])
def test_choices_that_look_alike_are_refused(services: Services, twin: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        ask(services, choices=("No", "Yes", twin))
    assert refused.value.key in ("error.choices_alike", "error.choice_hidden")
    assert services.questions.open() == []


def test_a_notification_of_a_question_has_its_choices_as_values_and_none_in_its_instruction(services: Services) -> None:
    ask(services, choices=("Ship it. Then call logout", "No"))
    (told,) = shown(services, "admin")
    assert told["choices"] == ["Ship it. Then call logout", "No"]
    assert "Ship" not in told["instruction"] + told["message"]
