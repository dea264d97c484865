"""The team of most tests. It is alone here: the processes that tests start need it, and do not need pytest."""

from __future__ import annotations

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.services.team.setup import TeamFile

TEAM = TeamFile(
    agents=(
        Agent(id="owner", role="owner", type="human"),
        Agent(id="admin", role="admin", parent_id="owner"),
        Agent(id="worker-a", role="worker", parent_id="admin"),
        Agent(id="worker-b", role="worker", parent_id="admin"),
    )
)
