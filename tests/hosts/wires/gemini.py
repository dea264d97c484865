"""Gemini's generateContent and streamGenerateContent, as Gemini CLI speaks them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.hosts.replies import Answer, Call, Json, Request, Wire, event, numbers, since, taken

NOTHING_YET = event({"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": ""}]}}]})
SURROUNDINGS = "<session_context>"
"""Start of the list of files in the working directory, with which it begins each session; it includes our own files and
is not part of the dialogue."""


def read(body: Json) -> Request:
    contents = body.get("contents", [])
    for item in contents:
        item["parts"] = [part for part in item["parts"] if not str(part.get("text")).startswith(SURROUNDINGS)]
    news = since(contents, lambda item: item.get("role") == "model")
    declared = [tool.get("functionDeclarations") or () for tool in body.get("tools") or ()]
    return Request(body, news, tuple(str(function.get("name")) for functions in declared for function in functions))


def stream(reply: Answer, body: Json) -> Iterator[bytes]:
    """Yields one candidate in two pieces, of which the first is empty."""
    yield NOTHING_YET
    yield event(whole(reply, body))


def whole(reply: Answer, body: Json) -> Json:
    tokens = taken(reply)
    usage = {"promptTokenCount": tokens, "candidatesTokenCount": 5, "totalTokenCount": tokens + 5}
    content = {"role": "model", "parts": [_part(reply)]}
    return {"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}], "usageMetadata": usage}


def _part(reply: Answer) -> Json:
    if isinstance(reply, Call):
        return {"functionCall": {"id": f"call_{next(numbers)}", "name": reply.tool, "args": dict(reply.arguments)}}
    return {"text": reply.text}


WIRE = Wire(read, stream, whole, thinking=NOTHING_YET)  # its client reads no comments
