"""Writes `multi_agent_mcp/toolkit/methods.pyi`: what an agent's methods take and say, from the tools."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types
import typing
from pathlib import Path
from textwrap import indent
from typing import Any

from pydantic import BaseModel

from multi_agent_mcp.features import Features
from multi_agent_mcp.features.ours import OURS
from multi_agent_mcp.server.tools import tools_of
from multi_agent_mcp.toolkit import methods

if typing.TYPE_CHECKING:
    from multi_agent_mcp.server.calls import Tool

STUB = Path(inspect.getfile(methods)).with_suffix(".pyi")
HEAD = f'''# Written by scripts/stub from the tools in server/tools/: edit them, and run it again.
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from multi_agent_mcp.server.calls import Tool

class ToolMethods:
    """{methods.ToolMethods.__doc__}"""

    @property
    def _tools(self) -> Mapping[str, Tool]: ...
    def _call(self, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]: ...
'''


def written(annotation: Any) -> str:
    """The annotation of a tool's argument as a caller has to know it: plain values, no models, no bounds."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return written(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(map(written, arguments)))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is list:
        return f"Sequence[{written(arguments[0])}]"
    if origin is dict:
        return f"Mapping[{', '.join(map(written, arguments))}]"
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "Mapping[str, Any]"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).removeprefix("typing.")


def method(tool: Tool) -> str:
    parameters = list(inspect.signature(tool.fn, eval_str=True).parameters.values())[1:]
    given = [
        f"{each.name}: {written(each.annotation)}" + ("" if each.default is each.empty else f" = {each.default!r}")
        for each in parameters
    ]
    words = inspect.cleandoc(tool.fn.__doc__ or "")
    head = f"def {tool.name}({', '.join(['self', *given])}) -> dict[str, Any]:"
    return indent(f'{head}\n    """{indent(words, "    ").strip()}"""\n', "    ")


def stub() -> str:
    tools = tools_of(Features(OURS)).values()  # of features, too, that a session has to switch on
    text = HEAD + "\n" + "\n".join(map(method, (tool for tool in tools if tool.roles)))
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
    return subprocess.run(ruff, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
