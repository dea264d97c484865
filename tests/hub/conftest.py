"""Fixtures for the tests of several machines: a desk with the hub, and a laptop that has joined it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hub.support import DESK, LAPTOP, Machine, Machines, eventually, machines


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Two running machines that have received each other's heartbeat."""
    with machines(tmp_path_factory.mktemp("two"), LAPTOP) as made:
        eventually(lambda: made[DESK].services.machines.states() == {DESK: "here", LAPTOP: "up"})
        eventually(lambda: made[LAPTOP].services.machines.states() == {DESK: "up", LAPTOP: "here"})
        yield made


@pytest.fixture
def desk(two: Machines) -> Machine:
    return two[DESK]


@pytest.fixture
def laptop(two: Machines) -> Machine:
    return two[LAPTOP]
