"""`python -m tests.faults.starved ROOT`: everyday operations in a process that may open no more files; prints their
results, then those with enough descriptors."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from tests.faults.everyday import context, tried


def main(root: Path) -> None:
    outcomes = [tried(context(root))]  # everything is imported now
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    services = context(root)
    services.agents.all()
    lowest = os.dup(0)
    os.close(lowest)
    for spare in range(4):
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, hard))
        outcomes.append(tried(services))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    outcomes.append(tried(context(root)))
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
