"""A model on loopback that streams replies scripted by a test, in each dialect of the hosts (`wires/`). It keeps every
request, so that a test sees what a real model would see."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from multi_agent_mcp.server.app import HELP_TOOL
from tests.hosts.replies import Answer, Call, Decide, Json, Refuse, Reply, Request, Say, Wire
from tests.hosts.wires import anthropic, completions, gemini, responses

PATIENCE_SECONDS = 180.0
"""OpenCode takes 100 s to its first screen on two cores that twenty others want."""
LONGEST_HOLD_SECONDS = 120.0
MORE_MAIL = re.compile(r'"unread_remaining": ?[1-9]')
WAITING = (Call("WaitForMcpServers"), Call("ToolSearch", {"query": f"get_next_action read_messages {HELP_TOOL}"}))
DOORBELL = re.compile(r"\[IPC\] New message")
WIRES = {
    "/messages": anthropic.WIRE,
    "/responses": responses.WIRE,
    "/chat/completions": completions.WIRE,
    ":generateContent": gemini.WIRE,
    ":streamGenerateContent": gemini.WIRE,
}
"""End of a request's path → its dialect."""
COUNTS = {"/count_tokens": {"input_tokens": 100}, ":countTokens": {"totalTokens": 100}}


class ScriptedModel:
    """Replies with the script's replies in order, and with those of `decide` when none is left."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.requests: list[Request] = []
        self.asides = 0
        """The requests without tools: for a title, a summary and the like."""
        self._script: deque[Reply] = deque()
        self._news = threading.Condition()
        model = self

        class Handler(_Handler):
            scripted = model

        self._handler = Handler
        self.is_away = False
        self._server = self._listening(0)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _listening(self, port: int) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", port), self._handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def leave(self) -> None:
        """Nobody listens on its port any more, and open connections are closed with their next request."""
        self.is_away = True
        self.close()

    def come_back(self) -> None:
        """It listens again, on the same port."""
        self._server = self._listening(self._server.server_port)
        self.is_away = False

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
    it says "OK". While it is not offered the tool it waits for our server, if it is offered that."""
    waits = False

    def decide(request: Request) -> Reply:
        nonlocal waits
        if not (waits or DOORBELL.search(request.news) or MORE_MAIL.search(request.news)):
            return Say("OK")
        waiting = None if read_mail.name in request.tools else way_to_wait(request)
        waits = waiting is not None
        return waiting or read_mail

    return decide


def way_to_wait(request: Request) -> Call | None:
    """The call by which Claude Code lets a model wait for our server; None if the request does not offer it."""
    return next((waiting for waiting in WAITING if waiting.tool in request.tools), None)


class _Handler(BaseHTTPRequestHandler):
    scripted: ScriptedModel
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._whole(200, {})

    def do_GET(self) -> None:
        self._whole(404, {"error": {"type": "not_found_error", "message": "there is only a script here"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if self.scripted.is_away:
            self.close_connection = True
            return
        path = self.path.partition("?")[0]
        if (count := _ending(COUNTS, path)) is not None:
            self._whole(200, count)
        elif (wire := _ending(WIRES, path)) is not None:
            self._answer(wire, body, streamed=bool(body.get("stream")) or "stream" in path)
        else:
            self._whole(404, {"error": {"type": "not_found_error", "message": "no such thing"}})

    def log_message(self, format: str, *args: Any) -> None:
        """Suppresses the log, which would disturb the table on the terminal."""

    def _answer(self, wire: Wire, body: Json, *, streamed: bool) -> None:
        request = wire.read(body)
        reply = self.scripted.reply_to(request) if request.tools else self._aside(wire)
        if isinstance(reply, Refuse):
            self._whole(reply.status, reply.body, reply.headers)
        elif streamed:
            self._stream(request, wire, reply)
        else:
            self._whole(200, wire.whole(reply, body))

    def _aside(self, wire: Wire) -> Reply:
        self.scripted.asides += 1
        return wire.aside

    def _stream(self, request: Request, wire: Wire, reply: Answer) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        try:
            for number, event in enumerate(wire.stream(reply, request.body)):
                self._write(event)
                if number == 0 and reply.until is not None:
                    self._think(reply.until, wire.thinking)
        except OSError:
            request.cut_off = True

    def _think(self, until: threading.Event, sign: bytes) -> None:
        deadline = time.monotonic() + LONGEST_HOLD_SECONDS
        while not until.wait(0.2) and time.monotonic() < deadline:
            self._write(sign)

    def _write(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def _whole(self, status: int, body: Json, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(data)


def _ending(table: dict[str, Any], path: str) -> Any:
    return next((value for ending, value in table.items() if path.endswith(ending)), None)
