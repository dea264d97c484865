"""Fixtures of the console's tests: a team, its console in a separate process, a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.conftest import anyio_backend, bare, env, team  # noqa: F401 - fixtures
from tests.end_to_end.support import Team
from tests.web.asking import opened, own_tmux  # noqa: F401 - fixtures
from tests.web.support import Guest, Visitor, Web

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

    from tests.web.browsing import Person

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


def launched(playwright: Playwright) -> Browser:
    """The machine's own chromium."""
    root = ["--no-sandbox"] if os.geteuid() == 0 else []  # chromium refuses to sandbox root's pages
    return playwright.chromium.launch(executable_path=CHROMIUM, args=root)


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser; `scripts/test` installs one where it may. For one module only: Playwright keeps an event loop
    running in this thread, in which nobody else's `asyncio.run` would work."""
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = launched(playwright)
        yield started
        started.close()


@pytest.fixture
def people(web: Web, browser: Browser) -> Iterator[Callable[..., Person]]:
    """Returns a function that opens a window for a new person; none of them may have met an error."""
    from tests.web.browsing import Person

    came: list[Person] = []

    def come(**options: Any) -> Person:
        came.append(Person(browser, web, **options))
        return came[-1]

    yield come
    for person in came:
        person.context.close()
    assert [trouble for person in came for trouble in person.troubles] == []


@pytest.fixture
def person(people: Callable[..., Person]) -> Person:
    """A person who entered by the link and sees the board."""
    return people().enter()


@pytest.fixture(scope="session")
def pictures() -> Path:
    """The directory in which screenshots are left for inspection."""
    directory = Path(__file__).parents[2] / ".cache" / "pictures"
    directory.mkdir(parents=True, exist_ok=True)
    return directory
