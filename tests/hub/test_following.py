"""Following the hub: when it is taken for an older one than was known."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from multi_agent_mcp.hub.applying import Disk
from multi_agent_mcp.hub.following import Following
from multi_agent_mcp.hub.stream import StreamState

LAST = 100


SHARED = "shared"


class RestartedHub:
    """A hub whose connection is lost and made again while it is asked, for the given time, how far it is."""

    names = SimpleNamespace(stream=SHARED, streams=(SHARED,))
    connected = usable = True

    def __init__(self, *, in_question: int) -> None:
        self.following: Following | None = None
        self.recognised = False
        self.shared_until = 0
        self._remaining = in_question

    async def states(self) -> dict[str, StreamState]:
        self._remaining -= 1
        if self._remaining == 0:
            assert self.following is not None
            self.following.connection_changed()
        return {SHARED: StreamState("one", LAST)}


def _following(hub: RestartedHub) -> Following:
    async def nothing(*_: object) -> None: ...

    async def recognises(*_: object) -> bool:
        return True

    progress = SimpleNamespace(
        place=lambda _: LAST,
        is_new=False,
        scanned=1.0,
        newest={SHARED: LAST},
        identity="one",
        recognises=recognises,
    )
    noticing = SimpleNamespace(publishing=SimpleNamespace(keep_newest=lambda: None), look_at_files=nothing)
    applying = SimpleNamespace(at_home=list)
    return Following(
        cast("Any", hub), cast("Any", applying), cast("Any", noticing), cast("Any", progress), Disk(), lambda: None
    )


def test_a_hub_whose_connection_changed_while_it_was_asked_is_recognised_again() -> None:
    async def follow() -> list[tuple[bool, bool]]:
        hub = RestartedHub(in_question=1)
        following = hub.following = _following(hub)
        found = []
        for _ in range(2):
            await following._synchronise()
            found.append((following.synchronised, hub.recognised))
        return found

    assert asyncio.run(follow()) == [(False, False), (True, True)]


class SuccessorHub(RestartedHub):
    """A hub that was made anew. While it is asked who it is, another machine says that the former one was replaced."""

    async def states(self) -> dict[str, StreamState]:
        assert self.following is not None
        self.following.found_replaced()
        return {SHARED: StreamState("two after one", LAST)}


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
        await following._synchronise()
        return following.replaced, following.synchronised

    assert asyncio.run(follow()) == (False, True)
