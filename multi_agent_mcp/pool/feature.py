"""The features of this folder. They are read at every start."""

from __future__ import annotations

from multi_agent_mcp.features import Feature

POOL = Feature(
    name="pool",
    switch="pool",
    services={"claims": ".pool.claims:Claims"},
    answers={"claimable": "claims.offered"},
    tools=(".pool.tools:TOOLS",),
)
