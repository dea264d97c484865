"""Builds MCP results: the same JSON object as text and as structured content (docs/protocol.md, Answers)."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.server.toolbox import Answer
from multi_agent_mcp.texts import Texts

EXECUTED = "multi-agent-mcp/executed"


def success(answer: Answer) -> types.CallToolResult:
    """The result with `"success": true` and the tool's answer."""
    return _result({"success": True, **answer})


def failure(refusal: Refusal, texts: Texts, **notices: Any) -> types.CallToolResult:
    """The result with `isError`, the refusal's code, and one sentence that a model can act on."""
    answer = {"success": False, "error": refusal.code, "message": texts.sentence(refusal), **notices}
    return _result(answer, is_error=True)


def interrupted(texts: Texts, *, executed: bool) -> types.CallToolResult:
    """The result that replaces a tool's answer while an interrupt waits (docs/protocol.md, Interrupts)."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=texts("notification.interrupt"))],
        _meta={EXECUTED: executed},
    )


def _result(answer: Answer, *, is_error: bool = False) -> types.CallToolResult:
    text = json.dumps(answer, ensure_ascii=False)
    if (plain := text.encode(errors="replace").decode()) != text:  # a path need not be UTF-8
        text, answer = plain, json.loads(plain)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=answer, is_error=is_error
    )
