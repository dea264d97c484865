"""`python -m tests.pool.claimer ROOT COUNT`: so many processes that claim tasks at once, for two agents, until
there is none left. Prints the agent and the task of each claim."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.services.forks import context, racing


def main() -> None:
    def act(number: int) -> Sequence[str]:
        services = context(Path(sys.argv[1]))
        agent = services.agents.get(("worker-a", "worker-b")[number % 2])
        return [f"{agent.id} {task.id}" for task in iter(lambda: services.claims.take(agent), None)]

    racing(int(sys.argv[2]), act)


if __name__ == "__main__":
    main()
