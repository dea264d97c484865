"""`python -m tests.crash [--short] [--without-links] [OPERATION…]`: kills every writing operation at every call that
changes the disk, looks at what is left, and prints at how many moments. Exit code 1 when anything is wrong."""

from __future__ import annotations

import argparse
import gc
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial

from tests.crash import machines, worktrees
from tests.crash.invariants import complaints
from tests.crash.operations import OPERATIONS
from tests.crash.operations.shared import SHARED
from tests.crash.stage import Operation, copied, live, looked, prepared, without_links

RELAY = "shared_relay"
OFFERING = {"shared_offer", RELAY}
"""The name under which the relay itself is killed."""
RELAY_STEP = 48
WORKTREES = "worktrees"
"""The name under which worktrees are killed, at random moments: so many, and so many in the short form."""
WORKTREE_KILLS, WORKTREE_KILLS_SHORT = 200, 6
SAMPLED = 30
"""Of so many moments the short form takes one."""
NAMES = [*OPERATIONS, WORKTREES, *SHARED, RELAY]
SAME_AS_BEFORE = ("after fsync", "after fchmod", "after chmod")


def moments_of(names: list[str], *, short: bool, first: int = 0) -> list[int]:
    """The moments at which to kill. The short form omits those at which the disk is unchanged since the previous one,
    and takes one of thirty of the rest, other ones for each operation."""
    if not short:
        return list(range(len(names)))
    distinct = [
        number
        for number, name in enumerate(names)
        if number == 0 or not (name.startswith("after") or names[number - 1] in SAME_AS_BEFORE)
    ]
    return distinct[first % min(SAMPLED, len(distinct)) :: SAMPLED]


def tried(operation: Operation, *, short: bool, first: int) -> tuple[int, Counter[str], list[str]]:
    """Kills the operation at each of its moments. Returns how many there were, the kinds of calls, the complaints."""
    with prepared(operation) as (template, told, copy):
        whole = live(operation, copied(template, copy), told, None)
        wrong = [
            f"undisturbed: {item}" for item in [*filter(None, [whole.error]), *looked(operation, copy, told, whole)]
        ]
        kinds = Counter(moment.split()[1] for moment in whole.moments if moment.startswith("before"))
        moments = moments_of(whole.moments, short=short, first=first)
        for number in moments:
            run = live(operation, copied(template, copy), told, number)
            name = f"{number} {whole.moments[number]}"
            if run.error:
                wrong.append(f"{name}: {run.error}")
            wrong += [f"{name}: {item}" for item in looked(operation, copy, told, run)]
        return len(moments), kinds, wrong


def rehearsed() -> None:
    """Imports, compiles and caches everything that a child needs, once instead of in every child, where it would be
    half of the work. This also keeps children from writing compiled files."""
    for operation in (OPERATIONS["send"], OPERATIONS["send_task"]):
        with prepared(operation) as (template, told, copy):
            run = live(operation, copied(template, copy), told, None)
            list(complaints(operation, copy, told, run.answers))
    gc.freeze()  # keeps imported objects out of collections, which would copy their pages in a child


Result = tuple[str, int, Counter[str], list[str]]
"""An operation's name, and what `tried` returns."""


def results(names: list[str], *, short: bool) -> Iterator[Result]:
    for name in names:
        if name in OPERATIONS:
            yield name, *tried(OPERATIONS[name], short=short, first=NAMES.index(name))
    if WORKTREES in names:
        kills = WORKTREE_KILLS_SHORT if short else WORKTREE_KILLS
        yield WORKTREES, kills, Counter(), worktrees.tried(kills)
    if any(name in SHARED or name == RELAY for name in names):
        yield from shared_results(names, short=short)


def shared_results(names: list[str], *, short: bool) -> Iterator[Result]:
    """Yields the results of the shared operations, in sessions of two machines: what offers to whoever is free has one
    of its own, as the others leave the agents with tasks."""
    for some in (set(names) - OFFERING, set(names) & OFFERING):
        shared = [operation for name, operation in SHARED.items() if name in some]
        if not shared and RELAY not in some:
            continue
        with machines.session() as made:
            for operation, calls, count, wrong in machines.tried(made, shared, partial(moments_of, short=short)):
                yield operation.name, count, calls, wrong
            if RELAY in some:
                count, wrong = machines.relay_tried(made, RELAY_STEP if short else 1)
                yield RELAY, count, Counter(), wrong


def main() -> int:
    given = _arguments()
    if given.without_links:
        without_links()
    rehearsed()
    points, failed, kinds = 0, 0, Counter[str]()
    for name, count, calls, wrong in results(given.operations or NAMES, short=given.short):
        points, failed, kinds = points + count, failed + len(wrong), kinds + calls
        told = f"{name:32} {count:5} kill points, {sum(calls.values()):4} calls, {len(wrong)} complaints"
        print(told, flush=True)  # noqa: T201
        for line in wrong:
            print(f"    {line}")  # noqa: T201
    print(f"{points} kill points tried, {failed} complaints; calls: {dict(kinds)}")  # noqa: T201
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/crash", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one of thirty of the moments at which the disk differs")
    parser.add_argument("--without-links", action="store_true", help="as on a file system without hard links")
    parser.add_argument(
        "operations",
        nargs="*",
        metavar="OPERATION",
        type=_operation,
        help=f"some of {', '.join(NAMES)}",
    )
    return parser.parse_args()


def _operation(name: str) -> str:
    if name not in NAMES:
        raise argparse.ArgumentTypeError(f"there is no operation {name}")
    return name


if __name__ == "__main__":
    sys.exit(main())
