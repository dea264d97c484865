"""Servers of agents: a killed one cannot say that it has ended, and other machines cannot see it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from multi_agent_mcp.domain.agent import AgentSession
from tests.hub.support import DESK, LAPTOP, SESSION, Machine, eventually, machines
from tests.hub.test_machines import send, task_for


@contextmanager
def served(machine: Machine, agent_id: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server of the agent that has opened its session."""
    where = ["--root", str(machine.root), "--session", SESSION, "--agent", agent_id]
    command = [sys.executable, "-m", "multi_agent_mcp", "serve", *where]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        ask(process, 1, "initialize", **client)
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(process: subprocess.Popen[bytes], number: int, method: str, **params: object) -> None:
    """Sends a request and waits for its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    while json.loads(process.stdout.readline()).get("id") != number:
        pass


def sessions(machine: Machine) -> list[AgentSession]:
    return [item for item in machine.services.sessions.all(ended=True) if item.agent_id == "worker-a"]


def test_a_server_that_was_killed_is_seen_to_have_ended_on_the_other_machine(tmp_path: Path) -> None:
    """Although nobody starts another one for this agent."""
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        task_id = task_for(desk, "worker-a")
        eventually(lambda: laptop.services.workspace.tasks.find(task_id))
        send(desk, "admin", "worker-a", "it died with this")
        eventually(lambda: laptop.has("worker-a", "it died with this"))
        with served(laptop, "worker-a") as process:
            ask(
                process,
                2,
                "tools/call",
                name="update_task_status",
                arguments={"task_id": task_id, "status": "in_progress"},
            )
            ask(process, 3, "tools/call", name="read_messages", arguments={})
            eventually(lambda: desk.services.sessions.alive("worker-a"))
            eventually(lambda: desk.services.workspace.executions.open("worker-a"))
            process.kill()
            eventually(lambda: not desk.services.sessions.alive("worker-a"))
        (mine,), (there,) = sessions(laptop), sessions(desk)
        assert (there.state, there.ended_at) == (mine.state, mine.ended_at)
        assert mine.state == "died"
        eventually(lambda: not desk.services.workspace.executions.open("worker-a"))
        eventually(lambda: [item for _, item in desk.services.workspace.mailbox("worker-a").unread()])


def test_a_server_that_runs_is_left_alone(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made, served(made[LAPTOP], "worker-a"):
        laptop = made[LAPTOP]
        laptop.services.sessions.recover_dead()
        assert laptop.services.sessions.alive("worker-a")
        made[DESK].services.sessions.recover_dead()
        eventually(lambda: made[DESK].services.sessions.alive("worker-a"))
