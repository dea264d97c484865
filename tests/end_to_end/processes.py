"""Jobs that the system tests run in separate processes: `python -m tests.end_to_end.processes JOB ARGUMENT…`.

A job prints `ready`, waits for a line on its standard input, and prints the results acknowledged to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.services.validation import Draft


def text(tag: str, number: int) -> str:
    """A content that shows whether it is whole."""
    return f"{tag}-{number}\n" + "本文\r\n---\n" * 200 + f"end {tag}-{number}"


def is_whole(content: str) -> bool:
    first, _, _ = content.partition("\n")
    tag, _, number = first.rpartition("-")
    return number.isdigit() and content == text(tag, int(number))


def send(root: str, session: str, sender: str, receiver: str, count: str) -> None:
    """Sends `count` messages; prints the id of each when it has been acknowledged."""
    services = open_session(Path(root), session)
    me = services.agents.get(sender)
    _start()
    for number in range(int(count)):
        sent = services.messages.send(me, Draft(content=text(sender, number), receiver_id=receiver))
        _say(sent.message_id)


def update(root: str, session: str, agent: str, key: str, count: str) -> None:
    """Sets one field of one agent again and again."""
    registry = open_session(Path(root), session).workspace.registry
    _start()
    for number in range(1, int(count) + 1):
        registry.update(agent, **{key: number})
        _say(str(registry.get(agent).extra[key]))


def _start() -> None:
    _say("ready")
    sys.stdin.readline()


def _say(line: str) -> None:
    """Prints a line in one write of less than a page, which is atomic in a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


JOBS: dict[str, Callable[..., None]] = {"send": send, "update": update}

if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
