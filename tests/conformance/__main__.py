"""`scripts/conformance --deliveries N`: runs the suite and prints what came of it. Exit code 1 if it was not clean."""

from __future__ import annotations

import argparse
import sys

from tests.conformance.run import Plan, Report, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/conformance", description=__doc__)
    parser.add_argument("--deliveries", type=int, default=300)
    parser.add_argument("--panes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--submit-pause", type=float, default=0.02, help="seconds between the paste and the key")
    parser.add_argument("--calm", type=float, default=4.0, help="stretches the humans' pauses")
    given = parser.parse_args()
    plan = Plan(
        deliveries=given.deliveries,
        panes=given.panes,
        seed=given.seed,
        submit_pause=given.submit_pause,
        calm=given.calm,
    )
    report = run(plan)
    sys.stdout.write("\n".join(lines(report)) + "\n")
    return 0 if report.clean else 1


def lines(report: Report) -> list[str]:
    """The table, and every fault in full."""
    counts = {
        "deliveries": report.deliveries,
        "corrupted": len(report.corrupted),
        "keys into dialogs": len(report.keys),
        "keys into strangers": len(report.strangers),
        "lost": len(report.lost),
        "duplicated": len(report.twice),
    }
    rows = [f"{name:<20}{count:>7}" for name, count in counts.items()]
    rows += ["", "deferred, by reason:"]
    deferred = {reason: count for reason, count in report.reasons.items() if reason != "submitted"}
    rows += [f"  {reason:<26}{count:>7}" for reason, count in deferred.items()]
    rows += ["", "rings for strangers:", *(f"  {reason:<26}{count:>7}" for reason, count in report.refused.items())]
    rows += [
        "",
        f"{report.ignored} pastes met a dialog that opened that moment, which ignored them; no key followed",
        f"{len(report.given_up)} given up after two minutes of deferrals",
        f"{report.seconds:.0f} s, {report.acts} acts of humans, {report.by_human} lines sent off by a human's own key, "
        f"ring to key {report.entered_ms:.0f} ms (median)",
    ]
    faults = {
        "corrupted": report.corrupted,
        "key": report.keys,
        "stranger": report.strangers,
        "lost": report.lost,
        "twice": report.twice,
    }
    rows += [f"{kind}: {fault!r}" for kind, found in faults.items() for fault in found]
    return [*rows, f"{len(report.unknown)} unknown screens kept", *report.unknown[:3]]


if __name__ == "__main__":
    sys.exit(main())
