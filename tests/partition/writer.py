"""`python -m tests.partition.writer ROOT AGENT LIFE [tasks]`: works as an agent's server does. For every number on
standard input it sends that many messages, several at once, changes tasks, talks, keeps a log and reads its mail, and
with `tasks` creates, claims and reports some; prints every result that was acknowledged as a line of JSON, and at last
`{"done": true}`."""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent, Execution
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.wiring import Services

AT_ONCE = 8
BROADCAST_EVERY, NOTE_EVERY, TALK_EVERY, TASK_EVERY = 10, 20, 15, 4
NOTED = "Board"
"""The prefix of the titles of those tasks that writers change."""


@dataclass
class Work:
    """The work of one process."""

    services: Services
    me: Agent
    life: str
    session: LiveSession
    execution: Execution
    others: list[str]
    tasks: list[str]
    works_on_tasks: bool

    def send(self, number: int) -> None:
        words = f"{self.me.id} {self.life}.{number}"
        everybody = number % BROADCAST_EVERY == 0
        draft = Draft(content=words, receiver_id=None if everybody else self.others[number % len(self.others)])
        delivery = self.services.messages.send(self.me, draft).delivery
        queued = any(outcome.state == "queued" for outcome in delivery.values())
        say(sent=words, to=list(delivery), queued=queued)
        self.services.executions.log(self.execution, words)
        if number % NOTE_EVERY == 0:
            self.note(words)
        if number % TALK_EVERY == 0:
            self.talk(self.others[number % len(self.others)], words)
        if self.works_on_tasks and number % TASK_EVERY == 0:
            with suppress(Refusal):  # the hub is away: then it was not done, or nobody knows
                self.create(words) if self.me.role == "admin" else self.work(words)

    def create(self, words: str) -> None:
        """Creates tasks for whoever claims them."""
        for number in range(len(self.others)):
            self.services.task_creation.create(self.me, [NewTask(title=f"{words}.{number}")])
            say(created=f"{words}.{number}")

    def work(self, words: str) -> None:
        """Claims a task, begins it, and reports that it is completed."""
        if (task := self.services.claims.take(self.me)) is not None:
            say(claimed=task.id)
            self.services.task_changes.set_status(self.me, task.id, "in_progress")
            self.services.task_reports.report_completion(self.me, task.id, "completed", f"{words} of {task.id}")
            say(reported=f"{words} of {task.id}")

    def note(self, words: str) -> None:
        """Adds a line that names its author to a task's history, so that a lost change is detected."""
        task_id = random.choice(self.tasks)  # noqa: S311 - any of them
        change = Change(by=self.me.id, at=self.services.clock(), reason=words)
        with suppress(StorageError):  # the hub is away: then it was not made, or nobody knows
            self.services.workspace.tasks.update(task_id, noted(change))
            say(noted=words, task=task_id)

    def talk(self, other: str, words: str) -> None:
        """Begins a conversation, delegates one and asks a question, as far as the hub is there."""
        services = self.services
        with suppress(Refusal):
            services.conversations.begin(self.me, services.agents.get(other), f"talk {words}", purpose="to agree")
            services.delegations.delegate(self.me, self.session.record, other, f"delegated {words}", None)
            services.questions.ask(self.me, Asking(question=f"which one, {words}?", to_id=other), None)

    def read(self) -> None:
        """Reads mail; the next call confirms it, so a process killed before has read nothing."""
        self.session.touch()
        query = Query(limit=20, polling=False)
        with suppress(StorageError):  # a conversation's first message is read once the hub is there
            self.services.reading.read(self.me, query, lease=self.session.lease)
        self.session.written(self.session.record.unconfirmed)

    def answer(self) -> None:
        """Answers what it was asked, as far as the hub is there."""
        for number, question in enumerate(self.services.workspace.questions.open()):
            if question.to_id == self.me.id:
                words = f"{self.me.id} {self.life}.{number}"
                with suppress(Refusal):  # then it was not answered, or nobody knows
                    self.services.questions.answer(self.me, question.id, words)
                    say(answered=question.id, words=words)


def noted(change: Change) -> Callable[[Task], Task]:
    return lambda task: task.recorded(change)


def begun(root: str, agent_id: str, life: str, *tasks_too: str) -> Work:
    services = open_session(Path(root), "demo", notifier=Recorder())
    services.operations.finish()
    services.sessions.recover(agent_id)
    tasks = [task.id for task in services.workspace.tasks.all() if task.title.startswith(NOTED)]
    session = services.sessions.open(agent_id, "task")
    execution = services.executions.begin(session.record, tasks[0])
    others = sorted(set(services.agents.all()) - {agent_id})
    return Work(services, services.agents.get(agent_id), life, session, execution, others, tasks, bool(tasks_too))


def say(**facts: Any) -> None:
    """Prints a line in one write, which stays whole with several threads and when the process is killed."""
    os.write(sys.stdout.fileno(), json.dumps(facts).encode() + b"\n")


def main() -> None:
    work, numbers = begun(*sys.argv[1:]), itertools.count()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for line in sys.stdin:
            list(pool.map(work.send, itertools.islice(numbers, int(line))))
            work.read()
            work.answer()
            say(done=True)
    work.session.end()


if __name__ == "__main__":
    main()
