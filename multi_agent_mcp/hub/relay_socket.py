"""The relay's socket for this machine's processes: one line of JSON each way; see `hub.share_directory`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from multi_agent_mcp.errors import HubUnreachable, StorageError
from multi_agent_mcp.hub.share_directory import HUB_SLOW, Share, socket_path
from multi_agent_mcp.store.authority import Shared, Superseded

if TYPE_CHECKING:
    from multi_agent_mcp.hub.outgoing import Noticing

# The authority for the relay's own threads, which ask its event loop directly; other processes use the socket.

T = TypeVar("T")

ANSWER_SECONDS = 6.0


class Decides(Protocol):
    """The part of `hub.relay.Relay` that decides changes."""

    def require(self) -> None: ...

    async def put(
        self, key: str, revision: int, data: bytes, was: int | None = None, *, edited: bool = False
    ) -> int: ...

    async def current(self, key: str) -> Shared | None: ...

    def is_up(self, machine: str) -> bool: ...


class RelayAuthority:
    """The authority for the relay's own threads; see `store.shared_collection.Authority`."""

    def __init__(self, machine: str) -> None:
        self.here: str | None = machine
        self.relay: Decides | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def require(self) -> None:
        self._relay().require()

    def create(self, key: str, data: bytes, was: int | None = None) -> int | None:
        return self._wait(self._relay().put(key, 0, data, was))

    def swap(self, key: str, revision: int, data: bytes, *, edited: bool = False) -> int | None:
        return self._wait(self._relay().put(key, revision, data, edited=edited))

    def current(self, key: str) -> Shared | None:
        return self._wait(self._relay().current(key))

    def queue(self, paths: Any, *, wait: bool) -> str | None:  # noqa: ARG002 - the file events notice it
        return HUB_SLOW

    def is_up(self, machine: str) -> bool:
        return self._relay().is_up(machine)

    def _relay(self) -> Decides:
        if self.relay is None:
            raise HubUnreachable("no_relay")
        return self.relay

    def _wait(self, answer: Coroutine[Any, Any, T]) -> T:
        if self.loop is None:
            raise HubUnreachable("no_relay")
        try:
            return asyncio.run_coroutine_threadsafe(answer, self.loop).result(ANSWER_SECONDS)
        except (FutureTimeout, CancelledError) as error:  # the relay is ending, and must not wait for its threads
            raise HubUnreachable("hub_unclear") from error


logger = logging.getLogger(__name__)

LINE_BYTES = 16 << 20
Answer = dict[str, Any]


class Answers(Decides, Protocol):
    """The part of `hub.relay.Relay` that answers requests."""

    noticing: Noticing

    def status(self) -> Answer: ...


class Answering:
    """The server on the relay's socket."""

    def __init__(self, relay: Answers, share: Share) -> None:
        self.relay = relay
        self.share = share
        self._sending: set[asyncio.Task[str | None]] = set()
        self._operations: dict[str, Callable[[Mapping[str, Any]], Awaitable[Answer]]] = {
            "require": self._require,
            "create": self._put,
            "swap": self._put,
            "current": self._current,
            "queue": self._queue,
            "status": self._status,
        }

    async def listen(self) -> asyncio.AbstractServer:
        """Starts answering, until the returned server is closed."""
        self.share.remove_socket()
        with socket_path(self.share.path) as path:
            before = os.umask(0o177)
            try:
                return await asyncio.start_unix_server(self._serve, path, limit=LINE_BYTES)
            finally:
                os.umask(before)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError):
            request = json.loads(await reader.readline())
            writer.write(json.dumps(await self._answer(request)).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _answer(self, request: Mapping[str, Any]) -> Answer:
        try:
            return await self._operations[request["op"]](request)
        except Superseded as newer:
            return {"superseded": _as_json(newer.current)}
        except StorageError as refusal:
            return {"refused": refusal.code, "key": refusal.key.removeprefix("error.")}

    async def _require(self, _: Mapping[str, Any]) -> Answer:
        self.relay.require()
        return {}

    async def _put(self, request: Mapping[str, Any]) -> Answer:
        revision, was = request.get("revision", 0), request.get("was")
        return {"revision": await self.relay.put(request["key"], revision, request["data"].encode(), was)}

    async def _current(self, request: Mapping[str, Any]) -> Answer:
        found = await self.relay.current(request["key"])
        return {"current": None if found is None else _as_json(found)}

    async def _queue(self, request: Mapping[str, Any]) -> Answer:
        sending = asyncio.create_task(self._send([Path(path) for path in request["paths"]]))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        done, _ = await asyncio.wait([sending], timeout=request["wait"])
        return {"waits": sending.result() if done else HUB_SLOW}

    async def _send(self, paths: list[Path]) -> str | None:
        """Sends mail; returns the code of the reason why the hub does not have it yet, or None if it has."""
        try:
            self.relay.require()
            await self.relay.noticing.send(paths)
        except StorageError as refusal:
            logger.info("queued: %s", refusal)
            for path in paths:
                self.relay.noticing.noticed(path)
            return refusal.key.removeprefix("error.")
        return None

    async def _status(self, _: Mapping[str, Any]) -> Answer:
        return self.relay.status()


def _as_json(shared: Shared) -> Answer:
    return {"revision": shared.revision, "data": shared.data.decode()}
