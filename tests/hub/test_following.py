"""Following the hub: when it is taken for an older one than was known."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from multi_agent_mcp.hub.applying import Disk
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


def _following(hub: GrowingHub) -> Following:
    async def nothing(*_: object) -> None: ...

    async def recognises(*_: object) -> bool:
        return True

    progress = SimpleNamespace(
        sequence=KNOWN_HERE,
        log_sequence=0,
        restore_until=0,
        is_restoring_logs=False,
        is_new=False,
        scanned=1.0,
        witness=(0, ""),
        newest=KNOWN_HERE,
        identity="one",
        recognises=recognises,
    )
    noticing = SimpleNamespace(publishing=SimpleNamespace(keep_newest=lambda: None), look_at_files=nothing)
    applying = SimpleNamespace(at_home=list)
    return Following(
        cast("Any", hub), cast("Any", applying), cast("Any", noticing), cast("Any", progress), Disk(), lambda: None
    )


@pytest.mark.parametrize(("claimed", "replaced"), [(LAST, False), (LAST + 1, True)])
def test_a_hub_that_grows_while_it_is_asked_is_not_taken_for_an_older_one(claimed: int, *, replaced: bool) -> None:
    async def follow() -> bool:
        hub = GrowingHub()
        hub.following = _following(hub)
        hub.following.synchronised = True
        hub.following.claimed(claimed, claimed)
        await hub.following._follow()
        return hub.following.replaced

    assert asyncio.run(follow()) is replaced


class RestartedHub(GrowingHub):
    """A hub whose connection is lost and made again while it is asked, for the given time, for new values."""

    def __init__(self, *, in_question: int) -> None:
        super().__init__()
        self.recognised = False
        self._remaining = in_question

    async def after(self, *_: object) -> list[Any]:
        self._remaining -= 1
        if self._remaining == 0:
            assert self.following is not None
            self.recognised = False
            self.following.connection_changed()
        return []

    async def state(self, *_: object) -> StreamState:
        return StreamState("one", LAST)


def test_a_hub_whose_connection_changed_while_it_was_asked_is_recognised_again() -> None:
    async def follow() -> list[tuple[bool, bool]]:
        hub = RestartedHub(in_question=1)
        following = hub.following = _following(hub)
        found = []
        for _ in range(2):
            await following._follow()
            found.append((following.synchronised, hub.recognised))
        return found

    assert asyncio.run(follow()) == [(False, False), (True, True)]


class SuccessorHub(RestartedHub):
    """A hub that was made anew. While it is asked who it is, another machine says that the former one was replaced."""

    async def state(self, *_: object) -> StreamState:
        assert self.following is not None
        self.following.found_replaced()
        return StreamState("two after one", LAST)


def test_what_another_machine_says_of_the_former_hub_is_not_held_against_its_successor() -> None:
    """Else this machine would say it of the successor, and the others of it again, for ever."""

    async def follow() -> tuple[bool, bool]:
        hub = SuccessorHub(in_question=0)
        following = hub.following = _following(hub)
        progress: Any = following.progress

        async def recognises(*_: object) -> bool:
            progress.identity = "two"
            return True

        progress.recognises = recognises
        await following._follow()
        return following.replaced, following.synchronised

    assert asyncio.run(follow()) == (False, True)
