"""`python -m tests.soak.nursery SOCKET`: forks a process per connection, each an agent's server without a pipe.

A forked process is ready in milliseconds, while `serve` takes a second; it answers through the same middleware, and can
be killed by SIGKILL like any other. The first line of a connection names the agent; then each line is a call.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import mcp_types as types

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.server.binding import Binding
from multi_agent_mcp.server.calls import Middleware
from multi_agent_mcp.server.tools import TOOLS
from multi_agent_mcp.services.sessions.confirmation import Confirmation
from tests.end_to_end.support import SESSION


def main(path: str) -> None:
    """Forks until its standard input closes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        gc.freeze()
        print("ready", flush=True)  # noqa: T201 - to whoever started it
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _live(connection)
            connection.close()


def _live(connection: socket.socket) -> None:
    """A child's whole life; ends regularly when the connection does."""
    code = 1
    try:
        with connection.makefile("r", encoding="utf-8") as lines:
            born = json.loads(lines.readline())
            binding = Binding(open_session(Path(born["root"]), SESSION), purpose=born["purpose"])
            binding.bind_process(born["agent"], None)
            _say(connection, {"pid": os.getpid()})
            if born["bell"]:
                binding.start_background()
            middleware = Middleware(binding, TOOLS)
            for line in lines:
                call = json.loads(line)
                confirmation = Confirmation()
                result = middleware.answer(call["tool"], call["arguments"], confirmation)
                confirmation.written()
                _say(connection, _as_sent(result))
            binding.close()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def _as_sent(result: types.CallToolResult) -> dict[str, Any]:
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def _say(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1])
