"""`python -m tests.hub.claimer ROOT NAME`: claims every task that nobody has, as one of many processes that want the
same. Prints what it has won, one id a line."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.notify.channels.recorder import Recorder


class Taken(Exception):
    """Somebody was faster."""


def main() -> None:
    root, name = Path(sys.argv[1]), sys.argv[2]
    tasks = open_session(root, "demo", notifier=Recorder()).workspace.tasks

    def claim(task: Task) -> Task:
        if task.extra.get("winner", name) != name:
            raise Taken
        return replace(task, extra={**task.extra, "winner": name})

    for task_id in sorted((task.id for task in tasks.all()), key=lambda item: hash((item, name))):
        while True:
            try:
                tasks.update(task_id, claim)
            except Taken:
                break
            except StorageError:  # the hub is away, or what became of it is not known: asked again
                continue
            sys.stdout.write(f"{task_id}\n")
            break


if __name__ == "__main__":
    main()
