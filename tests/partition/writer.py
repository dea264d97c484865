"""`python -m tests.partition.writer ROOT AGENT FIRST LAST`: sends letters to everybody else in turn and changes tasks,
as an agent's server would. Prints each letter's words once they were acknowledged."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.notify.channels.recorder import Recorder
from multi_agent_mcp.services.validation import Draft

TASK_EVERY = 5


def main() -> None:
    root, agent_id, first, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    services = open_session(root, "demo", notifier=Recorder())
    me = services.agents.get(agent_id)
    others = sorted(set(services.agents.all()) - {agent_id})
    tasks = [task.id for task in services.workspace.tasks.all()]
    for number in range(first, last):
        words = f"{agent_id} {number}"
        services.messages.send(me, Draft(content=words, receiver_id=others[number % len(others)]))
        sys.stdout.write(f"{words}\n")
        sys.stdout.flush()
        if number % TASK_EVERY == 0:
            with suppress(Refusal):  # the hub is away
                services.workspace.tasks.update(random.choice(tasks), noted(words))  # noqa: S311 - any of them


def noted(words: str) -> Callable[[Task], Task]:
    """A change that says who made it, so that a lost one is missed."""
    return lambda task: replace(task, checklist=(*task.checklist, {"text": words, "completed": False}))


if __name__ == "__main__":
    main()
