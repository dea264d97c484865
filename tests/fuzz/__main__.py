"""`python -m tests.fuzz --minutes N [TARGET…]`: every target for its share of the time, with atheris where it is
installed (coverage leads it to new branches), else with hypothesis alone. Exit code 1 when an input was found."""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

from hypothesis import HealthCheck, settings

from tests.fuzz.targets import TARGETS

EXAMPLES_A_ROUND = 40
GRACE_SECONDS = 120
KEPT = Path(".cache") / "fuzz"  # inputs that broke something: `python -m tests.fuzz.guided TARGET FILE` tries one again


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--with", dest="engine", choices=("atheris", "hypothesis"))
    parser.add_argument("targets", nargs="*", metavar="TARGET", type=_target, help=f"some of {', '.join(TARGETS)}")
    given = parser.parse_args()
    names = given.targets or list(TARGETS)
    engine = given.engine or ("atheris" if importlib.util.find_spec("atheris") else "hypothesis")
    share = given.minutes * 60 / len(names)
    inputs, found = 0, 0
    for name in names:
        tried, complaint = (guided if engine == "atheris" else rounds)(name, share)
        inputs, found = inputs + tried, found + bool(complaint)
        print(f"{name:20} {tried:8} inputs{complaint}", flush=True)  # noqa: T201
    print(f"{inputs} inputs with {engine}, {found} of {len(names)} targets broken")  # noqa: T201
    return 1 if found else 0


def _target(name: str) -> str:
    if name not in TARGETS:
        raise argparse.ArgumentTypeError(f"there is no target {name}")
    return name


def rounds(name: str, seconds: float) -> tuple[int, str]:
    """Rounds of fresh random examples until the time is over, or one of them fails."""
    tried = 0
    target = TARGETS[name]
    inner = target.hypothesis.inner_test  # type: ignore[attr-defined]

    def counted(*arguments: object, **named: object) -> None:
        nonlocal tried
        tried += 1
        inner(*arguments, **named)

    until = time.monotonic() + seconds
    target.hypothesis.inner_test = counted  # type: ignore[attr-defined]
    once = settings(
        max_examples=EXAMPLES_A_ROUND, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )(target)
    while time.monotonic() < until:
        try:
            once()
        except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
            return tried, f"\n{traceback.format_exc()}"
    return tried, ""


def guided(name: str, seconds: float) -> tuple[int, str]:
    """libFuzzer leads; it ends its process itself, so it has one of its own."""
    KEPT.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_total_time={int(seconds) or 1}", f"-artifact_prefix={KEPT}/{name}-"]
    command = [sys.executable, "-m", "tests.fuzz.guided", name, *limits]
    done = subprocess.run(command, capture_output=True, check=False, timeout=seconds + GRACE_SECONDS)
    said = (done.stderr + done.stdout).decode(errors="replace")  # Python's traceback is on the latter
    tried = max([int(number) for number in re.findall(r"^#(\d+)\s", said, re.MULTILINE)], default=0)
    return tried, "" if done.returncode == 0 else f"\n{said[-6000:]}"


if __name__ == "__main__":
    sys.exit(main())
