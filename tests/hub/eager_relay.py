"""`python -m tests.hub.eager_relay relay …`: a relay that starts other processes for a hundred values."""

from __future__ import annotations

import multi_agent_mcp.hub.following
from multi_agent_mcp.__main__ import main

if __name__ == "__main__":
    multi_agent_mcp.hub.following.MANY = 100
    multi_agent_mcp.hub.following.ROUND = 100
    main()
