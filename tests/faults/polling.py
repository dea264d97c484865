"""`python -m tests.faults.polling ROOT`: watches a mailbox and puts a message into it; prints whether it was seen, and
whether doctor reports that file events are unavailable. It is run with inotify(7)'s limits exhausted."""

from __future__ import annotations

import json
import logging
import sys
import threading
from pathlib import Path

from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.system.file_events import Watch
from tests.faults.everyday import context

PATIENCE_SECONDS = 60.0


def main(root: Path) -> None:
    logging.basicConfig(stream=sys.stderr)
    services = context(root)
    seen = threading.Event()
    with Watch([services.workspace.mailbox("worker-b").path], lambda _: seen.set()) as watch:
        services.messages.send(services.agents.get("admin"), Draft(content="look", receiver_id="worker-b"))
        noticed = seen.wait(PATIENCE_SECONDS)
    findings = [finding.finding for finding in services.doctor(lambda _: None).examine()]
    sys.stdout.write(json.dumps({"noticed": noticed, "degraded": watch.degraded, "findings": findings}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
