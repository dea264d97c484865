"""Draws a session's timeline as one standalone SVG."""

from multi_agent_mcp.web.timeline.drawing import draw, plot, stylesheet

__all__ = ["draw", "plot", "stylesheet"]
