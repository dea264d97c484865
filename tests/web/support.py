"""The console as a process, and a visitor without a browser."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp

from multi_agent_mcp.domain.agent import Execution
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.web.app import Console, create_app
from multi_agent_mcp.web.live import Live
from multi_agent_mcp.web.security import Auth
from multi_agent_mcp.web.serving import link
from tests.end_to_end.support import COMMAND, PATIENCE_SECONDS, Team

COOKIE = re.compile(r"(mam_[0-9a-f]{8})=([^;]+)")


@dataclass(frozen=True)
class Reply:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> dict[str, Any]:
        answer = json.loads(self.text)
        assert isinstance(answer, dict)
        return answer


@contextmanager
def at_work(team: Team, agent_id: str = "worker-a") -> Iterator[Execution]:
    """An agent's task session that has begun with a task; it ends afterwards, with its execution if that still runs."""
    services = team.services
    (task,) = services.task_creation.create(services.agents.owner(), [NewTask(title="x", assignee_id=agent_id)])
    session = services.sessions.open(agent_id, "task")
    yield services.executions.begin(session.record, task.id)
    session.end()


class Web:
    """`multi-agent-mcp web` on a team; its link is in `link`. Its standard error must never hold a traceback."""

    def __init__(self, team: Team, *options: str, port: int | None = 0, open_files: int | None = None) -> None:
        self.team = team
        self.errors = team.base / "web.stderr"
        self._options = options
        self._limit = () if open_files is None else ("sh", "-c", f'ulimit -n {open_files} && exec "$@"', "sh")
        self._process: subprocess.Popen[str] | None = None
        self.link = ""
        self.port = port

    def __enter__(self) -> Web:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        said = self.errors.read_text(encoding="utf-8")
        assert "Traceback" not in said, said

    def start(self) -> None:
        """Starts it, again on the port it had; without one it chooses by itself."""
        where = ["--root", str(self.team.root), "--session", self.team.session]
        where += [] if self.port is None else ["--port", str(self.port)]
        with self.errors.open("a", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [*self._limit, *COMMAND, "web", *where, *self._options],
                env=self.team.env,
                cwd=self.team.base,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
            )
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], PATIENCE_SECONDS)[0], "it says nothing"
        self.link = self._process.stdout.readline().strip()
        assert self.link, self.errors.read_text(encoding="utf-8")
        self.port = urlsplit(self.link).port or 0

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal, unless it has ended."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends it; returns its exit code."""
        self.send(number)
        process = self._process
        assert process is not None
        code = process.wait(PATIENCE_SECONDS)
        if process.stdout is not None:
            process.stdout.close()
        return code

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stranger(self) -> Visitor:
        """Returns a visitor without a cookie."""
        return Visitor(self.address)

    def visitor(self) -> Visitor:
        """Returns a visitor who opened the link and has the token of the page."""
        return Visitor(self.address).enter(self.link)


@dataclass
class Visitor:
    """Sends requests over HTTP, as one of our pages would unless told otherwise."""

    address: str
    cookies: dict[str, str] = field(default_factory=dict)
    token: str | None = None

    def enter(self, link: str) -> Self:
        """Opens the link; keeps the cookie and the page's token."""
        context = self.get(link.removeprefix(self.address))
        assert context.status == 303, context
        found = COOKIE.search(context.headers["set-cookie"])
        assert found is not None
        self.cookies = {found[1]: found[2]}
        self.token = self.facts()["csrf"]
        return self

    def get(self, path: str, **headers: str) -> Reply:
        return self._ask("GET", path, None, headers)

    def head(self, path: str) -> Reply:
        return self._ask("HEAD", path, None, {})

    def post(self, path: str, body: object, **headers: str) -> Reply:
        own = {"Origin": self.address, "Content-Type": "application/json"}
        token = {"X-CSRF-Token": self.token} if self.token else {}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._ask("POST", path, data, own | token | headers)

    def see(self, path: str) -> dict[str, Any]:
        """The answer of an endpoint that must answer."""
        reply = self.get(f"/api{path}")
        assert reply.status == 200, reply
        assert reply.json["success"] is True
        return reply.json

    def act(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of a change that must be made."""
        reply = self.post(f"/api{path}", body)
        assert reply.status == 200, reply
        return reply.json

    def refused(self, path: str, body: Mapping[str, Any]) -> tuple[int, str]:
        """Status and code of a change that must not be made."""
        reply = self.post(f"/api{path}", body)
        assert reply.json["success"] is False
        assert reply.json["message"].strip()
        return reply.status, reply.json["error"]

    def facts(self) -> dict[str, Any]:
        """The contents of the `#facts` element of the page."""
        page = self.get("/").text
        found = re.search(r'<script type="application/json" id="facts">(.*?)</script>', page, re.DOTALL)
        assert found is not None, page
        facts = json.loads(found[1])
        assert isinstance(facts, dict)
        return facts

    @contextmanager
    def listen(
        self, last_event_id: str | None = None, since: str | None = None
    ) -> Iterator[Iterator[tuple[str, list[str]]]]:
        """The stream of changes: each event's id and its topics."""
        connection = self._connect()
        headers = self._headers({"Last-Event-ID": last_event_id} if last_event_id else {})
        try:
            connection.request("GET", f"/api/events?since={since}" if since else "/api/events", headers=headers)
            response = connection.getresponse()
            assert response.status == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            yield _events(response)
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=PATIENCE_SECONDS)

    def _ask(self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]) -> Reply:
        connection = self._connect()
        try:
            connection.request(method, path, data, self._headers(headers))
            response = connection.getresponse()
            told = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, told, response.read().decode(errors="replace"))
        finally:
            connection.close()

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        cookies = (
            {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        )
        return {**cookies, **{name.replace("_", "-"): value for name, value in headers.items()}}


class Guest(Visitor):
    """A visitor of the application in this process: without sockets and without waiting for a start."""

    def __init__(self, team: Team) -> None:
        super().__init__("http://127.0.0.1:80")
        services = team.services
        access = Auth(services.console_key, team.path / ".console")
        self._console = Console(services, access, Live(team.path), 80)
        self._app = create_app(self._console)
        self.enter(link(self._console))

    def _ask(self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]) -> Reply:
        address = urlsplit(path)
        told = {"Host": "127.0.0.1:80", **self._headers(headers)}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(address.path),
            "raw_path": address.path.encode(),
            "query_string": address.query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in told.items()],
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
        }
        return asyncio.run(_answered(self._app, scope, data or b""))


async def _answered(app: ASGIApp, scope: dict[str, Any], data: bytes) -> Reply:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Reply(
        sent[0]["status"], headers, b"".join(part.get("body", b"") for part in sent[1:]).decode(errors="replace")
    )


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, list[str]]]:
    fields: dict[str, str] = {}
    while line := response.readline().decode():
        name, colon, value = line.rstrip("\n").partition(": ")
        if colon:
            fields[name] = value
        elif not name and "data" in fields:
            yield fields["id"], json.loads(fields["data"])
            fields = {}
