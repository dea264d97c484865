"""The tools as methods of an agent (docs/python.md). What they take and say is in `methods.pyi`, which `scripts/stub`
writes from the tools themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multi_agent_mcp.server.calls import Tool


class ToolMethods:
    """An object that has a method for every tool that a bound agent may have."""

    @property
    def _tools(self) -> Mapping[str, Tool]:
        raise NotImplementedError

    def _call(self, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        tool = None if name.startswith("_") else self._tools.get(name)
        if tool is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return _method(self, tool)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._tools})


def _method(agent: ToolMethods, tool: Tool) -> Callable[..., dict[str, Any]]:
    """The tool as a method of the agent, with its signature and its description. What is wrong with named arguments is
    said by the call, as to every host: a loop that passes on what a model wrote gets an answer for it. No model writes
    bytes, of which the call would make text."""
    whole = inspect.signature(tool.fn)
    _, *parameters = whole.parameters.values()
    signature = whole.replace(parameters=[each for each in parameters if each.name not in tool.lacks])

    def method(*positional: Any, **named: Any) -> dict[str, Any]:
        try:
            given = signature.bind_partial(*positional).arguments
        except TypeError as error:
            raise TypeError(f"{tool.name}() got {error}") from None
        if twice := given.keys() & named:
            raise TypeError(f"{tool.name}() got multiple values for argument {min(twice)!r}")
        given |= named
        if wrong := [name for name, value in given.items() if _has_bytes(value)]:
            raise TypeError(f"{tool.name}() got bytes for argument {wrong[0]!r}, which takes text")
        return agent._call(tool, given)

    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = tool.description
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


def _has_bytes(value: Any, levels: int = 2) -> bool:
    """Whether bytes are in a value, or where arguments have texts within it: a list of mappings."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple | set) else ()
    return isinstance(value, bytes | bytearray) or (levels > 0 and any(_has_bytes(each, levels - 1) for each in inner))
