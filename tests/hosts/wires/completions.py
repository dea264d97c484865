"""OpenAI's Chat Completions API, as OpenCode and Copilot CLI speak it to a custom provider."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.hosts.replies import Answer, Call, Json, Request, Wire, event, numbers, since, taken


def read(body: Json) -> Request:
    said = [item for item in body.get("messages", []) if item.get("role") not in ("system", "developer")]
    news = since(said, lambda item: item.get("role") == "assistant")
    return Request(body, news, tuple(str(tool["function"]["name"]) for tool in body.get("tools") or ()))


def stream(reply: Answer, body: Json) -> Iterator[bytes]:
    """One choice."""
    yield event(_chunk(body, {"role": "assistant", "content": ""}, None))
    yield event(_chunk(body, _delta(reply), None))
    yield event({**_chunk(body, {}, _reason(reply)), "usage": _usage(reply)})
    yield b"data: [DONE]\n\n"


def whole(reply: Answer, body: Json) -> Json:
    message = {"role": "assistant", "content": None, **_delta(reply)}
    choice = {"index": 0, "message": message, "finish_reason": _reason(reply)}
    return {"id": "scripted", "object": "chat.completion", "created": 0, "model": body.get("model"),
            "choices": [choice], "usage": _usage(reply)}  # fmt: skip


def _chunk(body: Json, delta: Json, reason: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    kind = {"id": "scripted", "object": "chat.completion.chunk", "created": 0, "model": body.get("model")}
    return {**kind, "choices": [choice]}


def _delta(reply: Answer) -> Json:
    if isinstance(reply, Call):
        function = {"name": reply.tool, "arguments": json.dumps(dict(reply.arguments))}
        return {"tool_calls": [{"index": 0, "id": f"call_{next(numbers)}", "type": "function", "function": function}]}
    return {"content": reply.text}


def _usage(reply: Answer) -> Json:
    return {"prompt_tokens": taken(reply), "completion_tokens": 5, "total_tokens": taken(reply) + 5}


def _reason(reply: Answer) -> str:
    return "tool_calls" if isinstance(reply, Call) else "stop"


WIRE = Wire(read, stream, whole)
