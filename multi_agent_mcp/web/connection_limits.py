"""Connections to the console, limited so that other programs cannot exhaust them.

Any program on this machine can connect. uvicorn has no deadline for a request that never ends (Kludex/uvicorn issue
157), and at its limit it refuses new ones; hypercorn and granian have a deadline, but no limit that makes
room. So the limit is held here: a connection without a request that carried the Owner's cookie is a stranger's; it ends
after a few seconds whatever it does, and gives way earlier where room is needed.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

STRANGER_SECONDS = 5.0
CONNECTIONS = 100  # a browser opens six of them
ADMIT = "admit"
"""The key in a request's `state` (ASGI, lifespan state) of the function that marks its connection as the Owner's."""


def connection_limit() -> int:
    """How many connections there may be: a quarter of the file descriptors at most, since the services need some too
    and as many again may wait to be accepted or closed."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS if descriptors == resource.RLIM_INFINITY else min(CONNECTIONS, descriptors // 4)


class Connection(H11Protocol):
    """uvicorn's connection, a stranger's until `admit` is called. Needs `limit_concurrency` in the configuration."""

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
        """A request on this connection carried the Owner's cookie."""
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
        """This one, when all others are the Owner's."""
        strangers = {
            other: other._deadline.when()
            for other in self.connections
            if isinstance(other, Connection) and other._deadline is not None
        }
        return min(strangers, key=strangers.__getitem__)

    def _drop(self) -> None:
        """Ends it at once: what could not be written yet may never be read."""
        self.connections.discard(self)  # the transport says only later that it is lost
        self.admit()
        self.transport.abort()
