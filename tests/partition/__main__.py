"""`python -m tests.partition [--part PART] [--messages N] [--rounds N] [--minutes N] [--seed N] [--machines N]
[--keep]`: the long form. Exit code 1 when anything is wrong."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.partition.claims import claim
from tests.partition.run import run
from tests.partition.soak import soak

TASKS, PROCESSES = 200, 16


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/partition", description=__doc__)
    parser.add_argument("--messages", "--letters", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--machines", type=int, choices=range(3, 6), default=5)
    parser.add_argument("--part", choices=("mail", "claims", "soak"), help="mail and claims unless one is named")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long the soak lasts")
    parser.add_argument("--keep", action="store_true", help="leave the machines' directories for a look")
    given = parser.parse_args()
    with ExitStack() as stack:
        base = tempfile.mkdtemp(prefix="partition-")
        if not given.keep:
            stack.callback(shutil.rmtree, base, ignore_errors=True)
        wrong = []
        if given.part == "soak":
            wrong += soak(Path(base) / "soak", 60 * given.minutes, say, given.seed, given.machines)
        if given.part in (None, "mail"):
            wrong += run(Path(base) / "mail", given.messages, given.rounds, say, given.seed, given.machines)
        if given.part in (None, "claims"):
            wrong += claim(Path(base) / "claims", TASKS, PROCESSES, say, given.seed)
    for line in wrong[:40] or ["nothing is wrong"]:
        say(line)
    return 1 if wrong else 0


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
