"""Operations on questions: asking with a parked task, answering, taking back, the default at the deadline."""

from __future__ import annotations

from collections.abc import Iterator

from multi_agent_mcp.domain.question import Question
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.wiring import Services
from tests.crash.invariants import notices
from tests.crash.operations.judging import whole
from tests.crash.operations.reports import task, with_work
from tests.crash.stage import Aftermath, Deed, Facts, Operation


def questions(after: Aftermath) -> list[Question]:
    return after.services.workspace.questions.all()


def told(after: Aftermath, agent_id: str, action: str) -> int:
    return sum(notice.action == action for notice in notices(after.services, agent_id))


def ask(deed: Deed) -> None:
    deed.acknowledge(deed.seat("worker-a").call("ask", question="Which?", choices=["a", "b"], park=True))


def asked(after: Aftermath) -> Iterator[str]:
    after.services.question_effects.look()
    parked = task(after).status == "blocked"
    yield from whole(after, question=len(questions(after)), parked=int(parked), told=told(after, "admin", "question"))


def with_a_question(services: Services) -> Facts:
    facts = with_work(services)
    asking = Asking(question="Which?", choices=("a", "b"), park=True)
    worker = services.agents.get("worker-a")
    question = services.questions.ask(worker, asking, services.task_changes.get(facts["task_id"]))
    return {**facts, "question_id": question.id}


def answer(deed: Deed) -> None:
    arguments = {"question_id": deed.told["question_id"], "answer": "b", "note": "cheaper"}
    deed.acknowledge(deed.seat("admin").call("answer_question", **arguments))


def answered(after: Aftermath) -> Iterator[str]:
    after.services.question_effects.look()
    (question,) = questions(after)
    back = task(after).status == "in_progress"
    settled = int(question.status == "answered")
    yield from whole(after, settled=settled, back=int(back), told=told(after, "worker-a", "answered"))
    if settled and after.services.workspace.questions.open():
        yield "it is answered and still open"


def withdraw(deed: Deed) -> None:
    arguments = {"question_id": deed.told["question_id"], "withdraw": True}
    deed.acknowledge(deed.seat("worker-a").call("answer_question", **arguments))


def withdrawn(after: Aftermath) -> Iterator[str]:
    after.services.question_effects.look()
    (question,) = questions(after)
    back = task(after).status == "in_progress"
    yield from whole(after, settled=int(question.status == "withdrawn"), back=int(back))


WORKER, ADMIN = (("worker-a", "task"),), (("admin", "task"),)

OPERATIONS = (
    Operation("ask_and_park", ask, asked, with_work, WORKER),
    Operation("answer_question", answer, answered, with_a_question, ADMIN),
    Operation("withdraw_question", withdraw, withdrawn, with_a_question, WORKER),
)
