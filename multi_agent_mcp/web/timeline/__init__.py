"""Draws a session's timeline as one standalone SVG."""

from multi_agent_mcp.web.timeline.drawing import draw
from multi_agent_mcp.web.timeline.palette import stylesheet

__all__ = ["draw", "stylesheet"]
