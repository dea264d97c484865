"""A host like Claude Code with a server of ours. `mute.py LOG [calls] PROMPT`: its model ends its first turn without a
call, or with `calls` after one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.conformance import composer

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "mute", "version": "1"}}


def line(method: str, **facts: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, **facts}).encode() + b"\n"


def main(log: str, *words: str) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "multi_agent_mcp", "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    if "calls" in words:
        server.stdin.write(line("initialize", id=1, params=HELLO) + line("notifications/initialized"))
        server.stdin.write(line("tools/call", id=2, params={"name": "get_next_action", "arguments": {}}))
        server.stdin.flush()
        while b'"id":2' not in server.stdout.readline().replace(b" ", b""):
            pass
    composer.main("claude", log, "1", "0")


if __name__ == "__main__":
    main(*sys.argv[1:])
