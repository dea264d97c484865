"""A host that keeps its conversations: it shows an idle screen, starts its agent's server, tells its hooks of the
conversation, and keeps it in a file. It continues one by `--resume ID`, and refuses one that it does not know. While
there is a file `broken` beside them its server cannot start, and it ends; while there is `deaf` it outlives its
window."""

from __future__ import annotations

import os
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

HOME, SCREEN, X, Y = sys.argv[1:5]
asked = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else None
conversation = asked or str(uuid.uuid4())
kept = Path(HOME) / conversation
if asked is not None and not kept.exists():
    sys.stderr.write(f"No conversation found with session ID: {asked}\n")
    sys.exit(1)

if (Path(HOME) / "broken").exists():
    sys.stderr.write("Error: MCP server ipc is required and could not start\n")
    sys.exit(1)

from multi_agent_mcp.bootstrap import open_session  # noqa: E402 - a host that refuses does it at once
from multi_agent_mcp.hooks.answers import Event  # noqa: E402

sys.stdout.write("\x1b[?25l" + Path(SCREEN).read_text(encoding="utf-8").rstrip() + f"\x1b[{int(Y) + 1};{int(X) + 1}H")
sys.stdout.flush()
agent, purpose = os.environ["MULTI_AGENT_MCP_AGENT"], os.environ.get("MULTI_AGENT_MCP_PURPOSE", "task")
services = open_session(Path(os.environ["MULTI_AGENT_MCP_ROOT"]), os.environ["MULTI_AGENT_MCP_SESSION"])
services.sessions.recover(agent)
source = "startup" if asked is None else "resume"
answer = services.hooks.answer(agent, purpose, Event("SessionStart", conversation, "claude", source=source))
with kept.open("a", encoding="utf-8") as file:
    file.write(f"{source} {'briefed' if answer else 'silent'} {sys.argv[-1]}\n")
session = services.sessions.open(agent, purpose)
session.note_conversation("claude", conversation)
with suppress(OSError):
    sys.stdin.read()
while (Path(HOME) / "deaf").exists():
    time.sleep(0.05)
