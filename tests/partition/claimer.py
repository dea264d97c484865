"""`python -m tests.partition.claimer ROOT NAME`: answers every question that is open, then starts every task that was
not started yet, as one of many competing processes, and finishes those it has won. Prints the ids of both, one a
line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.errors import InvalidStatusTransition, QuestionClosed, StorageError
from multi_agent_mcp.wiring import Services


@dataclass
class Claimer:
    services: Services
    name: str

    def claims(self, task_id: str) -> bool:
        """Whether it was this process that started the task."""
        if not self.moves(task_id, "in_progress"):
            return False
        assert self.moves(task_id, "done"), "somebody else has finished it"
        return True

    def moves(self, task_id: str, status: str) -> bool:
        """Whether this process moved the task. A change whose answer was lost may have been made, which the task's
        history shows."""
        change = Change(by=self.name, at=self.services.clock())
        tasks = self.services.workspace.tasks
        while True:
            try:
                tasks.update(task_id, lambda task: task.move_to(status, change))
            except StorageError:  # the hub is away, or what became of it is not known: asked again
                continue
            except InvalidStatusTransition:
                lines = [line for line in tasks.get(task_id).history if line.get("status", [None, None])[1] == status]
                return [line["by"] for line in lines] == [self.name]
            return True

    def answers(self, question_id: str) -> bool:
        """Whether it is this process's answer that stands, to a question that a person on any machine may answer."""
        questions, owner = self.services.questions, self.services.agents.get("owner")
        while True:
            try:
                return questions.answer(owner, question_id, self.name).answer == self.name
            except StorageError:  # as above
                continue
            except QuestionClosed:
                return self.services.workspace.questions.get(question_id).answer == self.name


def main() -> None:
    claimer = Claimer(open_session(Path(sys.argv[1]), "demo", notifier=Recorder()), sys.argv[2])
    for question in claimer.services.workspace.questions.open():
        if claimer.answers(question.id):
            sys.stdout.write(f"{question.id}\n")
    ids = [task.id for task in claimer.services.workspace.tasks.all()]
    for task_id in sorted(ids, key=lambda item: hash((item, claimer.name))):
        if claimer.claims(task_id):
            sys.stdout.write(f"{task_id}\n")


if __name__ == "__main__":
    main()
