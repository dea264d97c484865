"""Parses lines of input as JSON-RPC messages, and produces the errors that answer malformed ones.

A request is answered even if it cannot be parsed: the error has the request's id if it can be found in the line, else
null (JSON-RPC 2.0, section 5.1). A malformed notification or response gets no answer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

import mcp_types as types
from pydantic import ValidationError
from pydantic_core import from_json

from multi_agent_mcp.texts import json_size, shortened

LINE_BYTES = 64 << 20
TOKENS_LOOKED_AT = 1_000_000
ERROR_CHARACTERS = 3_000
"""Of an error's message, and of its data."""

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}:]|[^\s\[\]{}:,"]++', re.DOTALL)

Message = types.JSONRPCRequest | types.JSONRPCNotification | types.JSONRPCResponse | types.JSONRPCError


class Malformed(Exception):
    """Raised for a line that is not a message. `answers` are the errors to write, one line per request in it."""

    def __init__(self, code: int, reason: str, ids: Iterable[object] = (None,)) -> None:
        super().__init__(reason)
        self.answers = [_error(code, reason, request_id) for request_id in ids]


def parse(line: bytes) -> Message:
    """Parses the message in a line. Raises `Malformed`."""
    if len(line) > LINE_BYTES:
        raise Malformed(types.INVALID_REQUEST, f"A message has at most {LINE_BYTES} bytes", [_visible_id(line)])
    try:
        value = from_json(line, allow_inf_nan=False)
    except ValueError as error:
        raise Malformed(types.PARSE_ERROR, f"Parse error: {error}", [_visible_id(line)]) from None
    if isinstance(value, list):
        ids = [item["id"] for item in value if isinstance(item, dict) and "method" in item and "id" in item]
        raise Malformed(types.INVALID_REQUEST, "MCP has no batches: send one message a line", ids or [None])
    if not isinstance(value, dict):
        raise Malformed(types.INVALID_REQUEST, "A message is a JSON object")
    return _message(value)


def _message(value: dict[str, Any]) -> Message:
    """Parses an object, whose keys decide the kind of message: the models alone would accept a request with an invalid
    id as a notification."""
    if "method" not in value:
        return _reply(value)
    model: type[Message] = types.JSONRPCRequest if "id" in value else types.JSONRPCNotification
    try:
        return model.model_validate(value)
    except ValidationError as error:
        wrong = {str(item["loc"][0]) for item in error.errors()}
        code = types.INVALID_PARAMS if wrong == {"params"} else types.INVALID_REQUEST
        reason = f"Invalid {', '.join(sorted(wrong))}: {error.errors()[0]['msg']}"
        answered = "id" in value or "method" in wrong
        raise Malformed(code, reason, [value.get("id")] if answered else []) from None


def with_short_error(message: Message) -> Message:
    """The message to be written; what an error of mcp's repeats of a request (an unknown method) is shortened."""
    if not isinstance(message, types.JSONRPCError):
        return message
    error, data = message.error, message.error.data
    if json_size(data) > ERROR_CHARACTERS:
        data = shortened(data if isinstance(data, str) else json.dumps(data, default=str), ERROR_CHARACTERS)
    said = {"message": shortened(error.message, ERROR_CHARACTERS), **({"data": data} if data is not None else {})}
    return message.model_copy(update={"error": error.model_copy(update=said)})


def _reply(value: dict[str, Any]) -> Message:
    if not value.keys() & {"result", "error"}:
        raise Malformed(types.INVALID_REQUEST, "A request has a method", [value.get("id")])
    model: type[Message] = types.JSONRPCResponse if "result" in value else types.JSONRPCError
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise Malformed(types.INVALID_REQUEST, str(error), []) from None


def _error(code: int, reason: str, request_id: object) -> bytes:
    error = {"jsonrpc": "2.0", "id": _repeatable(request_id), "error": {"code": code, "message": reason}}
    return json.dumps(error).encode() + b"\n"


def _repeatable(request_id: object) -> object:
    """The id if it is valid in JSON-RPC, a string or a finite number; else None."""
    if isinstance(request_id, bool) or not isinstance(request_id, str | int | float):
        return None
    return request_id if isinstance(request_id, str) or math.isfinite(request_id) else None


def _visible_id(line: bytes) -> object:
    """The member `id` of an object that cannot be parsed, or None, however deep or broken the rest is."""
    depth, before, last = 0, "", ""
    for match in islice(_TOKEN.finditer(line.decode(errors="replace")), TOKENS_LOOKED_AT):
        found = match.group()
        if found in "[{":
            depth += 1
        elif found in "]}":
            depth -= 1
        elif depth == 1 and (before, last) == ('"id"', ":"):
            return _scalar(found)
        before, last = last, found
    return None


def _scalar(text: str) -> object:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return None
