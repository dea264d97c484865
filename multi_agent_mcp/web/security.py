"""The middleware that checks every request by the rules of `auth.py` (host, origin, cookie, token), and adds security
headers to every answer."""

from __future__ import annotations

import base64
import hashlib

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from multi_agent_mcp.texts import Texts
from multi_agent_mcp.web.auth import CSRF_HEADER, SAFE_METHODS, Auth, is_own_host, is_own_origin
from multi_agent_mcp.web.connection_limits import ADMIT
from multi_agent_mcp.web.timeline import stylesheet

OPEN_PATHS = ("/open", "/static/")


def _source_of(text: str) -> str:
    """An inline style as a Content-Security-Policy source (W3C CSP3 §2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        # The timeline contains its style, so that a saved picture is complete.
        " ".join(["style-src 'self'", *(_source_of(stylesheet(dark)) for dark in (None, False, True))]),
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
