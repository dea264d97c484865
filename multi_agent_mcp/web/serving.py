"""Running the console until it is stopped."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.web.app import Console, create_app
from multi_agent_mcp.web.live import Live
from multi_agent_mcp.web.security import Auth, Connection, connection_limit
from multi_agent_mcp.wiring import Services

logger = logging.getLogger(__name__)

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
        """The end takes a second at most; uvicorn would leave out a part of it at a second Ctrl-C, and complain."""
        if not self.should_exit:
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
