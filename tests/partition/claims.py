"""Many processes on three machines claim the same tasks and answer the same questions, while links are cut and hub and
relays are stopped and killed: each is won once, and its history is one line of changes on every machine."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from multi_agent_mcp.domain.history import new_value, old_value
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.services.tasks.board import NewTask
from tests.hub.support import DESK, LAPTOP, SHED, Machines, eventually, machines
from tests.partition.disturbances import disturbances, heal
from tests.partition.verdict import differing, faults, wait_until_settled
from tests.partition.writers import REPOSITORY

DELAY = 0.02
QUESTIONS_OF = 5
"""One question is asked for so many tasks."""


def claim(
    base: Path, tasks: int, processes: int, say: Callable[[str], object] = lambda _: None, seed: int = 1
) -> list[str]:
    """Plays it; returns what is wrong in the end."""
    chance, began = random.Random(seed), time.monotonic()  # noqa: S311 - to be played again
    with machines(base, LAPTOP, SHED, delay=DELAY) as made:
        questions = asked(made, tasks // QUESTIONS_OF)
        ids = prepared(made, tasks)
        names = list(made.members)
        claimers = {
            f"{names[number % 3]}-{number}": claimer(made, names[number % 3], number) for number in range(processes)
        }
        done: Counter[str] = Counter()
        while any(process.poll() is None for process in claimers.values()):
            name, disturb = chance.choice(list(disturbances(made, [], chance).items()))
            disturb()
            done[name] += 1
            time.sleep(chance.uniform(0.2, 0.8))
        won = {name: process.communicate()[0].split() for name, process in claimers.items()}
        heal(made)
        settled = wait_until_settled(made)
        say(
            f"{time.monotonic() - began:6.1f} s  {sum(map(len, won.values()))} wins of {tasks} tasks and "
            f"{len(questions)} questions by {processes} processes; settled after {settled:.1f} s; {dict(done)}"
        )
        ended = [f"{name} ended with {process.returncode}" for name, process in claimers.items() if process.returncode]
        return [*ended, *not_won_once(ids | questions, won), *not_linear(made, won), *differing(made), *faults(made)]


def prepared(made: Machines, count: int) -> set[str]:
    """The ids of so many tasks that every machine has."""
    services = made[DESK].services
    new = [NewTask(title=f"task {number}") for number in range(count)]
    ids = {task.id for task in services.task_creation.create(services.agents.get("admin"), new)}
    for task_id in ids:
        services.workspace.tasks.update(task_id, lambda task: replace(task, status="todo"))
    for machine in made.members.values():
        eventually(lambda machine=machine: {task.status for task in machine.services.workspace.tasks.all()} == {"todo"})  # type: ignore[misc]
        eventually(lambda machine=machine: {task.id for task in machine.services.workspace.tasks.all()} == ids)  # type: ignore[misc]
    return ids


def asked(made: Machines, count: int) -> set[str]:
    """The ids of so many questions to the Owner that every machine has."""
    services = made[LAPTOP].services
    asking = (Asking(question=f"which one, {number}?", to_id="owner") for number in range(count))
    ids = {services.questions.ask(services.agents.get("worker-a"), each, None).id for each in asking}
    for machine in made.members.values():
        eventually(lambda machine=machine: {each.id for each in machine.services.workspace.questions.open()} == ids)  # type: ignore[misc]
    return ids


def claimer(made: Machines, name: str, number: int) -> subprocess.Popen[str]:
    call = [sys.executable, "-m", "tests.partition.claimer", str(made[name].root), f"{name}-{number}"]
    return subprocess.Popen(call, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)


def not_won_once(ids: set[str], won: dict[str, list[str]]) -> Iterator[str]:
    wins = Counter(task_id for tasks in won.values() for task_id in tasks)
    yield from (f"{task_id} was won {wins[task_id]} times" for task_id in ids if wins[task_id] != 1)


def not_linear(made: Machines, won: dict[str, list[str]]) -> Iterator[str]:
    """Histories in which a change does not begin where the one before has ended, or that name another winner."""
    winners = {won_id: name for name, ids in won.items() for won_id in ids}
    for machine in made.members.values():
        for question in machine.services.workspace.questions.all():
            statuses = [line["status"] for line in question.history if "status" in line]
            if question.answer != winners.get(question.id) or statuses != [[None, "open"], ["open", "answered"]]:
                yield f"{machine.name}: {question.id}, won by {winners.get(question.id)}, has the history {statuses}"
        for task in machine.services.workspace.tasks.all():
            moves = [line for line in task.history if line.get("status")]
            chain = [(old_value(line, "status"), new_value(line, "status"), line["by"]) for line in moves[-2:]]
            winner = winners.get(task.id)
            if chain != [("todo", "in_progress", winner), ("in_progress", "done", winner)] or len(moves) != 3:
                yield f"{machine.name}: {task.id}, won by {winner}, has the history {chain}"
