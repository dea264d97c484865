"""The console's tickets, cookies and CSRF tokens, and the tests of Host and Origin (docs/security.md).

`security.py` applies them to every request. The server listens on loopback only, so these keep out: other users of this
machine, other sites in the Owner's browser (cross-site requests, DNS rebinding), and old links in a shell's history.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path

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
