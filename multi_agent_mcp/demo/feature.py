"""The feature of this folder. It is read at every start."""

from __future__ import annotations

from multi_agent_mcp.features import Command, Feature

DEMO = Feature(
    name="demo",
    requires=("timeline",),
    commands={"demo": Command("Looking", ".demo.commands:demo", "Play a scene with scripted agents.")},
)
