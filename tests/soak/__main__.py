"""`python -m tests.soak [--minutes N] [--calls N] [--agents 20] [--served N] [--seed S] [--json]`: a team at work in
bad conditions, then the books of the hosts against the files. Every second agent has a task session and a chat session
at once, so 20 agents are 30 servers. Exit code 1 when anything is wrong."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests import warm
from tests.end_to_end.quiet import quiet_environment
from tests.end_to_end.support import Team
from tests.soak import proven
from tests.soak.actions import act
from tests.soak.disturbers import Disturber, Human, Killer, Registrar, Stranger, Tmux, disturbed
from tests.soak.host import Host
from tests.soak.lives import Nursery
from tests.soak.stage import Stage
from tests.soak.verdict import complaints
from tests.soak.worktrees import SETTINGS, Merger, founded

PROGRESS_SECONDS = 10.0
SERVED_PER_CORE = 4
ADMINS = 5  # one agent of so many leads others
SHOWN = ("operations", "messages acknowledged", "kills", "servers started", "deaths of tmux", "handed out again")


def main() -> int:
    given = _arguments()
    warm.install()  # more lives in the same time
    seed = given.seed or f"{random.SystemRandom().getrandbits(32):08x}"
    base = Path(tempfile.mkdtemp(prefix="soak-"))  # removed at the end of a clean run only
    project = base / "project"
    project.mkdir()
    team = Team(project, quiet_environment(base))
    agents = _members(team, given.agents)
    work = founded(team, [agent_id for agent_id in agents if agent_id.startswith("worker")])
    with Nursery(base, team.env) as nursery:
        stage = Stage(team, agents, nursery, work, served=given.served)
        _play(stage, seed, given.minutes * 60, given.calls)
    wrong = [*stage.ledger.wrong, *complaints(stage), *proven.complaints(stage), *_doctored(stage)]
    report = _report(stage, seed, wrong)
    print(json.dumps(report, ensure_ascii=False, indent=2) if given.json else _lines(report))  # noqa: T201
    if wrong:
        print(f"the files are kept in {base}", file=sys.stderr)  # noqa: T201
        return 1
    shutil.rmtree(base)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long the team is disturbed, at most")
    parser.add_argument("--calls", type=int, default=sys.maxsize, help="ends after so many answered calls")
    parser.add_argument("--agents", type=int, default=20)
    served = (os.cpu_count() or 1) * SERVED_PER_CORE
    parser.add_argument("--served", type=int, default=served, help="how many servers run as `serve`; others are forked")
    parser.add_argument("--seed", help="what every agent and disturber draws from; printed at the end")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _members(team: Team, count: int) -> list[str]:
    """An owner (the human), admins, workers below them; returns all but the owner."""
    lines = ["session: demo", SETTINGS, "agents:", "  - {id: owner, role: owner, type: human}"]
    members, admin = [], "admin"
    for number in range(count):
        if number % ADMINS == 0:
            admin = f"admin-{number}"
            lines.append(f"  - {{id: {admin}, role: admin, parent: owner}}")
            members.append(admin)
        else:
            lines.append(f"  - {{id: worker-{number}, role: worker, parent: {admin}, workspace: worktree}}")
            members.append(f"worker-{number}")
    team.make("\n".join(lines))
    return members


def _play(stage: Stage, seed: str, seconds: float, calls: int) -> None:
    """Runs everybody for `seconds`, or so many calls. Returns when all servers have ended."""
    hosts = [
        Host(stage, agent_id, seed, act, only)
        for number, agent_id in enumerate(stage.agents)
        for only in (("task", "chat") if number % 2 == 0 else (None,))
    ]
    with tempfile.TemporaryDirectory(prefix="mam-", dir="/tmp") as short:
        tmux = Tmux(stage, seed, Path(short) / "t")
        around: list[Disturber] = [Killer(stage, seed, hosts), tmux]
        around += [Stranger(stage, seed), Registrar(stage, seed), Human(stage, seed), Merger(stage, seed)]
        with disturbed(around):
            for host in hosts:
                host.start()
            _watch(stage, time.monotonic() + seconds, calls)
            stage.over.set()
        for host in hosts:
            host.join()
        tmux.end()


def _watch(stage: Stage, until: float, calls: int) -> None:
    """Prints a line of progress now and then, to standard error."""
    counts = stage.ledger.counts
    while (left := until - time.monotonic()) > 0 and counts["operations"] < calls:
        stage.over.wait(min(PROGRESS_SECONDS, left))
        shown = ", ".join(f"{counts[name]} {name}" for name in SHOWN)
        load = os.getloadavg()[0]
        print(f"{max(left, 0):5.0f} s left, load {load:.1f}: {shown}, {len(stage.ledger.wrong)} wrong", file=sys.stderr)  # noqa: T201


def _doctored(stage: Stage) -> list[str]:
    """The problems that remain after `doctor --repair`, except those of files that were broken on purpose."""
    stage.team.run("doctor", "--repair", "--json")
    found = stage.team.run("doctor", "--json").json["findings"]
    problems = [item for item in found if item["level"] == "problem"]
    return [f"doctor: {item}" for item in problems if Path(item["subject"]).name not in stage.ledger.broken]


def _report(stage: Stage, seed: str, wrong: list[str]) -> dict[str, Any]:
    books = stage.ledger
    return {
        "seed": seed,
        "agents": len(stage.agents),
        **dict(sorted(books.counts.items())),
        "handed out": len(books.handed),
        "lost": sum("LOST" in line for line in wrong),
        "twice": sum("twice" in line for line in wrong),
        "interrupts read unseen": sum("UNSEEN" in line for line in wrong),
        "merged, not delivered": sum("NOT DELIVERED" in line for line in wrong),
        "proven, not true": sum("FALSE" in line for line in wrong),
        "wrong": wrong,
    }


def _lines(report: dict[str, Any]) -> str:
    lines = [f"{name:32} {value}" for name, value in report.items() if name != "wrong"]
    return "\n".join([*lines, *(f"WRONG {line}" for line in report["wrong"])])


if __name__ == "__main__":
    sys.exit(main())
