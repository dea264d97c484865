"""The console as an ASGI application: access, pages, API, event stream."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any

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
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.features import load
from multi_agent_mcp.texts import CONSOLE, Texts, catalogue
from multi_agent_mcp.web.api import AT_THE_MACHINE, Endpoint, endpoints_of
from multi_agent_mcp.web.live import Live
from multi_agent_mcp.web.pages import page_routes, rendered
from multi_agent_mcp.web.request import ApiRequest, parse_body, read_body
from multi_agent_mcp.web.security import COOKIE_SECONDS, Auth, SecurityMiddleware, is_own_origin
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
    return HTMLResponse(rendered("lost", t=console.labels, words=words), status)


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
        services.recent_attention.examined(None)
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
