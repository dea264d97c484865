"""Tasks with conditions: who says that they are done, and who decides."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.proof import reason_with
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import AgentNotFound, InvalidArguments, InvalidStatusTransition, NotProven, Unauthorized
from multi_agent_mcp.services.tasks.checks import Verdict
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.texts import catalogue
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.tasks_support import again, inbox, moved, new, open_session, shown


def told(services: Services, agent_id: str) -> list[tuple[str | None, str | None]]:
    return [(item["action"], item.get("reason")) for item in shown(services, agent_id)]


@pytest.fixture
def reviewed(services: Services) -> Task:
    """A task in progress that its assignee's nearest superior reviews."""
    return moved(services, new(services, done_when=("review",)), "in_progress")


@pytest.fixture
def delivered(services: Services, worker_a: Agent, reviewed: Task) -> Task:
    return services.deliveries.conclude(services.deliveries.deliver(worker_a, reviewed.id, "all of it", "rest")).task


REMARKS = ["src/app.py:12: This leaks the handle.", "a b.txt:3:no such word", "C:/x.py:1: why?"]


def test_remarks_on_lines_reach_the_author_as_reason_and_whole_as_mail(services: Services, delivered: Task) -> None:
    reason = reason_with(REMARKS, "Please mend:")
    assert reason == "\n".join(["Please mend:", *REMARKS])
    services.deliveries.decide(services.agents.get("admin"), delivered.id, approve=False, reason=reason)
    assert again(services, delivered).status == "in_progress"
    assert told(services, "worker-a") == [("review_rejected", reason)]
    assert inbox(services, "worker-a") == [("status_update", "admin", reason)]


def test_a_reason_without_remarks_is_no_mail(services: Services, delivered: Task) -> None:
    services.deliveries.decide(services.agents.get("admin"), delivered.id, approve=False, reason="no tests: 3")
    assert inbox(services, "worker-a") == []


@pytest.mark.parametrize("remark", ["src/app.py", "src/app.py:12", "app.py:x: no line", ":3: no file", "a:1: x\nb", ""])
def test_a_remark_names_a_line_of_a_file(remark: str) -> None:
    with pytest.raises(InvalidArguments) as refusal:
        reason_with([remark])
    assert refusal.value.key == "error.bad_remark"


def test_a_remark_may_name_a_column_and_no_line_0() -> None:
    assert reason_with(["src/app.py:1:5: text"]) == "src/app.py:1:5: text"
    assert reason_with(["a:b.py:12: text"]) == "a:b.py:12: text"
    for wrong in ("src/app.py:0: text", "src/app.py:0:5: text"):
        with pytest.raises(InvalidArguments):
            reason_with([wrong])


def test_what_was_decided_waits_for_no_decision(services: Services, delivered: Task) -> None:
    admin = services.agents.get("admin")
    assert services.deliveries.decide(admin, delivered.id, approve=True).status == "done"
    with pytest.raises(InvalidStatusTransition):
        services.deliveries.decide(admin, delivered.id, approve=True)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_who_decides_after_another_is_told_who_has_and_what(
    services: Services, delivered: Task, first: bool, second: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has looked at the task before the first decided."""
    admin, owner = services.agents.get("admin"), services.agents.get("owner")
    seen = again(services, delivered)
    services.deliveries.decide(owner, delivered.id, approve=first, reason="first")
    monkeypatch.setattr(services.task_changes, "get", lambda _: seen)
    with pytest.raises(InvalidStatusTransition) as refusal:
        services.deliveries.decide(admin, delivered.id, approve=second, reason="second")
    sentence = services.texts.sentence(refusal.value)
    assert "owner" in sentence
    assert ("done" if first else "in_progress") in sentence
    monkeypatch.undo()
    with pytest.raises(InvalidStatusTransition, match="owner"):
        services.deliveries.review(admin, delivered.id, approve=second)


def test_an_approval_whose_task_is_given_away_before_it_is_decided_is_no_success(
    services: Services, delivered: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, owner = services.agents.get("admin"), services.agents.get("owner")
    settle = services.deliveries.conclude

    def later(task: Task, by: str | None = None) -> object:
        with pytest.raises(InvalidStatusTransition, match=r"already_approved.*admin"):
            services.deliveries.decide(owner, task.id, approve=False, reason="no")
        services.task_changes.assign(owner, task.id, "worker-b")
        return settle(task, by)

    monkeypatch.setattr(services.deliveries, "conclude", later)
    with pytest.raises(InvalidStatusTransition, match="review_is_over"):
        services.deliveries.decide(admin, delivered.id, approve=True)


class TestConditions:
    @pytest.mark.parametrize(
        ("conditions", "error", "key"),
        [
            (("lint",), InvalidArguments, "unknown_check"),
            (("review:../x",), InvalidArguments, "bad_reviewer"),
            (("review:",), InvalidArguments, "bad_reviewer"),
            (("review:nobody",), AgentNotFound, "agent_not_found"),
            (("review:worker-b",), InvalidArguments, "no_reviewer_role"),
            (("review:worker-a",), InvalidArguments, "no_reviewer_role"),
        ],
    )
    def test_those_that_nobody_can_meet_are_refused(
        self, services: Services, conditions: tuple[str, ...], error: type[Exception], key: str
    ) -> None:
        with pytest.raises(error) as refusal:
            new(services, done_when=conditions)
        assert refusal.value.args[0] == f"error.{key}"
        assert services.board.all() == []

    def test_nobody_reviews_their_own_work(self, services: Services) -> None:
        with pytest.raises(InvalidArguments) as refusal:
            new(services, assignee_id="admin", by="owner", done_when=("review:admin",))
        assert refusal.value.key == "error.reviews_oneself"
        task = new(services, assignee_id=None, by="owner", done_when=("review:admin",))
        with pytest.raises(InvalidArguments):
            services.task_changes.assign(services.agents.get("owner"), task.id, "admin")
        assert again(services, task).assignee_id is None

    def test_an_admin_adds_to_those_of_the_session_and_takes_none(self, services: Services) -> None:
        services.workspace.settings_path.write_text("checks: {tests: 'true', lint: 'true'}\ndone_when: [tests]\n")
        services.approvals.approve()
        assert new(services, done_when=()).done_when == ("tests",)
        assert new(services, done_when=("lint", "tests")).done_when == ("tests", "lint")
        assert new(services, by="owner", done_when=()).done_when == ()

    def test_nobody_has_their_own_task_reviewed_from_below(self, services: Services) -> None:
        admin = services.agents.get("admin")
        services.agents.add(Agent(id="helper", role="admin", parent_id="admin"))
        with pytest.raises(InvalidArguments) as refusal:
            new(services, assignee_id="admin", done_when=("review:helper",))
        assert refusal.value.key == "error.reviewer_not_above"
        task = new(services, assignee_id=None, done_when=("review:helper",))
        with pytest.raises(InvalidArguments):
            services.task_changes.assign(admin, task.id, "admin")
        assert new(services, assignee_id="admin", done_when=("review:owner",)).done_when == ("review:owner",)


class TestSayingSo:
    @pytest.mark.parametrize("actor", ["admin", "owner"])
    def test_nobody_else_can_call_it_done(self, services: Services, reviewed: Task, actor: str) -> None:
        with pytest.raises(NotProven):
            services.deliveries.set_status(services.agents.get(actor), reviewed.id, "done")
        assert again(services, reviewed) == reviewed

    def test_the_assignee_s_word_leads_to_review(self, services: Services, worker_a: Agent, reviewed: Task) -> None:
        services.deliveries.set_status(worker_a, reviewed.id, "done", "all of it")
        assert again(services, reviewed).status == "review"
        assert told(services, "admin") == [("review_requested", "all of it")]
        assert (
            services.next_action.next_action(services.agents.get("admin"), open_session(services, "admin"))["tasks"][0][
                "summary"
            ]
            == "all of it"
        )

    def test_a_report_by_mail_that_an_admin_reads_does_not(
        self, services: Services, worker_a: Agent, admin: Agent, reviewed: Task
    ) -> None:
        draft = Draft(
            content="done!", receiver_id="admin", message_type="task_complete", metadata={"task_id": reviewed.id}
        )
        services.messages.send(worker_a, draft)
        answer = services.reading.read(admin, Query())
        assert len(answer["reports_not_followed"]) == 1
        assert again(services, reviewed).status == "in_progress"

    def test_saying_it_twice_changes_nothing(self, services: Services, worker_a: Agent, delivered: Task) -> None:
        said_again = services.deliveries.deliver(worker_a, delivered.id, "all of it", "rest")
        assert services.deliveries.conclude(said_again).task == delivered

    def test_another_report_from_a_shared_directory_needs_another_review(
        self, services: Services, clock: Clock, admin: Agent, worker_a: Agent, delivered: Task
    ) -> None:
        (first,) = shown(services, "admin")
        services.notifications.read("admin", "task")
        clock.advance(60)
        services.deliveries.conclude(services.deliveries.deliver(worker_a, delivered.id, "more"))
        for state in (None, first["head"]):
            with pytest.raises(NotProven):
                services.deliveries.decide(admin, delivered.id, approve=True, state=state)
        (second,) = shown(services, "admin")
        done = services.deliveries.decide(admin, delivered.id, approve=True, state=second["head"])
        assert (done.status, done.completion_summary) == ("done", "more")

    def test_who_was_shown_no_state_of_several_has_to_name_one(
        self, services: Services, clock: Clock, worker_a: Agent, delivered: Task
    ) -> None:
        owner = services.agents.get("owner")
        clock.advance(60)
        task = services.deliveries.conclude(services.deliveries.deliver(worker_a, delivered.id, "more")).task
        head = str((task.delivery or {})["head"])
        with pytest.raises(NotProven, match=head):
            services.deliveries.decide(owner, task.id, approve=True)
        services.shown_states.note(owner.id, [task])
        assert services.deliveries.decide(owner, task.id, approve=True).status == "done"

    @pytest.mark.parametrize("approve", [True, False])
    def test_of_a_state_that_never_was_nothing_is_said_but_what_the_review_is_of(
        self, services: Services, owner: Agent, delivered: Task, approve: bool
    ) -> None:
        with pytest.raises(NotProven) as refused:
            services.deliveries.decide(owner, delivered.id, approve=approve, reason="no", state="deadbeef")
        said = catalogue("en").sentence(refused.value)
        assert ("not of 'deadbeef'" in said, "again" in said, "approve" in said) == (True, False, False), said

    def test_who_was_shown_another_state_does_not_approve_this_one(
        self, services: Services, clock: Clock, owner: Agent, worker_a: Agent, delivered: Task
    ) -> None:
        services.shown_states.note(owner.id, [delivered])
        clock.advance(60)
        services.deliveries.conclude(services.deliveries.deliver(worker_a, delivered.id, "more"))
        with pytest.raises(NotProven):
            services.deliveries.decide(owner, delivered.id, approve=True)

    def test_what_was_said_is_kept_when_two_processes_decide_it_at_once(
        self, services: Services, worker_a: Agent, reviewed: Task
    ) -> None:
        delivered = services.deliveries.deliver(worker_a, reviewed.id, "all of it", "rest")
        first = services.deliveries.conclude(delivered).task
        second = services.deliveries.conclude(delivered)
        assert (second.task, second.check) == (first, "passed")
        assert (first.delivery or {})["summary"] == "all of it"
        done = services.deliveries.decide(services.agents.get("admin"), delivered.id, approve=True)
        assert (done.completion_summary, done.next_steps) == ("all of it", "rest")

    def test_what_two_processes_find_done_is_done_once(self, services: Services, worker_a: Agent) -> None:
        services.workspace.settings_path.write_text("checks: {tests: 'true'}\n")
        services.approvals.approve()
        task = moved(services, new(services, done_when=("tests",)), "in_progress")
        delivered = services.deliveries.deliver(worker_a, task.id, "all of it")
        services.deliveries.examine(task.id, services.root, lambda: False)
        late = services.deliveries._run(
            delivered, "done", Change(by="worker-a", at=services.clock(), proof={}), told=False
        )
        assert (late.check, late.task) == ("passed", again(services, task))
        assert len(inbox(services, "admin")) == 1

    def test_a_check_that_failed_beside_one_that_passed_takes_nothing_back(
        self, services: Services, worker_a: Agent, reviewed: Task
    ) -> None:
        delivered = services.deliveries.deliver(worker_a, reviewed.id, "all of it", "rest")
        first = services.deliveries.conclude(delivered).task
        services.deliveries._refuse(delivered, Verdict(failed="tests"), told=False)
        assert again(services, reviewed) == first

    def test_what_is_blocked_cannot_be_delivered(
        self, services: Services, admin: Agent, worker_a: Agent, reviewed: Task
    ) -> None:
        services.task_changes.set_status(admin, reviewed.id, "blocked")
        with pytest.raises(InvalidStatusTransition):
            services.deliveries.deliver(worker_a, reviewed.id, None)

    def test_a_check_that_session_yaml_no_longer_names_is_named_in_the_outcome(
        self, services: Services, worker_a: Agent
    ) -> None:
        settings = services.workspace.settings_path
        settings.write_text("checks: {tests: 'true'}\n")
        services.approvals.approve()
        task = moved(services, new(services, done_when=("tests",)), "in_progress")
        settings.write_text("checks: {}\n")
        services.deliveries.set_status(worker_a, task.id, "done")
        outcome = services.deliveries.outcome_of(task.id).as_answer()
        assert outcome == {
            "check": "failed",
            "failed_check": "tests",
            "last_lines": services.texts("check.unknown", check="tests"),
        }


class TestReviews:
    @pytest.mark.parametrize("reviewer", ["admin", "owner"])
    def test_a_reviewer_or_its_superior_approves(self, services: Services, delivered: Task, reviewer: str) -> None:
        done = services.deliveries.decide(services.agents.get(reviewer), delivered.id, approve=True)
        assert (done.status, done.proof, done.progress) == ("done", "proven", 100)
        assert (done.completion_summary, done.next_steps, done.delivery) == ("all of it", "rest", None)
        assert inbox(services, "admin") == [("task_complete", "worker-a", "all of it")]
        assert told(services, "admin") == []

    def test_the_report_says_that_it_is_proven(self, services: Services, admin: Agent, delivered: Task) -> None:
        services.deliveries.decide(admin, delivered.id, approve=True)
        (message,) = services.reading.read(admin, Query())["messages"]
        assert message["metadata"] == {"task_id": delivered.id, "result": "success", "proof": "proven", "receipts": []}

    def test_a_reviewer_gives_it_back_and_says_why(self, services: Services, admin: Agent, delivered: Task) -> None:
        back = services.deliveries.decide(admin, delivered.id, approve=False, reason="no tests")
        assert (back.status, back.delivery) == ("in_progress", None)
        assert told(services, "worker-a") == [("review_rejected", "no tests")]
        assert told(services, "admin") == []
        session = open_session(services, "worker-a")
        services.next_action.begin(session, back)
        assert told(services, "worker-a") == [("review_rejected", "no tests")]
        for _ in range(2):  # also to an agent whose host has forgotten it
            work = services.next_action.next_action(services.agents.get("worker-a"), session)
            assert (work["action"], work["rejected"]) == ("work", {"by": "admin", "reason": "no tests"})
        assert told(services, "worker-a") == []

    @pytest.mark.parametrize("check", ["test ! -e broken", "true"])
    def test_an_unread_rejection_outlives_another_report(
        self, services: Services, admin: Agent, worker_a: Agent, check: str
    ) -> None:
        services.workspace.settings_path.write_text(f"checks: {{tests: '{check}'}}\n")
        services.approvals.approve()
        task = moved(services, new(services, done_when=("tests", "review")), "in_progress")
        services.deliveries.set_status(worker_a, task.id, "done")
        services.deliveries.decide(admin, task.id, approve=False, reason="no tests")
        (services.root / "broken").touch()
        services.deliveries.deliver(worker_a, task.id, "again")
        services.derived_notices.end(worker_a.id)  # what any call or process does while the checks run
        services.deliveries.examine(task.id, services.root, lambda: False)
        services.derived_notices.end(worker_a.id)
        assert ("review_rejected", "no tests") in told(services, "worker-a")
        services.task_changes.set_status(admin, task.id, "cancelled")
        services.derived_notices.end(worker_a.id)
        assert ("review_rejected", "no tests") not in told(services, "worker-a")

    @pytest.mark.parametrize("agent_id", ["worker-a", "worker-b"])
    def test_nobody_else_decides(self, services: Services, delivered: Task, agent_id: str) -> None:
        for approve in (True, False):
            with pytest.raises(Unauthorized):
                services.deliveries.decide(services.agents.get(agent_id), delivered.id, approve=approve)
        with pytest.raises(NotProven):
            services.deliveries.set_status(services.agents.get("worker-a"), delivered.id, "done")
        assert again(services, delivered) == delivered

    def test_every_named_reviewer_has_to_approve(self, services: Services, worker_a: Agent, admin: Agent) -> None:
        task = moved(services, new(services, done_when=("review", "review:owner")), "in_progress")
        services.deliveries.conclude(services.deliveries.deliver(worker_a, task.id, "all of it"))
        assert services.deliveries.decide(admin, task.id, approve=True).status == "review"
        assert [told(services, name) for name in ("admin", "owner")] == [[], [("review_requested", "all of it")]]
        with pytest.raises(Unauthorized):
            services.deliveries.decide(admin, task.id, approve=True)
        assert services.deliveries.decide(services.agents.get("owner"), task.id, approve=True).proof == "proven"

    def test_a_removed_reviewer_is_replaced_by_the_nearest_superior(self, services: Services, worker_a: Agent) -> None:
        services.agents.add(Agent(id="lead", role="admin", parent_id="owner"))
        task = moved(services, new(services, done_when=("review:lead",)), "in_progress")
        services.deliveries.conclude(services.deliveries.deliver(worker_a, task.id, None))
        assert [item.id for item in services.deliveries.waiting_for("lead")] == [task.id]
        services.derived_notices.repair("worker-a")
        services.agents.remove("lead")
        assert [item.id for item in services.deliveries.waiting_for("admin")] == [task.id]
        services.derived_notices.repair("worker-a")
        assert told(services, "admin") == [("review_requested", None)]

    def test_a_blocked_task_goes_nowhere_that_the_table_does_not_lead(
        self, services: Services, admin: Agent, delivered: Task
    ) -> None:
        services.deliveries.set_status(admin, delivered.id, "blocked", "stop")
        with pytest.raises(InvalidStatusTransition):
            services.deliveries.set_status(admin, delivered.id, "review")
        with pytest.raises(NotProven):
            services.deliveries.set_status(admin, delivered.id, "done")

    def test_the_board_offers_what_each_may_do(
        self, services: Services, admin: Agent, worker_a: Agent, delivered: Task
    ) -> None:
        targets = services.task_changes.targets
        assert [targets(admin, delivered)[name] for name in ("done", "in_progress")] == [None, None]
        assert isinstance(targets(worker_a, delivered)["done"], NotProven)

    def test_what_is_taken_away_is_no_longer_reviewed(self, services: Services, admin: Agent, delivered: Task) -> None:
        task, _ = services.task_changes.assign(admin, delivered.id, "worker-b")
        assert (task.status, task.delivery, told(services, "admin")) == ("todo", None, [])

    def test_an_owner_who_waits_is_told_by_mail(self, services: Services, owner: Agent, admin: Agent) -> None:
        sent = services.task_creation.send(owner, "admin", "Build", "the house", done_when=("review",))
        moved(services, sent.task, "in_progress")
        services.deliveries.conclude(services.deliveries.deliver(admin, sent.task.id, "all of it"))
        assert inbox(services, "owner") == [("status_update", "admin", "all of it")]


class TestOverruling:
    def test_a_person_overrules_with_a_reason(self, services: Services, owner: Agent, reviewed: Task) -> None:
        done, previous = services.deliveries.overrule(owner, reviewed.id, "seen it myself")
        assert (previous, done.status, done.proof) == ("in_progress", "done", "overruled")
        assert again(services, reviewed).proof == "overruled"

    def test_nobody_else_does_and_nobody_without_a_reason(
        self, services: Services, owner: Agent, admin: Agent, reviewed: Task
    ) -> None:
        with pytest.raises(InvalidArguments):
            services.deliveries.overrule(owner, reviewed.id, " ")
        with pytest.raises(Unauthorized):
            services.deliveries.overrule(admin, reviewed.id, "because")
        assert again(services, reviewed) == reviewed
