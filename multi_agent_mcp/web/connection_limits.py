"""Limits the connections to the console, so that other programs cannot exhaust them.

Any program on this machine can connect. uvicorn has no deadline for a request that never ends (Kludex/uvicorn issue
157), and at its limit it refuses new connections; hypercorn and granian have a deadline, but no limit that drops old
connections. So this module does both: a connection is a stranger's until a request on it carries the Owner's cookie. A
stranger's connection is dropped after `STRANGER_SECONDS`, and earlier when the limit is reached.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

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
