"""A model on loopback that says what a test tells it to, in the two dialects the hosts speak: Anthropic's Messages API
and OpenAI's Responses API, both streamed. It keeps every request, so a test sees what a real model would have seen."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE_SECONDS = 30.0
LONGEST_HOLD_SECONDS = 120.0
MORE_MAIL = re.compile(r'"unread_remaining": ?[1-9]')
DOORBELL = re.compile(r"\[IPC\] New message")

Json = dict[str, Any]
Events = Iterator[tuple[str, Json]]


@dataclass(frozen=True)
class Say:
    """One text. With `until` the model thinks until that is set."""

    text: str
    until: threading.Event | None = None


@dataclass(frozen=True)
class Call:
    """One call of a tool, by the name the host gave it; `namespace` where the host has such. `until` as above."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    namespace: str | None = None
    until: threading.Event | None = None


Reply = Say | Call
Decide = Callable[["Request"], Reply]


@dataclass
class Request:
    """What the host sent for one turn. `news` is all that came after the model's own last words."""

    body: Json
    news: str
    tools: tuple[str, ...]
    at: float = field(default_factory=time.monotonic)
    reply: Reply | None = None
    cut_off: bool = False
    """The host hung up before the model was done: it was interrupted."""

    @property
    def history(self) -> str:
        """Every text of the dialogue so far."""
        return "\n".join(_texts(self.body.get("messages") or self.body.get("input")))


class ScriptedModel:
    """Answers the script's replies in order. Without any left it replies as `decide` says."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.requests: list[Request] = []
        self._script: deque[Reply] = deque()
        self._news = threading.Condition()
        model = self

        class Handler(_Handler):
            scripted = model

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def script(self, *replies: Reply) -> None:
        self._script.extend(replies)

    def reply_to(self, request: Request) -> Reply:
        with self._news:
            request.reply = self._script.popleft() if self._script else self.decide(request)
            self.requests.append(request)
            self._news.notify_all()
            return request.reply

    def request_with(self, text: str, after: int = 0, seconds: float = PATIENCE_SECONDS) -> Request:
        """The first request from number `after` on whose news hold the text; waits for it."""
        return self.request_where(lambda request: text in request.news, f"the model was sent {text!r}", after, seconds)

    def request_where(
        self, wanted: Callable[[Request], bool], what: str, after: int = 0, seconds: float = PATIENCE_SECONDS
    ) -> Request:
        deadline = time.monotonic() + seconds
        with self._news:
            while True:
                found = next((request for request in self.requests[after:] if wanted(request)), None)
                if found is not None:
                    return found
                if not self._news.wait(deadline - time.monotonic()):
                    raise AssertionError(f"it did not happen within {seconds:.0f} s: {what}")


def reads_its_mail(read_mail: Call) -> Decide:
    """Does as our instructions say: on a doorbell's line it reads its mail until none is left, and to everything else
    it says "OK"."""

    def decide(request: Request) -> Reply:
        return read_mail if DOORBELL.search(request.news) or MORE_MAIL.search(request.news) else Say("OK")

    return decide


class _Handler(BaseHTTPRequestHandler):
    scripted: ScriptedModel
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._whole(200, {})

    def do_GET(self) -> None:
        self._whole(404, {"error": {"type": "not_found_error", "message": "there is only a script here"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._whole(200, {"input_tokens": 100})
        elif path.endswith("/messages"):
            self._anthropic(body)
        elif path.endswith("/responses"):
            self._openai(body)
        else:
            self._whole(404, {"error": {"type": "not_found_error", "message": "no such thing"}})

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the terminal belongs to the table."""

    def _anthropic(self, body: Json) -> None:
        if not body.get("tools"):  # a title for the session and the like
            reply: Reply = Say('{"title": "scripted"}')
            request = Request(body, "", ())
        else:
            news = _since(body.get("messages", []), lambda item: item.get("role") == "assistant")
            request = Request(body, news, tuple(str(tool.get("name")) for tool in body["tools"]))
            reply = self.scripted.reply_to(request)
        if body.get("stream"):
            self._stream(request, anthropic_events(reply, str(body.get("model"))), reply)
        else:
            self._whole(200, _anthropic_message(str(body.get("model")), [_anthropic_block(reply)], "end_turn"))

    def _openai(self, body: Json) -> None:
        mine = ("function_call", "custom_tool_call", "reasoning")
        news = _since(body.get("input", []), lambda item: item.get("role") == "assistant" or item.get("type") in mine)
        request = Request(body, news, tuple(_openai_tools(body.get("tools", []))))
        reply = self.scripted.reply_to(request) if request.tools else Say("scripted")
        self._stream(request, openai_events(reply), reply)

    def _stream(self, request: Request, events: Events, reply: Reply) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        try:
            for number, (name, event) in enumerate(events):
                self._event(name, event)
                if number == 0 and reply.until is not None:
                    self._think(reply.until)
        except OSError:
            request.cut_off = True

    def _think(self, until: threading.Event) -> None:
        deadline = time.monotonic() + LONGEST_HOLD_SECONDS
        while not until.wait(0.2) and time.monotonic() < deadline:
            self.wfile.write(b": thinking\n\n")
            self.wfile.flush()

    def _event(self, name: str, event: Json) -> None:
        self.wfile.write(f"event: {name}\ndata: {json.dumps({'type': name, **event})}\n\n".encode())
        self.wfile.flush()

    def _whole(self, status: int, body: Json) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(data)


_numbers = itertools.count(1)


def anthropic_events(reply: Reply, model: str) -> Events:
    """One message of one block, as the Messages API streams it."""
    yield "message_start", {"message": _anthropic_message(model, [], None)}
    block = _anthropic_block(reply)
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


def _anthropic_block(reply: Reply) -> Json:
    if isinstance(reply, Call):
        arguments = dict(reply.arguments)
        return {"type": "tool_use", "id": f"toolu_{next(_numbers):024}", "name": reply.tool, "input": arguments}
    return {"type": "text", "text": reply.text}


def _anthropic_message(model: str, content: list[Json], reason: str | None) -> Json:
    usage = {"input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    kind = {"id": f"msg_{next(_numbers):024}", "type": "message", "role": "assistant", "model": model}
    return {**kind, "content": content, "stop_reason": reason, "stop_sequence": None, "usage": usage}


def openai_events(reply: Reply) -> Events:
    """One item, as the Responses API streams it."""
    response = f"resp_{next(_numbers)}"
    yield "response.created", {"response": {"id": response}}
    if isinstance(reply, Call):
        item: Json = {"type": "function_call", "id": f"fc_{next(_numbers)}", "call_id": f"call_{next(_numbers)}"}
        item |= {"name": reply.tool, "arguments": json.dumps(dict(reply.arguments))}
        item |= {"namespace": reply.namespace} if reply.namespace else {}
    else:
        item = {"type": "message", "id": f"msg_{next(_numbers)}", "role": "assistant", "content": []}
        yield "response.output_item.added", {"output_index": 0, "item": item}
        yield "response.output_text.delta", {"output_index": 0, "item_id": item["id"], "delta": reply.text}
        item = {**item, "content": [{"type": "output_text", "text": reply.text}]}
    yield "response.output_item.done", {"output_index": 0, "item": item}
    usage = {"input_tokens": 100, "output_tokens": 5, "total_tokens": 105}
    details = {"input_tokens_details": None, "output_tokens_details": None}
    yield "response.completed", {"response": {"id": response, "usage": {**usage, **details}}}


def _openai_tools(tools: list[Json]) -> Iterator[str]:
    for tool in tools:
        name = str(tool.get("name") or tool.get("type"))
        if tool.get("type") == "namespace":
            yield from (f"{name}/{inner.get('name')}" for inner in tool.get("tools", []))
        else:
            yield name


def _since(items: list[Json], is_models: Callable[[Json], bool]) -> str:
    """Every text in the items after the model's last one."""
    last = max((number for number, item in enumerate(items) if is_models(item)), default=-1)
    return "\n".join(_texts(items[last + 1 :]))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
