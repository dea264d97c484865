"""`python -m tests.powercut [--cuts N] [--seconds S] [--seed X] [--unsynced]`: cuts the power under a team at work, and
looks at what is found when it comes back. Exit code 1 when anything is wrong, 2 when it cannot be tried here."""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from multi_agent_mcp.services.team.setup import add_missing, create_session
from tests.conftest import TEAM
from tests.crash.stage import MEMORY, context
from tests.powercut.cuts import Cut, cuts, moments_at_stake
from tests.powercut.findings import found_wrong
from tests.powercut.load import hosts_at_work
from tests.powercut.machine import Bench, loop_mounted, missing, recorded

CUTS_PER_RECORDING = 25
LOOK_SECONDS = 0.1


def record(bench: Bench, seconds: float, moments: int, seed: int, *, unsynced: bool) -> None:
    """Lets a team work on a recorded disk for so long, and on until there are so many moments to choose from."""
    bench.format()
    with recorded(bench) as place:
        root = place / "root"
        create_session(root, "demo", TEAM, "en")
        add_missing(context(root).agents, TEAM)
        with hosts_at_work(root, bench.socket, seed, unsynced=unsynced) as all_work:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline or len(moments_at_stake(bench.log)) < moments:
                time.sleep(LOOK_SECONDS)
                if not all_work():
                    raise RuntimeError("a host has ended")


def look_after(cut: Cut, bench: Bench) -> list[str]:
    """The problems found after a machine with this disk is switched on again."""
    disk = bench.base / "after"
    disk.write_bytes(cut.image)
    try:
        with loop_mounted(disk, bench.directory("found")) as place:
            return found_wrong(place / "root", cut.acknowledged)
    except RuntimeError as error:
        return [str(error)]


def tried(given: argparse.Namespace, chance: random.Random) -> Iterator[tuple[Cut, list[str]]]:
    """Every cut, with the complaints about it; a new recording for every few of them."""
    for first in range(0, given.cuts, CUTS_PER_RECORDING):
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as base:
            bench = Bench(Path(base))
            count = min(CUTS_PER_RECORDING, given.cuts - first)
            record(bench, given.seconds, 2 * count, chance.getrandbits(32), unsynced=given.unsynced)
            for cut in cuts(bench.image.read_bytes(), bench.log, count, chance):
                yield cut, look_after(cut, bench)


def main() -> int:
    given = _arguments()
    if (reason := missing()) is not None:
        sys.stderr.write(f"powercut: {reason}.\n")
        return 2
    seed = secrets.randbits(32) if given.seed is None else given.seed
    losses, messages, unflushed, wrong = Counter[str](), 0, 0, 0
    for cut, complaints in tried(given, random.Random(seed)):  # noqa: S311 - repeatable
        losses[cut.loss] += 1
        messages, unflushed = messages + len(cut.acknowledged), unflushed + cut.unflushed
        wrong += bool(complaints)
        for complaint in complaints:
            print(f"    {cut.moment} ({cut.loss}): {complaint}", flush=True)  # noqa: T201
    for loss, count in sorted(losses.items()):
        print(f"{count:5} cuts: {loss}")  # noqa: T201
    told = f"{losses.total()} cuts, {unflushed} unflushed writes at stake, {messages} looks for an acknowledged message"
    print(f"{told}, wrong after {wrong} cuts; seed {seed}")  # noqa: T201
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/powercut", description=__doc__)
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=8.0, help="of work, for every 25 cuts")
    parser.add_argument("--seed", type=int, help="chooses the moments and what is lost; the work differs all the same")
    parser.add_argument("--unsynced", action="store_true", help="fsync does nothing: losses must be found")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
