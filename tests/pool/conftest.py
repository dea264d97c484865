"""A session with a pool, and a seat at its table for each agent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.server.seat import Seat

SeatOf = Callable[[str], Seat]


@pytest.fixture
def pooled(services: Services, clock: Clock, recorder: Recorder) -> Services:
    """The session of `services`, opened again with `pool: on`."""
    path = services.path / "session.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text(encoding="utf-8")), "pool": "on"}))
    return open_session(services.root, "demo", clock=clock, notifier=recorder)


@pytest.fixture
def seat(pooled: Services) -> SeatOf:
    seats: dict[str, Seat] = {}

    def of(agent_id: str) -> Seat:
        return seats.setdefault(agent_id, Seat(pooled, agent_id))

    return of
