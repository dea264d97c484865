"""Answers as MCP results: the same JSON object as text and as structured content (docs/protocol.md, Answers)."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.server.toolbox import Answer
from multi_agent_mcp.texts import Texts

EXECUTED = "multi-agent-mcp/executed"
RESERVE = 2_000  # characters for everything beside the list: hints, notification, a chat notification


def success(answer: Answer) -> types.CallToolResult:
    """`"success": true` and the tool's answer."""
    return _result({"success": True, **answer})


def failure(refusal: Refusal, texts: Texts, **told: Any) -> types.CallToolResult:
    """`isError`, a code, and one sentence a model can act on."""
    answer = {"success": False, "error": refusal.code, "message": texts.sentence(refusal), **told}
    return _result(answer, is_error=True)


def interrupted(texts: Texts, *, executed: bool) -> types.CallToolResult:
    """Replaces whatever the tool would have answered (docs/protocol.md, Interrupts)."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=texts("notification.interrupt"))],
        _meta={EXECUTED: executed},
    )


def fitting(services: Services, answer: Answer, key: str, items: list[Any]) -> Answer:
    """`answer` with as many items under `key` as fit into one answer; `truncated` when it stops early
    (docs/protocol.md, Answers)."""
    room = services.settings.limits.answer_characters - RESERVE - len(json.dumps(answer, ensure_ascii=False))
    shown: list[Any] = []
    for item in items:
        room -= len(json.dumps(item, ensure_ascii=False)) + 2
        if room < 0:
            hint = services.texts("more.list")
            return {**answer, key: shown, "total_count": len(items), "truncated": True, "how_to_continue": hint}
        shown.append(item)
    return {**answer, key: shown}


def newest_fitting(items: list[Any], characters: int) -> list[Any]:
    """The last items that fit into so many characters of JSON, in their order."""
    kept: list[Any] = []
    for item in reversed(items):
        characters -= len(json.dumps(item, ensure_ascii=False)) + 2
        if characters < 0:
            break
        kept.append(item)
    return kept[::-1]


def _result(answer: Answer, *, is_error: bool = False) -> types.CallToolResult:
    text = json.dumps(answer, ensure_ascii=False)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=answer, is_error=is_error
    )
