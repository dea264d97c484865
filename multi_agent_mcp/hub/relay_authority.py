"""The authority for the relay's own threads, which ask its event loop directly; other processes use the socket."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Protocol, TypeVar

from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.hub.relay_client import HUB_SLOW
from multi_agent_mcp.store.authority import Shared

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
    """The authority for the relay's own threads; see `store.authority.Authority`."""

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
