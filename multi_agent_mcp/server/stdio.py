"""The MCP transport over standard input and output: one JSON-RPC message a line.

`mcp.server.stdio` drops messages that it cannot parse, waits in threads for pipes that may stay blocked for ever, and
does not report when an answer is written. Here every request is answered, also one that cannot be parsed: with its id
if that is found in the line, else null (JSON-RPC 2.0, section 5.1); and a call's `Confirmation` hears when the answer's
last byte is written. A malformed notification or response gets no answer.

Everything runs in the event loop and nothing blocks: it reads when poll(2) reports input, and writes PIPE_BUF bytes
when poll(2) reports room, which POSIX guarantees not to block. So an answer is known to be written before the next
request is read."""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import select
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextvars import ContextVar
from itertools import islice
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.lowlevel
import anyio.to_thread
import mcp_types as types
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from pydantic import ValidationError
from pydantic_core import from_json

from multi_agent_mcp.services.sessions.confirmation import Confirmation
from multi_agent_mcp.texts import json_size, shortened

LINE_BYTES = 64 << 20
TOKENS_LOOKED_AT = 1_000_000
HALF_A_CHARACTER = (
    "An argument contains half a character (a lone surrogate, such as \\ud83d): write the whole emoji, or leave it out"
)
UNUSABLE = "Invalid request parameters"
"""What mcp says of a request that it cannot use."""
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
        reason = HALF_A_CHARACTER if _has_half_a_character(line) else error
        raise Malformed(types.PARSE_ERROR, f"Parse error: {reason}", [_visible_id(line)]) from None
    if isinstance(value, list):
        ids = [item["id"] for item in value if isinstance(item, dict) and "method" in item and "id" in item]
        raise Malformed(types.INVALID_REQUEST, "MCP has no batches: send one message a line", ids or [None])
    if not isinstance(value, dict):
        raise Malformed(types.INVALID_REQUEST, "A message is a JSON object")
    return _message(value)


def _has_half_a_character(line: bytes) -> bool:
    """Whether a line that cannot be parsed has a lone surrogate, where a client has cut a text within an emoji."""
    try:
        json.dumps(json.loads(line), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        pass
    return False


def _message(value: dict[str, Any]) -> Message:
    """Parses an object, whose keys decide the kind of message: the models alone would accept a request with an invalid
    id as a notification."""
    if "method" not in value:
        return _reply(value)
    model: type[Message] = types.JSONRPCRequest if "id" in value else types.JSONRPCNotification
    try:
        message = model.model_validate(value)
        _require_call(message)
        return message
    except ValidationError as error:
        wrong = {str(item["loc"][0]) for item in error.errors()}
        code = types.INVALID_PARAMS if wrong == {"params"} else types.INVALID_REQUEST
        reason = f"Invalid {', '.join(sorted(wrong))}: {error.errors()[0]['msg']}"
        answered = "id" in value or "method" in wrong
        raise Malformed(code, reason, [value.get("id")] if answered else []) from None


def _require_call(message: Message) -> None:
    """Raises `Malformed` for a call of a tool without a tool's name, or with arguments that are no object: mcp would
    answer it, as any request that it cannot use, without saying what is wrong."""
    if not isinstance(message, types.JSONRPCRequest) or message.method != "tools/call":
        return
    try:
        types.CallToolRequestParams.model_validate(message.params or {}, by_name=False)
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(map(str, ("params", *found["loc"])))
        reason = f"tools/call takes the tool's name and, as an object, its arguments; {where}: {found['msg']}"
        raise Malformed(types.INVALID_PARAMS, reason, [message.id]) from None


def with_short_error(message: Message) -> Message:
    """The message to be written; what an error of mcp's repeats of a request (an unknown method) is shortened, and a
    request that it could not use is said to be so for one of two reasons, which it does not tell apart."""
    if not isinstance(message, types.JSONRPCError):
        return message
    error, data = message.error, message.error.data
    if error.message == UNUSABLE:
        error = error.model_copy(update={"message": f"{UNUSABLE}, or no `initialize` before this request"})
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


READ_BYTES = 1 << 16
LOWEST_OWN_DESCRIPTOR = 3


current_confirmation: ContextVar[Confirmation | None] = ContextVar("current_confirmation", default=None)
"""Set by the task that answers a request, before it returns the answer."""


class Output:
    """The outgoing lines, written in order; a `WriteStream` of mcp."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._in, self._out = anyio.create_memory_object_stream[tuple[bytes, Callable[[], None] | None]](math.inf)
        self._unanswered: set[types.RequestId] = set()
        self._all_answered = anyio.Event()

    def expect(self, request_id: types.RequestId) -> ServerMessageMetadata:
        """Notes a request that is to be answered. Returns the metadata by which mcp reports that it will not answer it,
        because the host cancelled it."""

        async def cancelled() -> None:
            self._settle(request_id)
            if (confirmation := current_confirmation.get()) is not None:  # the task of the request calls this
                confirmation.cancel()

        self._unanswered.add(request_id)
        return ServerMessageMetadata(on_request_unanswered=cancelled)

    def _settle(self, request_id: types.RequestId | None) -> None:
        self._unanswered.discard(request_id)
        if not self._unanswered:
            self._all_answered.set()

    async def answered(self) -> None:
        """Waits until every request has an answer, which may not be written yet."""
        self._all_answered = anyio.Event()
        if self._unanswered:
            await self._all_answered.wait()

    async def send(self, item: SessionMessage, /) -> None:
        """Queues a message; returns before it is written."""
        message = with_short_error(item.message)
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        confirmation = current_confirmation.get()
        if isinstance(item.message, (types.JSONRPCResponse, types.JSONRPCError)):
            self._settle(item.message.id)
        if confirmation is not None and isinstance(item.message, types.JSONRPCResponse):
            self.put(line, confirmation.written)
            return
        if confirmation is not None and isinstance(item.message, types.JSONRPCError):
            confirmation.cancel()
        self.put(line)

    def put(self, line: bytes, written: Callable[[], None] | None = None) -> None:
        """Queues a line; calls `written` when it has been written."""
        self._in.send_nowait((line, written))

    async def write(self) -> None:
        """Writes queued lines for ever. Raises `OSError` when the reader has closed its end."""
        async for line, written in self._out:
            await self._write(line)
            if written is not None:
                written()

    async def flush(self) -> None:
        """Waits until all queued lines are written."""
        done = anyio.Event()
        self.put(b"", done.set)
        await done.wait()

    async def _write(self, line: bytes) -> None:
        left = memoryview(line)
        while left:
            if self._poll.poll(0):
                left = left[os.write(self._descriptor, left[: select.PIPE_BUF]) :]
            else:
                await anyio.wait_writable(self._descriptor)

    async def aclose(self) -> None:
        """Called by mcp when it sends nothing more; queued lines are still written."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


PROBE = "server/discover"
HANDSHAKE = "initialize"


class Input:
    """The incoming messages. `messages` is an unbounded `ReadStream` of mcp, so that the end of input is noticed even
    while mcp waits.

    mcp decides by the first request which era of the protocol it serves. A host that only asked what the server can do
    (`server/discover`, MCP 2026-07-28) and then shakes hands as before, because the answer came late, begins again: its
    `messages` end, and those from there on are another stream."""

    def __init__(self, descriptor: int, output: Output) -> None:
        self._descriptor = descriptor
        self._output = output
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._asked: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        self._in, self.messages = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)

    async def read(self) -> None:
        """Passes messages on, and answers malformed lines, until the end of input. `messages` stays open then: at its
        end mcp would answer running calls with an error, even if they have stored what they were asked to."""
        async for line in self._lines():
            if line.strip():
                await self._take(line)

    async def _take(self, line: bytes) -> None:
        try:
            message = parse(line)
        except Malformed as malformed:
            for answer in malformed.answers:
                self._output.put(answer)
            return
        metadata = None
        if isinstance(message, types.JSONRPCRequest):
            if message.method == HANDSHAKE and self._asked == {PROBE}:
                await self._output.answered()
                self._in.close()
                self._begin()
            self._asked.add(message.method)
            metadata = self._output.expect(message.id)
        self._in.send_nowait(SessionMessage(message, metadata))

    async def _lines(self) -> AsyncIterator[bytes]:
        """The lines without line breaks, cut one byte above `LINE_BYTES`, so that too long ones are detected."""
        line = bytearray()
        while data := await self._read():
            *ended, begun = data.split(b"\n")
            for piece in ended:
                yield bytes(line + piece)[: LINE_BYTES + 1]
                line.clear()
            line += begun
            del line[LINE_BYTES + 1 :]
        yield bytes(line)

    async def _read(self) -> bytes:
        """The available bytes; empty at the end of input."""
        await anyio.lowlevel.checkpoint()
        while not self._poll.poll(0):
            await anyio.wait_readable(self._descriptor)
        try:
            return os.read(self._descriptor, READ_BYTES)
        except OSError:
            return b""


class Stdio:
    """Both directions, on descriptors of their own. Descriptor 0 becomes the null device and 1 standard error, so that
    nothing that the process or its children read or print gets between the messages."""

    def __init__(self) -> None:
        reading, writing = (fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, LOWEST_OWN_DESCRIPTOR) for number in (0, 1))
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null if sys.stderr is None else 2, 1)
        os.close(null)
        self.output = Output(writing)
        self.input = Input(reading, self.output)
