"""An agent in a window: its session logs out when the file `leave` exists beside the root, and the program then stays
in its window, as a coding agent does after `logout()`."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from multi_agent_mcp.bootstrap import open_session

root = Path(os.environ["MULTI_AGENT_MCP_ROOT"])
services = open_session(root, os.environ["MULTI_AGENT_MCP_SESSION"])
session = services.sessions.open(os.environ["MULTI_AGENT_MCP_AGENT"], os.environ.get("MULTI_AGENT_MCP_PURPOSE"))
while not (root.parent / "leave").exists():
    time.sleep(0.02)
session.end()
signal.pause()
