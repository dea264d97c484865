"""`python -m benchmarks [--scale] [--quick] [--json] [ROW ...]`: measures the rows and prints one table."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.bench import FULL, QUICK, Bench
from benchmarks.rows import ROWS
from benchmarks.scale.rows import ROWS as SCALE_ROWS
from benchmarks.table import Finding, Line, Row, markdown

SLOWING = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONDEVMODE", "PYTHONTRACEMALLOC")
"""Variables that containers set and a user's shell does not: with the first, each printed line is a write(2)."""


def main() -> int:
    """Exit code 1 when a bound was missed, so that a release script can ask."""
    arguments = _arguments()
    for name in SLOWING:
        os.environ.pop(name, None)
    rows = SCALE_ROWS if arguments.scale else ROWS
    chosen = [row for row in rows if row.name in arguments.rows or not (arguments.rows or row.by_name_only)]
    options: dict[str, Any] = {"dir": arguments.directory, "ignore_cleanup_errors": True}  # a relay may still write
    with tempfile.TemporaryDirectory(prefix="mam-bench-", **options) as directory:
        bench = Bench(Path(directory), QUICK if arguments.quick else FULL)
        lines = [_measured(row, bench) for row in chosen]
    if arguments.json:
        print(json.dumps([line.as_json() for line in lines], ensure_ascii=False, indent=2))
    else:
        print("\n".join(markdown(lines)))
    return int(any(line.verdict == "MISSED" for line in lines))


def _measured(row: Row, bench: Bench) -> Line:
    """The row's line. A row that breaks is a miss, and the others are still measured."""
    began = time.monotonic()
    try:
        finding = row.measure(bench)
    except Exception as error:  # noqa: BLE001 - a door: whatever breaks in a row is told here
        traceback.print_exc()
        finding = Finding(0.0, f"broke: {type(error).__name__}", sound=False)
    line = Line(row.title.format(**asdict(bench.scale)), row, finding)
    print(f"{row.name}: {time.monotonic() - began:.0f} s {line.verdict}", file=sys.stderr)
    return line


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--scale", action="store_true", help="processor time of small sessions and of large ones")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, nothing larger than 10 000")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.add_argument("--directory", metavar="DIR", help="the disk to measure (default: the temporary directory's)")
    named = "; with --scale: ".join(", ".join(row.name for row in rows) for rows in (ROWS, SCALE_ROWS))
    parser.add_argument("rows", nargs="*", metavar="ROW", help=named)
    arguments = parser.parse_args()
    if unknown := set(arguments.rows) - {row.name for row in (SCALE_ROWS if arguments.scale else ROWS)}:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
