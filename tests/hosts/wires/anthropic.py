"""Anthropic's Messages API, as Claude Code speaks it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.hosts.replies import Answer, Call, Json, Request, Say, Wire, event, numbers, since, taken


def read(body: Json) -> Request:
    news = since(body.get("messages", []), lambda item: item.get("role") == "assistant")
    return Request(body, news, tuple(str(tool.get("name")) for tool in body.get("tools") or ()))


def stream(reply: Answer, body: Json) -> Iterator[bytes]:
    """One message of one block."""
    for name, data in _events(reply, body):
        yield event({"type": name, **data}, name)


def whole(reply: Answer, body: Json) -> Json:
    return _message(body, [_block(reply)], "end_turn", taken(reply))


def _events(reply: Answer, body: Json) -> Iterator[tuple[str, Json]]:
    yield "message_start", {"message": _message(body, [], None, taken(reply))}
    block = _block(reply)
    if isinstance(reply, Call):
        yield "content_block_start", {"index": 0, "content_block": {**block, "input": {}}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        yield "content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}
        delta = {"type": "text_delta", "text": reply.text}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    reason = "tool_use" if isinstance(reply, Call) else "end_turn"
    yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 5}}
    yield "message_stop", {}


def _block(reply: Answer) -> Json:
    if isinstance(reply, Call):
        arguments = dict(reply.arguments)
        return {"type": "tool_use", "id": f"toolu_{next(numbers):024}", "name": reply.tool, "input": arguments}
    return {"type": "text", "text": reply.text}


def _message(body: Json, content: list[Json], reason: str | None, tokens: int) -> Json:
    usage = {"input_tokens": tokens, "output_tokens": 1, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    kind = {"id": f"msg_{next(numbers):024}", "type": "message", "role": "assistant", "model": body.get("model")}
    return {**kind, "content": content, "stop_reason": reason, "stop_sequence": None, "usage": usage}


WIRE = Wire(read, stream, whole, aside=Say('{"title": "scripted"}'))
