"""OpenAI's Responses API, as Codex speaks it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.hosts.replies import Answer, Call, Json, Request, Wire, event, numbers, since, taken

MODELS = ("function_call", "custom_tool_call", "reasoning")


def read(body: Json) -> Request:
    news = since(body.get("input", []), lambda item: item.get("role") == "assistant" or item.get("type") in MODELS)
    return Request(body, news, tuple(_tools(body.get("tools", []))))


def stream(reply: Answer, body: Json) -> Iterator[bytes]:
    """One item."""
    for name, data in _events(reply):
        yield event({"type": name, **data}, name)


def whole(reply: Answer, body: Json) -> Json:
    return {"output": [_item(reply)], "usage": _usage(reply)}


def _events(reply: Answer) -> Iterator[tuple[str, Json]]:
    response = f"resp_{next(numbers)}"
    yield "response.created", {"response": {"id": response}}
    item = _item(reply)
    if not isinstance(reply, Call):
        yield "response.output_item.added", {"output_index": 0, "item": {**item, "content": []}}
        yield "response.output_text.delta", {"output_index": 0, "item_id": item["id"], "delta": reply.text}
    yield "response.output_item.done", {"output_index": 0, "item": item}
    yield "response.completed", {"response": {"id": response, "usage": _usage(reply)}}


def _item(reply: Answer) -> Json:
    if isinstance(reply, Call):
        item: Json = {"type": "function_call", "id": f"fc_{next(numbers)}", "call_id": f"call_{next(numbers)}"}
        item |= {"name": reply.tool, "arguments": json.dumps(dict(reply.arguments))}
        return item | ({"namespace": reply.namespace} if reply.namespace else {})
    content = [{"type": "output_text", "text": reply.text}]
    return {"type": "message", "id": f"msg_{next(numbers)}", "role": "assistant", "content": content}


def _usage(reply: Answer) -> Json:
    counted = {"input_tokens": taken(reply), "output_tokens": 5, "total_tokens": taken(reply) + 5}
    return {**counted, "input_tokens_details": None, "output_tokens_details": None}


def _tools(tools: list[Json]) -> Iterator[str]:
    for tool in tools:
        name = str(tool.get("name") or tool.get("type"))
        if tool.get("type") == "namespace":
            yield from (f"{name}/{inner.get('name')}" for inner in tool.get("tools", []))
        else:
            yield name


WIRE = Wire(read, stream, whole)
