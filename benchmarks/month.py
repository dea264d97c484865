"""A month of a team of ten, made up and then worked on: what it takes on the disk, and whether every command is quick.

`python -m benchmarks.month DIR` prints the table of docs/performance.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from benchmarks.past import Past
from benchmarks.team import Team
from benchmarks.timing import command_seconds
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.wiring import Services

AGENTS, DAYS = 10, 30
DAILY = {"mail": 200, "notifications": 30, "finished_tasks": 20, "executions": 20, "ended_sessions": 4}
"""The files that each agent leaves on a day; each execution has a log of `LOG_LINES`, each day a conversation."""
LOG_LINES, SPOKEN = 40, 20
COMMANDS = (
    *("unread", "read --peek", "agent list", "task list", "conversations", "watch --once", "timeline"),
    *("prune --dry-run", "doctor", "doctor --verify"),
)


def live(services: Services) -> None:
    """Puts the month into the session."""
    workspace, sign = services.workspace, services.signatures.sign
    for number in range(AGENTS - 2):
        services.agents.add(Agent(id=f"worker-{number}", parent_id="admin"))
    for agent_id in [agent_id for agent_id in workspace.registry.all() if agent_id != "owner"]:
        count = DAILY["mail"] * DAYS
        Past(workspace, every=_every(count), sign=sign).archived_mail(count, agent_id)
        for kind in ("notifications", "finished_tasks", "executions", "ended_sessions"):
            count = DAILY[kind] * DAYS
            getattr(Past(workspace, every=_every(count)), kind)(count, agent_id)
        for execution in workspace.executions.all(agent_id):
            Past(workspace).log(execution.id, LOG_LINES)
        Past(workspace).open_tasks(5, agent_id)
    for day in range(DAYS):
        Past(workspace, until=services.clock() - timedelta(days=day), sign=sign).conversation(SPOKEN)


def work(services: Services) -> None:
    """Does everyday work in the session: mail is sent, and read with all consequences."""
    for number in range(100):
        services.messages.send(services.agents.get("admin"), Draft(content=f"{number}", receiver_id="worker"))
    while services.reading.read(services.agents.get("worker"), Query())["unread_remaining"]:
        pass


def rows(*teams: Team) -> Iterator[str]:
    yield "| command | after a month | in a fresh session |\n|---|---|---|"
    for words in COMMANDS:
        costs = (command_seconds(team.command(*words.split())) for team in teams)
        yield f"| `{words}` | {' | '.join(f'{cost:.2f} s' for cost in costs)} |"


def _every(count: int) -> timedelta:
    return timedelta(days=DAYS) / count


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.month", description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR")
    directory = parser.parse_args().directory
    root, fresh = directory / "month", directory / "fresh"
    for place in (root, fresh):
        place.mkdir(parents=True)
    month, empty = Team.made(root), Team.made(fresh)
    services = month.services
    live(services)
    work(services)
    doctor = services.doctor(lambda _: None, lambda _: None)
    doctor.examine()
    for used in doctor.usage.as_answer():
        print(f"| `{used['kind']}` | {used['files']} | {used['bytes'] / 1e6:.1f} MB |")
    total = sum(used["bytes"] for used in doctor.usage.as_answer())
    print(f"{total / 1e6:.0f} MB, {total / AGENTS / DAYS / 1e3:.0f} kB for each agent and day")
    print(*rows(month, empty), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
