"""Following the hub: when it is taken for an older one than was known."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from multi_agent_mcp.hub.disk_errors import Disk
from multi_agent_mcp.hub.following import Following
from multi_agent_mcp.hub.stream import StreamState

KNOWN_HERE, LAST = 50, 100


class GrowingHub:
    """A hub in which another machine stores a value, and says so, while it is asked how far it is."""

    names = SimpleNamespace(log_stream="logs")
    connected = usable = recognised = True

    def __init__(self) -> None:
        self.following: Following | None = None

    async def after(self, *_: object) -> list[Any]:
        return []

    async def state(self) -> StreamState:
        assert self.following is not None
        self.following.claimed(LAST + 1, LAST + 1)
        return StreamState("one", LAST)


@pytest.mark.parametrize(("claimed", "replaced"), [(LAST, False), (LAST + 1, True)])
def test_a_hub_that_grows_while_it_is_asked_is_not_taken_for_an_older_one(claimed: int, *, replaced: bool) -> None:
    async def follow() -> bool:
        hub, told = GrowingHub(), asyncio.Event()
        progress = SimpleNamespace(
            sequence=KNOWN_HERE, log_sequence=0, restore_until=0, is_restoring_logs=False, witness=(0, "")
        )
        noticing = SimpleNamespace(publishing=None)
        hub.following = Following(
            cast("Any", hub), cast("Any", None), cast("Any", noticing), cast("Any", progress), Disk(), told.set
        )
        hub.following.synchronised = True
        hub.following.claimed(claimed, claimed)
        await hub.following._follow()
        return hub.following.replaced

    assert asyncio.run(follow()) is replaced
