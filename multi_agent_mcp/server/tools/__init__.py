"""The tools, by subject. A tool's docstring is its description for models, at most five lines. Which modules there are
is said by the features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature

from multi_agent_mcp.features import Features, attempted, load
from multi_agent_mcp.features.ours import ALL
from multi_agent_mcp.server.calls import Tool


def tools_of(features: Features) -> Mapping[str, Tool]:
    """The tools of a session, without what belongs to features that are off."""
    found: dict[str, Tool] = {}
    none: Sequence[Tool] = ()
    for where in features.each("tools"):
        for tool in attempted(where, partial(_sound, where), none):
            found.setdefault(tool.name, _reduced(tool, features))  # another package cannot take the name of a tool
    return found


def _sound(where: str) -> Sequence[Tool]:
    """The tools that a feature names; those of another package are tried."""
    tools: Sequence[Tool] = tuple(load(where))
    for tool in () if where.startswith(".") else tools:
        tool.described()
    return tools


def _reduced(tool: Tool, features: Features) -> Tool:
    lacks = frozenset(features.foreign("arguments", tool.name)) | _values_lacked(tool, features)
    unsaid = frozenset(features.foreign("phrases", tool.name))
    return replace(tool, lacks=lacks, unsaid=unsaid) if lacks or unsaid else tool


def _values_lacked(tool: Tool, features: Features) -> frozenset[str]:
    names = signature(tool.fn).parameters
    return frozenset(f"{name}={value}" for name in names for value in features.foreign("choices", name))


TOOLS = tools_of(ALL)
UNBOUND: tuple[Tool, ...] = (TOOLS["authenticate"],)


def tools_for(tools: Mapping[str, Tool], role: str, purpose: str) -> Iterable[Tool]:
    """Those of the tools that an agent with this role may call in a session of this purpose."""
    return [tool for tool in tools.values() if role in tool.roles and purpose in tool.purposes]
