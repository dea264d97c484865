"""`python -m tests.partition [--letters N] [--seed N]`: the long form. Exit code 1 when anything is wrong."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.partition.run import run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="partition-") as base:
        wrong = run(Path(base), given.letters, lambda line: sys.stdout.write(f"{line}\n"), given.seed)
    sys.stdout.write("\n".join(wrong[:20] or ["nothing lost, nothing twice, the same everywhere"]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
