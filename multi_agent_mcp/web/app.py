"""The console as an ASGI application (access, pages, API, event stream), and running it."""

from __future__ import annotations

import asyncio
import errno
import html
import json
import logging
import re
import secrets
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from types import FrameType
from typing import Any

import uvicorn
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.message import MESSAGE_PRIORITIES
from multi_agent_mcp.domain.task import TASK_PRIORITIES, TASK_STATUSES
from multi_agent_mcp.domain.text import HIDDEN, one_line
from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.features import load
from multi_agent_mcp.features.ours import ALL
from multi_agent_mcp.system.file_events import TreeWatch
from multi_agent_mcp.texts import CONSOLE, Texts, catalogue
from multi_agent_mcp.web.api import AT_THE_MACHINE, Endpoint, endpoints_of
from multi_agent_mcp.web.api.overview import homes
from multi_agent_mcp.web.request import ApiRequest, parse_body, read_body
from multi_agent_mcp.web.security import (
    COOKIE_SECONDS,
    Auth,
    Connection,
    SecurityMiddleware,
    connection_limit,
    is_own_origin,
)
from multi_agent_mcp.wiring import Services

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Console:
    """The state shared by all requests. `acting` is the agent in whose name changes are made (None: the Owner)."""

    services: Services
    access: Auth
    live: Live
    port: int
    acting: str | None = None

    @property
    def labels(self) -> Texts:
        return catalogue(self.services.texts.language, CONSOLE)

    @property
    def me(self) -> Agent:
        agents = self.services.agents
        return agents.get(self.acting) if self.acting else agents.owner()


def create_app(console: Console) -> Starlette:
    """Creates the application; `console.live` runs as long as the application does."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with console.live:
            # a daemon: whoever stops the console does not wait until it is prepared
            Thread(target=_warm, args=(console.services,), daemon=True).start()
            yield

    features = console.services.session.features
    return Starlette(
        routes=[
            Route("/open", partial(enter, console)),
            Route("/api/events", partial(stream, console)),
            *(_api_route(console, *endpoint) for endpoint in endpoints_of(features)),
            *(_download_route(console, *offered) for offered in features.each("downloads")),
            *page_routes(
                console.services, console.access, lambda: {"me": console.me.id, "event": console.live.position}
            ),
            Mount("/static", StaticFiles(packages=[("multi_agent_mcp.web", "static")])),
        ],
        middleware=[
            Middleware(SecurityMiddleware, access=console.access, port=console.port, texts=console.labels),
            Middleware(Compression),
        ],
        exception_handlers={Refusal: partial(refused_page, console), HTTPException: partial(lost_page, console)},
        lifespan=lifespan,
    )


class Compression:
    """Compresses what pages fetch. Pages themselves are not: the secret against forged requests is in them, which the
    length of a compressed answer could tell (BREACH); nor is the stream of events, which must not be held back."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._compressed = GZipMiddleware(app, minimum_size=1_000, compresslevel=5)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path"))
        is_data = path.startswith(("/api/", "/static/")) and path != "/api/events"
        await (self._compressed if is_data else self._plain)(scope, receive, send)


def refused_page(console: Console, _: Request, error: Exception) -> Response:
    """The answer to a request for a page that a `Refusal` forbids, as when the session's files are gone: its
    sentence."""
    refusal = error if isinstance(error, Refusal) else StorageError("internal", reason=error)
    return PlainTextResponse(one_line(console.services.texts.sentence(refusal)), _status(refusal.code))


def lost_page(console: Console, request: Request, error: Exception) -> Response:
    """The answer to a request for what is not there, or not by this method: JSON below `/api`, else a page with the way
    back."""
    status, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (500, None)
    words = console.labels("lost.method" if status == 405 else "lost.page", path=one_line(request.url.path))
    if request.url.path.startswith("/api/"):
        return JSONResponse({"success": False, "error": "invalid_arguments", "message": words}, status, headers)
    if request.url.path.startswith("/static/") or status != 404:
        return PlainTextResponse(words, status, headers)
    return HTMLResponse(_template("lost", t=console.labels, words=words), status)


async def enter(console: Console, request: Request) -> Response:
    """Handles the one-time link: gives a cookie to the first browser that opens it. HEAD, which link checkers send,
    does not use it up.

    A browser that follows the link from another site's page, or from a file, counts a redirect as that site's request,
    without the cookie (RFC 6265bis, 5.2); what follows from `Refresh` is ours.
    """
    if request.method != "GET":
        raise HTTPException(405, headers={"Allow": "GET"})
    cookie = console.access.redeem(request.query_params.get("ticket", ""))
    if cookie is None:
        return PlainTextResponse(console.labels("link_used"), status_code=403)
    is_own = is_own_origin(request.headers, change=False)
    response = RedirectResponse("/", status_code=303) if is_own else Response(headers={"Refresh": "0; url=/"})
    response.set_cookie(
        console.access.cookie_name,
        cookie,
        max_age=COOKIE_SECONDS,
        httponly=True,
        samesite="strict",
    )
    return response


async def stream(console: Console, request: Request) -> Response:
    """Streams changes as they happen (`/api/events`; see `Live`). A page connects with `since`, the event at which
    it was rendered, and its browser reconnects with `Last-Event-ID`, so that no change is missed."""
    events = console.live.events(request.headers.get("last-event-id") or request.query_params.get("since"))
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _download_route(console: Console, path: str, where: str) -> Route:
    """A file that a feature offers."""

    async def handle(request: Request) -> Response:
        answer = await _call(console, request, load(where))
        if not answer["success"]:
            return JSONResponse(answer, _status(answer["error"]))
        name = f"{console.services.session.name}-{path.strip('/')}"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(answer["content"], media_type=answer["type"], headers=headers)

    return Route(path, handle)


def _api_route(console: Console, method: str, path: str, endpoint: Endpoint) -> Route:
    async def handle(request: Request) -> Response:
        answer = await _call(console, request, endpoint)
        return JSONResponse(answer, 200 if answer["success"] else _status(answer["error"]))

    return Route(f"/api{path}", handle, methods=[method])


async def _call(console: Console, request: Request, endpoint: Endpoint) -> dict[str, Any]:
    """Runs an endpoint on a worker thread and returns its answer; a refusal becomes its code and one sentence."""
    try:
        body: Mapping[str, Any] = parse_body(await read_body(request)) if request.method == "POST" else {}
        if request.method == "POST" and endpoint not in AT_THE_MACHINE:
            console.services.agents.require_here(console.me)
        call = ApiRequest(console.services, console.me, request.path_params, request.query_params, body)
        return {"success": True, **await run_in_threadpool(endpoint, call)}
    except Refusal as refusal:
        sentence = one_line(console.services.texts.sentence(refusal))
        return {"success": False, "error": refusal.code, "message": sentence}


def _warm(services: Services) -> None:
    """Fills the indexes while the user opens the link: 5 000 tasks take about a second. Then examines the session and
    reads what the statistics of the last days count, so that neither page waits for that. Whatever prevents it (no
    descriptor is left) is told, if it lasts, by the request that needs the same."""
    try:
        services.snapshots.take(messages=1)
        services.recent_attention.found(services.diagnosis.findings())
        services.contributions.tell("console_opened")
    except Exception as problem:  # noqa: BLE001 - only a preparation: it must not end the console
        logger.info("nothing was prepared: %s", problem)


STATUS_OF_CODE = {
    "unauthorized": 403,
    "invalid_session": 403,
    "untrusted_session": 403,
    "not_participant": 403,
    "invalid_status_transition": 409,
    "not_answered": 409,
    "already_exists": 409,
    "conversation_not_active": 409,
    "content_too_large": 413,
    "tmux_timeout": 504,
    "storage_error": 507,
}


def _status(code: str) -> int:
    return STATUS_OF_CODE.get(code, 404 if code.endswith("_not_found") else 400)


# Change notifications for open pages: numbered events with topics, as server-sent events (WHATWG HTML, 9.2).
#
# An event only names topics whose files changed, and the page fetches them again. Lost events do no harm: a
# reconnecting page passes the last number that it saw and gets every topic that changed since, or all topics if another
# server has been started meanwhile.

TOPIC_OF_DIRECTORY = dict(ALL.each("topics"))
TOPICS = tuple(sorted(set(TOPIC_OF_DIRECTORY.values())))
GATHER_SECONDS = 0.04  # a send touches several files and is one event
HEARTBEAT_SECONDS = 15.0  # detects the connections of dead pages
RETRY_MILLISECONDS = 500
_NUMBER = re.compile("[0-9]{1,18}")


class Live:
    """The changes of one session directory, for any number of pages. Used only in the server's event loop."""

    def __init__(self, path: Path, topics: Mapping[str, str] = TOPIC_OF_DIRECTORY) -> None:
        self.path = path
        self._topics = topics
        self.boot = secrets.token_hex(4)
        """Distinguishes this server's event numbers from those of an earlier one."""
        self._count = 0
        self._changed_at = dict.fromkeys(sorted(set(topics.values())), 0)
        self._pending: set[str] = set()
        self._news = asyncio.Condition()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch = TreeWatch(path, self._noticed)

    async def __aenter__(self) -> Live:
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._watch.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        await asyncio.to_thread(self._watch.__exit__)

    @property
    def degraded(self) -> str | None:
        """The reason why changes are polled for; None when file events work."""
        return self._watch.degraded

    @property
    def position(self) -> str:
        """The id of the newest event; a page that is rendered now asks for later ones."""
        return self._id(self._count)

    async def close(self) -> None:
        """Ends every open stream; called before the server stops."""
        async with self._news:
            self._closed = True
            self._news.notify_all()

    async def events(self, last_event_id: str | None) -> AsyncIterator[str]:
        """The stream of one page, from the event that it saw last (None: from now on)."""
        seen = self._count if last_event_id is None else self._seen(last_event_id)
        yield f"retry: {RETRY_MILLISECONDS}\n\n"
        topics = self._since(seen)
        seen = self._count  # before every yield: a change during the yield belongs to the next event
        yield self._event(seen, topics)
        while not self._closed:
            try:
                await asyncio.wait_for(self._wait_beyond(seen), HEARTBEAT_SECONDS)
            except TimeoutError:
                yield ": keep-alive\n\n"
                continue
            topics = self._since(seen)
            seen = self._count
            if topics:
                yield self._event(seen, topics)

    def _noticed(self, path: Path) -> None:
        """Called in the watching thread when a file below the session directory has changed."""
        topic = self._topics.get(path.parts[0])
        if topic is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._gather, topic)

    def _gather(self, topic: str) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self._publish)
        self._pending.add(topic)

    def _publish(self) -> None:
        self._count += 1
        for topic in self._pending:
            self._changed_at[topic] = self._count
        self._pending.clear()
        self._publishing = asyncio.ensure_future(self._wake())

    async def _wake(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _wait_beyond(self, seen: int) -> None:
        async with self._news:
            await self._news.wait_for(lambda: self._closed or self._count != seen)

    def _id(self, number: int) -> str:
        return f"{self.boot}-{number}"

    def _seen(self, event_id: str) -> int:
        """The number in an event id; -1, before all events, if another server issued it."""
        boot, _, number = event_id.partition("-")
        return int(number) if boot == self.boot and _NUMBER.fullmatch(number) else -1

    def _since(self, seen: int) -> list[str]:
        return [topic for topic, changed_at in self._changed_at.items() if changed_at > seen]

    def _event(self, number: int, topics: Iterable[str]) -> str:
        return f"id: {self._id(number)}\nevent: changed\ndata: {json.dumps(list(topics))}\n\n"


# The pages: one template each, with texts of the catalogue; their data comes from the API.

PAGES = (
    "board",
    "agents",
    "machines",
    "files",
    "messages",
    "conversations",
    "timeline",
    "executions",
    "stats",
    "health",
    "search",
)
SECTIONS = {"agent": "agents"}
"""The page of `PAGES` to which one that is not in the side bar belongs."""
ICONS = (
    ("icon-192.png", 192, "any"),
    ("icon-512.png", 512, "any"),
    ("icon-maskable-192.png", 192, "maskable"),
    ("icon-maskable-512.png", 512, "maskable"),
)
"""The file, size in pixels and purpose of each icon that `scripts/icons` draws."""
MANIFEST = "application/manifest+json"
SHARED = ("reason.", "attention.kind.", "up.dialog:", "type.", "action.")
"""Prefixes of the people's texts that pages choose from by data."""


def page_routes(services: Services, access: Auth, now: Callable[[], dict[str, Any]]) -> list[Route]:
    """The routes: `/` is the board, every other page has its name as path, and an agent's own page is below that of
    all. `now` returns the current event and agent. The page of machines exists only in shared sessions."""
    manifest = Route("/manifest.webmanifest", lambda _: JSONResponse(_manifest(services), media_type=MANIFEST))
    return [
        manifest,
        *(
            Route("/" if name == "board" else f"/{name}", _page(name, services, access, now))
            for name in _page_names(services)
        ),
        Route("/agents/{agent_id}", _page("agent", services, access, now)),
    ]


def _page_names(services: Services) -> list[str]:
    on = set(services.session.features.each("pages"))
    return [name for name in PAGES if name in on and (name != "machines" or services.machine is not None)]


def _manifest(services: Services) -> dict[str, Any]:
    """The manifest with which browsers install the console as an application (W3C Web Application Manifest)."""
    return {
        "id": "/",
        "name": f"{services.session.name} · multi-agent-mcp",
        "short_name": services.session.name,
        "lang": services.texts.language,
        "start_url": "/",
        "display": "standalone",
        "background_color": "#f4f5f8",
        "theme_color": "#4353d6",
        "icons": [
            {"src": "/static/icon.svg", "sizes": "any", "type": "image/svg+xml", "purpose": "any"},
            *(
                {"src": f"/static/{name}", "sizes": f"{size}x{size}", "type": "image/png", "purpose": purpose}
                for name, size, purpose in ICONS
            ),
        ],
    }


def _page(
    name: str, services: Services, access: Auth, now: Callable[[], dict[str, Any]]
) -> Callable[[Request], Response]:
    def show(request: Request) -> Response:
        agent_id = request.path_params.get("agent_id")
        agent = services.agents.known().get(agent_id) if agent_id is not None else None
        if agent_id is not None and agent is None:
            raise HTTPException(404)
        cookie = request.cookies[access.cookie_name]
        texts, people = catalogue(services.texts.language, CONSOLE), services.people
        shared = {key: people(key) for key in sorted(people.keys()) if key.startswith(SHARED)}
        facts = {
            "page": name,
            "agent": agent_id,
            "removed": agent is not None and agent.removed,
            "language": texts.language,
            "session": services.session.name,
            "csrf": access.csrf_token(cookie),
            **now(),
            "statuses": TASK_STATUSES,
            "priorities": TASK_PRIORITIES,
            "messagePriorities": MESSAGE_PRIORITIES,
            "hidden": HIDDEN,
            "answers": services.settings.console_answers,
            "features": [feature.name for feature in services.session.features],
            "acts": services.agents.elsewhere(services.agents.get(now()["me"])) is None,
            **homes(services),
            "texts": {key: texts(key) for key in sorted(texts.keys())} | shared,
        }
        frame = {
            "title": agent_id or texts(f"page.{name}"),
            "section": SECTIONS.get(name),
            "pages": _page_names(services),
        }
        return HTMLResponse(_template(name, t=texts, facts=_embedded(facts), **frame, **facts))

    return show


def _template(name: str, **values: Any) -> str:
    return _environment().get_template(f"{name}.html").render(**values)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("multi_agent_mcp.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


def _embedded(facts: dict[str, Any]) -> str:
    """JSON for use inside a `<script>` element, escaped so that nothing can end the element (HTML 4.12.1.3)."""
    text = json.dumps(facts, ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


# Runs the console until it is stopped.


class LinkPage:
    """A private file that leads a browser to a link, from `open` to `remove`.

    It opens the console's one-time link in the person's browser without showing it to other users of this machine:
    arguments of a process are public (proc(5), `/proc/PID/cmdline`), so the browser is given the name of the file, a
    page that leads to the link."""

    PAGE = """\
<!DOCTYPE html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={link}">
<title>multi-agent-mcp</title>
<a href="{link}">multi-agent-mcp</a>
"""

    def __init__(self) -> None:
        self._directory: TemporaryDirectory[str] | None = None

    def open(self, link: str, failed: Callable[[], None]) -> None:
        """Writes the page and opens it in the person's browser, on a thread of its own, as a browser in a terminal runs
        until it is left. Calls `failed` there if none could be started. Raises `OSError`."""
        self._directory = _private_directory()
        page = Path(self._directory.name, "open.html")
        page.touch(mode=0o600)
        page.write_text(self.PAGE.format(link=html.escape(link)), encoding="ascii")
        threading.Thread(target=_open, args=(page.as_uri(), failed), daemon=True).start()

    def remove(self) -> None:
        """Removes the page; does nothing twice."""
        if self._directory is not None:
            with suppress(OSError):
                self._directory.cleanup()


def _private_directory() -> TemporaryDirectory[str]:
    """A new directory with mode 0700. Browsers that are snaps read nothing but what is visible in the home directory
    (snapcraft.io, the home interface)."""
    with suppress(OSError, RuntimeError):
        return TemporaryDirectory(prefix="multi-agent-mcp-", dir=Path.home())
    return TemporaryDirectory(prefix="multi-agent-mcp-")


def _open(address: str, failed: Callable[[], None]) -> None:
    try:
        is_open = webbrowser.open(address)
    except (webbrowser.Error, OSError, ValueError) as error:  # ValueError: BROWSER has a quotation mark too few
        logger.warning("no browser: %s", error)
        is_open = False
    if not is_open:
        failed()


LOOPBACK = "127.0.0.1"
PORT_MAX = 65_535
WAITING_CONNECTIONS = 1024  # clients beyond this backlog retry only after a second
REPORT_SECONDS = 60.0


def serve(
    services: Services, port: int | None, acting: str | None, ready: Callable[[str], None], spent: Callable[[], None]
) -> None:
    """Serves on loopback, on the given port (0: any free one; None: the last one used, if free). Calls `ready` with the
    one-time link once connections are accepted, and `spent` when the link opens nothing any more, at the latest at the
    end.

    Raises `StorageError` if the port is taken, and as `Agents.get` for an unknown `acting`.
    """
    with _listening(services, port) as listening:
        port = listening.getsockname()[1]
        services.console_port.write(port, durable=False)
        access = Auth(services.console_key, services.path / ".console", spent)
        console = Console(
            services, access, Live(services.path, dict(services.session.features.each("topics"))), port, acting
        )
        assert console.me  # noqa: S101 - raises for an unknown agent before anything is served
        with services.people_doorbells(), suppress(KeyboardInterrupt):  # Ctrl-C is the regular end
            asyncio.run(_serve(console, listening, lambda: ready(link(console))))


def _listening(services: Services, port: int | None) -> socket.socket:
    last = services.console_port.read() if port is None else None
    if type(last) is int and 0 < last <= PORT_MAX:  # excludes `true`
        with suppress(StorageError):
            return _bound(last)
    return _bound(port or 0)


def _bound(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise StorageError("port_taken", port=port) from error
        raise StorageError(path=f"{LOOPBACK}:{port}", reason=error) from error
    return listening


def link(console: Console) -> str:
    """Returns a new link that opens the console once, in one browser."""
    return f"http://{LOOPBACK}:{console.port}/open?ticket={console.access.issue_ticket()}"


async def _serve(console: Console, listening: socket.socket, ready: Callable[[], None]) -> None:
    limit = connection_limit()
    config = uvicorn.Config(
        create_app(console),
        http=Connection,
        limit_concurrency=limit,
        backlog=max(limit // 8, 1),  # few are accepted at once, so that requests are read before others push them out
        log_level="error",  # a warning for every malformed request would let strangers fill the disk
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_giving_up)
    server = _Server(config, ready, console)
    await server.serve(sockets=[listening])
    if server.failed is not None:
        raise server.failed


def _is_no_giving_up(record: logging.LogRecord) -> bool:
    """Whether a line of the log tells of anything but requests that are given up because the console stops, which its
    person wanted."""
    is_cancelled = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not is_cancelled and "timeout graceful shutdown exceeded" not in str(record.msg)


class _Server(uvicorn.Server):
    """A uvicorn server that reports when it is ready, and ends open streams before waiting for connections to close."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], console: Console) -> None:
        super().__init__(config)
        self.failed: OSError | None = None
        self._ready = ready
        self._console = console
        self._reported_at = -REPORT_SECONDS
        self._signalled = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self._signalled.set)

    async def main_loop(self) -> None:
        """Wakes up once a second, as the date in headers wants, and at once by a signal. uvicorn's own loop does so ten
        times a second: half of what a console costs that nobody looks at."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._signalled.wait(), 1.0)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._report)
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(WAITING_CONNECTIONS)
        if self.started:
            try:
                self._ready()
            except OSError as error:  # the link could not be printed: shut down, then raise
                self.failed, self.should_exit = error, True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._console.access.withdraw()
        await self._console.live.close()
        await super().shutdown(sockets)

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handles asyncio's exceptions: when file descriptors run out, many a second, logs only once a minute."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif loop.time() - self._reported_at >= REPORT_SECONDS:
            self._reported_at = loop.time()
            logger.error("connections cannot be accepted: %s", error)
