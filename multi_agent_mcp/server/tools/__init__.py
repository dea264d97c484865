"""The tools, by subject. A tool's docstring is its description for models, at most five lines. Which modules there are
is said by the features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from multi_agent_mcp.features import Features
from multi_agent_mcp.features.ours import ALL
from multi_agent_mcp.server.calls import Tool, by_name


def tools_of(features: Features) -> Mapping[str, Tool]:
    """The tools of a session, without what belongs to features that are off."""
    return by_name(_reduced(tool, features) for _, tools in features.loaded("tools") for tool in tools)


def _reduced(tool: Tool, features: Features) -> Tool:
    lacks = frozenset(features.foreign("arguments", tool.name))
    unsaid = frozenset(features.foreign("phrases", tool.name))
    return replace(tool, lacks=lacks, unsaid=unsaid) if lacks or unsaid else tool


TOOLS = tools_of(ALL)
UNBOUND: tuple[Tool, ...] = (TOOLS["authenticate"],)


def tools_for(tools: Mapping[str, Tool], role: str, purpose: str) -> Iterable[Tool]:
    """Those of the tools that an agent with this role may call in a session of this purpose."""
    return [tool for tool in tools.values() if role in tool.roles and purpose in tool.purposes]
