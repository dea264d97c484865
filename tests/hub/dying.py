"""`python -m tests.hub.dying ROOT WRITES TASK STATUS`: moves a task of worker-a in a process that is killed before one
of its writes to the disk, the hub having taken the change already or not yet. Exit code 0: it lived."""

from __future__ import annotations

import sys
from pathlib import Path

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.notify.channels.recorder import Recorder
from multi_agent_mcp.services.tasks.creation import NewTask
from multi_agent_mcp.services.validation import Draft
from tests.services.forks import DyingFiles


def main() -> None:
    root, writes, task_id, status = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    services = open_session(root, "demo", notifier=Recorder())
    workspace = services.workspace
    actor = services.agents.get("worker-a" if "worker-a" in services.agents.by_machine().get("laptop", ()) else "admin")
    services.signatures.agents.known_key(actor.id)
    files = DyingFiles(workspace.path, writes)
    workspace.files = files
    if status == "create":
        services.task_creation.create(actor, [NewTask(title=task_id)])
    elif status == "say":
        services.messages.send(actor, Draft(content=task_id, receiver_id="admin"))
    else:
        services.task_changes.set_status(actor, task_id, status)


if __name__ == "__main__":
    main()
