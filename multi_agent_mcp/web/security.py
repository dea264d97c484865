"""The middleware that checks every request by the rules of `Auth` (host, origin, cookie, token), and adds security
headers to every answer."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import resource
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from multi_agent_mcp.features import load
from multi_agent_mcp.features.ours import ALL
from multi_agent_mcp.texts import Texts

# Limits the connections to the console, so that other programs cannot exhaust them.
#
# Any program on this machine can connect. uvicorn has no deadline for a request that never ends (Kludex/uvicorn issue
# 157), and at its limit it refuses new connections; hypercorn and granian have a deadline, but no limit that drops old
# connections. So this module does both: a connection is a stranger's until a request on it carries the Owner's cookie.
# A stranger's connection is dropped after `STRANGER_SECONDS`, and earlier when the limit is reached.

STRANGER_SECONDS = 5.0
CONNECTIONS = 100  # a browser opens six
ADMIT = "admit"
"""The key in a request's `state` (ASGI, lifespan state) of the function that marks its connection as the Owner's."""


def connection_limit() -> int:
    """The limit of connections: at most a quarter of the file descriptors, because the services need some, too, and as
    many connections again may wait to be accepted or closed."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS if descriptors == resource.RLIM_INFINITY else min(CONNECTIONS, descriptors // 4)


class Connection(H11Protocol):
    """A connection of uvicorn, a stranger's until `admit` is called. Needs `limit_concurrency` in the configuration."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, ADMIT: self.admit}, _loop)
        self._deadline: asyncio.TimerHandle | None = None

    def admit(self) -> None:
        """Marks the connection as the Owner's: it is not dropped any more."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(STRANGER_SECONDS, self._drop)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._oldest_stranger()._drop()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.admit()

    def _oldest_stranger(self) -> Connection:
        """The oldest stranger's connection, which is this one if all others are the Owner's."""
        strangers = {
            other: other._deadline.when()
            for other in self.connections
            if isinstance(other, Connection) and other._deadline is not None
        }
        return min(strangers, key=strangers.__getitem__)

    def _drop(self) -> None:
        """Ends the connection at once, without writing pending data, which its client may never read."""
        self.connections.discard(self)  # `connection_lost` is called only later
        self.admit()
        self.transport.abort()


# The console's tickets, cookies and CSRF tokens, and the tests of Host and Origin (docs/security.md).
#
# The middleware below applies them to every request. The server listens on loopback only, so these keep out: other
# users of this machine, other sites in the Owner's browser (cross-site requests, DNS rebinding), and old links in a
# shell's history.

COOKIE_SECONDS = 30 * 86_400
CSRF_HEADER = "x-csrf-token"
SAFE_METHODS = frozenset({"GET", "HEAD"})
NAMES_OF_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Auth:
    """The one-time link and the cookies of a console; used only in the server's event loop.

    Cookies are signed, not stored, so pages stay open when the server is killed and started again. Deleting the
    session's key (`.console/key`) invalidates all cookies. `path` makes the cookie's name specific to the session,
    because browsers share cookies between all ports of a host. `spent` is called when the link opens nothing any more.
    """

    def __init__(self, key: bytes, path: Path, spent: Callable[[], None] = lambda: None) -> None:
        self._key = key
        self._spent = spent
        self.cookie_name = f"mam_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
        self._ticket: str | None = None

    def issue_ticket(self) -> str:
        """Returns the secret of a new one-time link; an older unused link becomes invalid."""
        self._ticket = secrets.token_urlsafe(24)
        return self._ticket

    def redeem(self, ticket: str) -> str | None:
        """Returns a cookie for the ticket; None unless it is the ticket issued last and unused."""
        if self._ticket is None or not _same(ticket, self._ticket):
            return None
        self.withdraw()
        facts = f"{int(time.time()) + COOKIE_SECONDS}.{secrets.token_urlsafe(12)}"
        return f"{facts}.{self._signature('cookie', facts)}"

    def withdraw(self) -> None:
        """Makes the link that was issued last invalid."""
        self._ticket = None
        self._spent()

    def admits(self, cookie: str | None) -> bool:
        """Whether a server of this session issued the cookie and it has not expired."""
        facts, _, signature = (cookie or "").rpartition(".")
        if not facts or not _same(signature, self._signature("cookie", facts)):
            return False
        expires = facts.partition(".")[0]
        # Setting the clock back a little must not invalidate the cookie; by years, it must not extend it.
        return expires.isdigit() and 0 < int(expires) - time.time() <= 2 * COOKIE_SECONDS

    def csrf_token(self, cookie: str) -> str:
        """The token that a page must send with every change, and that other sites cannot read."""
        return self._signature("csrf", cookie)

    def is_own_change(self, cookie: str, token: str | None) -> bool:
        return _same(token or "", self.csrf_token(cookie))

    def _signature(self, purpose: str, facts: str) -> str:
        return hmac.new(self._key, f"{purpose}:{facts}".encode(), hashlib.sha256).hexdigest()


def is_own_host(host: str | None, port: int) -> bool:
    """Whether the header `Host` names loopback; with DNS rebinding it has another name."""
    return host in {f"{name}:{port}" for name in NAMES_OF_LOOPBACK}


def is_own_origin(headers: Mapping[str, str], *, change: bool) -> bool:
    """Whether one of our pages sent the request. Browsers send `Origin` with changes, `Sec-Fetch-Site` always."""
    site = headers.get("sec-fetch-site")
    if site not in (None, "same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return not change
    return origin == f"http://{headers.get('host')}"


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="surrogatepass"), other.encode(errors="surrogatepass"))


OPEN_PATHS = ("/open", "/static/")


def _source_of(text: str) -> str:
    """An inline style as a Content-Security-Policy source (W3C CSP3 §2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


STYLES = [style for where in ALL.each("styles") for style in load(where)()]
"""The style sheets that pages contain: the timeline does, so that a saved picture is complete."""
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        " ".join(["style-src 'self'", *map(_source_of, STYLES)]),
        "img-src 'self' data:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class SecurityMiddleware:
    """ASGI middleware around the whole application. Requests refused here reach no service."""

    def __init__(self, app: ASGIApp, *, access: Auth, port: int, texts: Texts) -> None:
        self.app = app
        self.access = access
        self.port = port
        self.texts = texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = self._refused(HTTPConnection(scope), scope["method"]) or self.app

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                # Module names carry no version, so the browser must ask each time whether its copy is current.
                headers["Cache-Control"] = "no-cache" if scope["path"].startswith("/static/") else "no-store"
            await send(message)

        await answer(scope, receive, guarded)

    def _refused(self, request: HTTPConnection, method: str) -> Response | None:
        """The refusal of a request, or None if it is admitted. A valid cookie makes the connection the Owner's."""
        path: str = request.scope["path"]  # `request.url` trusts the Host header
        cookie = request.cookies.get(self.access.cookie_name)
        admitted = cookie if self.access.admits(cookie) else None
        if admitted and ADMIT in request.scope.get("state", {}):
            request.scope["state"][ADMIT]()
        if not is_own_host(request.headers.get("host"), self.port):
            return self._refusal(path, 421, "wrong_host")
        changes = method not in SAFE_METHODS
        if not is_own_origin(request.headers, change=changes) and path != "/open":
            return self._refusal(path, 403, "foreign_origin")
        if path.startswith(OPEN_PATHS):
            return None
        if admitted is None:
            return self._refusal(path, 401, "no_cookie")
        if changes and not self.access.is_own_change(admitted, request.headers.get(CSRF_HEADER)):
            return self._refusal(path, 403, "no_token")
        return None

    def _refusal(self, path: str, status: int, key: str) -> Response:
        sentence = self.texts(key)
        if path.startswith("/api/"):
            return JSONResponse({"success": False, "error": "unauthorized", "message": sentence}, status)
        return PlainTextResponse(sentence, status)
