"""The processor time of a tool call in its server's process, including the work caused by earlier changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.scale.growth import Cost
from benchmarks.team import Team
from benchmarks.wire import Server

AFTERWARDS = 0.25  # seconds for what the server does behind the answer: events of files, the doorbell's thread


def called(server: Server, tool: str, *, news: Callable[[], object] | None = None, **arguments: Any) -> Cost:
    """The cost of a call to a server that runs already; `news` is what somebody else does right before it."""

    def cost() -> float:
        used = server.processor_seconds()
        if news is not None:
            news()
        server.call(tool, **arguments)
        time.sleep(AFTERWARDS)
        return server.processor_seconds() - used

    return cost


@contextmanager
def fresh_call(team: Team, agent_id: str, tool: str, **arguments: Any) -> Iterator[Cost]:
    """The cost of a first call to a server that was started for it and rests: nothing is known yet."""

    def cost() -> float:
        with team.server(agent_id) as server:
            server.rest()
            return called(server, tool, **arguments)()

    yield cost
