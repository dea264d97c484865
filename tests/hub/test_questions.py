"""Questions on several machines: asked on one, answered on another; of two answers at once the hub takes one."""

from __future__ import annotations

from threading import Barrier, Thread

from multi_agent_mcp.domain.question import Question
from multi_agent_mcp.errors import QuestionClosed
from multi_agent_mcp.services.questions import Asking
from tests.hub.support import Machine, eventually
from tests.hub.test_notices import move
from tests.server.seat import Seat

TRIES = 6


def ask(machine: Machine, words: str) -> Question:
    """A question from the laptop's worker to the admin of the desk."""
    services = machine.services
    return services.questions.ask(services.agents.get("worker-a"), Asking(question=words), None)


def knows(machine: Machine, question: Question) -> bool:
    return machine.services.workspace.questions.find(question.id) is not None


def told(machine: Machine, agent_id: str, question: Question) -> list[str | None]:
    notices = machine.services.workspace.notices(agent_id).history()
    return [notice.action for notice in notices if notice.question_id == question.id]


def test_a_parked_task_comes_back_with_an_answer_from_another_machine(desk: Machine, laptop: Machine) -> None:
    services = desk.services
    task = services.task_creation.send(services.agents.get("owner"), "admin", "Plan", "Do it.").task
    services.owner_waits.release("owner")
    move(desk, task.id, "in_progress")
    asked = Seat(desk.services, "admin").call("ask", question="Which?", choices=["a", "b"], park=True)
    eventually(lambda: laptop.services.workspace.tasks.get(task.id).status == "blocked")
    there = laptop.services
    there.questions.answer(there.agents.get("owner"), asked["question_id"], "b", "from the laptop")
    question = there.questions.get(asked["question_id"])
    eventually(lambda: desk.services.workspace.tasks.get(task.id).status == "in_progress")
    eventually(lambda: told(desk, "admin", question) == ["answered"])


def test_of_two_answers_at_once_exactly_one_wins(desk: Machine, laptop: Machine) -> None:
    for number in range(TRIES):
        question = ask(laptop, f"Which of {number}?")
        eventually(lambda question=question: knows(desk, question))  # type: ignore[misc]
        outcomes = both_answer(question, desk, laptop)
        (won,) = [name for name, outcome in outcomes.items() if outcome is None]
        for machine in (desk, laptop):
            eventually(
                lambda machine=machine, question=question, won=won: (  # type: ignore[misc]
                    machine.services.questions.get(question.id).answered_by == won
                )
            )
        eventually(lambda question=question: told(laptop, "worker-a", question) == ["answered"])  # type: ignore[misc]


def both_answer(question: Question, desk: Machine, laptop: Machine) -> dict[str, QuestionClosed | None]:
    """The admin answers at the desk and the Owner at the laptop: the refusal of each, None for who won."""
    outcomes: dict[str, QuestionClosed | None] = {}
    together = Barrier(2)

    def answer(machine: Machine, agent_id: str) -> None:
        services = machine.services
        together.wait()
        try:
            services.questions.answer(services.agents.get(agent_id), question.id, f"of {agent_id}")
            outcomes[agent_id] = None
        except QuestionClosed as refusal:
            outcomes[agent_id] = refusal

    threads = [Thread(target=answer, args=each) for each in ((desk, "admin"), (laptop, "owner"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 2
    return outcomes
