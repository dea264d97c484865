"""Following the hub: when it is taken for an older one than was known, and what waits for what."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.entity import SessionName
from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.hub.applying import Applying
from multi_agent_mcp.hub.disk import Disk
from multi_agent_mcp.hub.following import StreamFollower
from multi_agent_mcp.hub.stream import AFTER, OFFSET, Hub, Stored, StreamState
from multi_agent_mcp.hub.subjects import LOG, READ, Names
from multi_agent_mcp.store.workspace import Workspace

LAST = 100
NAMES = Names("0" * 32)


SHARED = "shared"


class RestartedHub:
    """A hub whose connection is lost and made again while it is asked, for the given time, how far it is."""

    names = SimpleNamespace(stream=SHARED, streams=(SHARED,))
    connected = usable = True
    silent: frozenset[str] = frozenset()

    def __init__(self, *, in_question: int) -> None:
        self.following: StreamFollower | None = None
        self.recognised = False
        self.shared_until = 0
        self._remaining = in_question

    async def states(self) -> dict[str, StreamState]:
        self._remaining -= 1
        if self._remaining == 0:
            assert self.following is not None
            self.following.connection_changed()
        return {SHARED: StreamState("one", LAST)}


def _following(hub: RestartedHub) -> StreamFollower:
    async def nothing(*_: object) -> None: ...

    async def recognises(*_: object) -> bool:
        return True

    progress = SimpleNamespace(
        place=lambda _: LAST,
        is_new=False,
        is_restoring=lambda _: False,
        scanned=1.0,
        newest={SHARED: LAST},
        identity="one",
        recognises=recognises,
    )
    noticing = SimpleNamespace(publishing=SimpleNamespace(keep_newest=lambda: None), look_at_files=nothing)
    applying = SimpleNamespace(at_home=list)
    return StreamFollower(
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


def test_a_stream_without_a_leader_stops_only_itself() -> None:
    names = Names("0" * 32)
    silent = names.streams[3]

    class Leaderless(Hub):
        async def state(self, stream: str) -> StreamState:
            if stream == silent:
                raise HubUnreachable
            return StreamState("one", LAST)

    hub = Leaderless(names, "desk")
    assert asyncio.run(hub.states()).keys() == {*names.streams} - {silent}
    assert hub.silent == {silent}
    silent = names.stream  # without the shared one nothing is known of the hub
    with pytest.raises(HubUnreachable):
        asyncio.run(hub.states())


def test_what_another_machine_says_of_the_hub_is_a_reason_to_look_and_a_hub_that_is_itself_again_is_used() -> None:
    async def follow() -> list[tuple[bool, bool]]:
        following = _following(hub := RestartedHub(in_question=0))
        hub.following = following
        progress: Any = following.progress
        await following._synchronise()
        found = []
        for is_known in (True, False):

            async def recognises(*_: object, is_known: bool = is_known) -> bool:
                return is_known

            progress.recognises = recognises
            following._looked_at = float("-inf")
            following.doubt()
            await following._look_around()
            found.append((following.replaced, following.synchronised))
        progress.recognises = recognises_always
        found.append((not await following._is_known_again(), following.replaced))
        return found

    async def recognises_always(*_: object) -> bool:
        return True

    assert asyncio.run(follow()) == [(False, True), (True, False), (False, False)]


LANE = "own"


def value(owner: str, kind: str = READ) -> Stored:
    return Stored(NAMES.own("desk", kind, owner, "x.md"), 1, {AFTER: "0"}, b'{"read_at": null}')


def log_of(owner: str) -> Stored:
    return Stored(NAMES.log("desk", LOG, f"{owner}/exec_0123456789ab"), 1, {AFTER: "0", OFFSET: "0"}, b"line\n")


@pytest.mark.parametrize(
    ("batch", "waits"),
    [
        ([value("admin")], False),
        ([value("admin"), value("newcomer")], True),
        ([log_of("admin")], False),
        ([log_of("newcomer")], True),
        ([value("newcomer", "ses")], True),
    ],
)
@pytest.mark.parametrize("restoring", [False, True])
def test_what_an_agent_wrote_is_applied_when_its_record_is_here(
    tmp_path: Path, batch: list[Stored], *, waits: bool, restoring: bool
) -> None:
    """Whoever shared a session first wrote its marks before the hub had an agent, so they name no revision to wait for;
    a machine that passed them over had all that mail once more."""
    workspace = Workspace(tmp_path, SessionName("demo"))
    workspace.make()
    workspace.registry.create()
    workspace.registry.add(Agent(id="admin", role="owner"))
    places = {SHARED: 0}

    class SharedHub(RestartedHub):
        names: Any = NAMES

        async def state(self, _: str) -> StreamState:
            return StreamState("one", 7)

    async def follow() -> list[bool]:
        following = _following(SharedHub(in_question=0))
        following._wakes[NAMES.stream] = asyncio.Event()
        following.applying = Applying(
            workspace=workspace,
            names=NAMES,
            machine="laptop",
            consequences=cast("Any", None),
            on_written=lambda *_: None,
        )
        progress: Any = following.progress
        progress.place = lambda stream: places[SHARED] if stream == NAMES.stream else 0
        progress.is_restoring = lambda _: restoring and places[SHARED] < 7
        task, found = asyncio.create_task(following._after_referred(LANE, batch)), []
        for place in (0, 6, 7):
            places[SHARED] = place
            async with following._moved:
                following._moved.notify_all()
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(task), 0.05 if place < 7 else 5)
            found.append(task.done())
        return found

    assert asyncio.run(follow()) == ([False, False, True] if waits or restoring else [True, True, True])
