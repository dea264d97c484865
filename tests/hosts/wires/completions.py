"""OpenAI's Chat Completions API, as OpenCode and Copilot CLI speak it to a custom provider."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.hosts.replies import Call, Json, Reply, Request, Wire, event, numbers, since

USAGE = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}


def read(body: Json) -> Request:
    said = [item for item in body.get("messages", []) if item.get("role") not in ("system", "developer")]
    news = since(said, lambda item: item.get("role") == "assistant")
    return Request(body, news, tuple(str(tool["function"]["name"]) for tool in body.get("tools") or ()))


def stream(reply: Reply, body: Json) -> Iterator[bytes]:
    """One choice."""
    yield event(_chunk(body, {"role": "assistant", "content": ""}, None))
    yield event(_chunk(body, _delta(reply), None))
    yield event({**_chunk(body, {}, _reason(reply)), "usage": USAGE})
    yield b"data: [DONE]\n\n"


def whole(reply: Reply, body: Json) -> Json:
    message = {"role": "assistant", "content": None, **_delta(reply)}
    choice = {"index": 0, "message": message, "finish_reason": _reason(reply)}
    return {"id": "scripted", "object": "chat.completion", "created": 0, "model": body.get("model"),
            "choices": [choice], "usage": USAGE}  # fmt: skip


def _chunk(body: Json, delta: Json, reason: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    kind = {"id": "scripted", "object": "chat.completion.chunk", "created": 0, "model": body.get("model")}
    return {**kind, "choices": [choice]}


def _delta(reply: Reply) -> Json:
    if isinstance(reply, Call):
        function = {"name": reply.tool, "arguments": json.dumps(dict(reply.arguments))}
        return {"tool_calls": [{"index": 0, "id": f"call_{next(numbers)}", "type": "function", "function": function}]}
    return {"content": reply.text}


def _reason(reply: Reply) -> str:
    return "tool_calls" if isinstance(reply, Call) else "stop"


WIRE = Wire(read, stream, whole)
