"""Fixtures of the console's tests: a team, its console in a separate process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.conftest import anyio_backend, bare, env, made_once, team  # noqa: F401 - fixtures
from tests.end_to_end.support import Team
from tests.web.asking import opened, own_tmux  # noqa: F401 - fixtures
from tests.web.support import Guest, Visitor, Web


@pytest.fixture
def web(team: Team) -> Iterator[Web]:  # noqa: F811 - the fixture above
    with Web(team) as started:
        yield started


@pytest.fixture
def visitor(web: Web) -> Visitor:
    """A visitor who entered by the link."""
    return web.visitor()


@pytest.fixture
def guest(team: Team) -> Guest:  # noqa: F811 - the fixture above
    """The same without a process, for tests that do not depend on one."""
    return Guest(team)
