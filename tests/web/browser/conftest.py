"""Fixtures of the console's tests with a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.support import Web

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

    from tests.web.browsing import Person, Windows

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first has no windows of its own to draw, which halves the price of a page."""
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)


def launched(playwright: Playwright) -> Browser:
    """The machine's own chromium."""
    root = ["--no-sandbox"] if os.geteuid() == 0 else []  # chromium refuses to sandbox root's pages
    return playwright.chromium.launch(executable_path=CHROMIUM, args=root)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A real browser; `scripts/test` installs one where it may. For this package only: Playwright keeps an event loop
    running in this thread, in which nobody else's `asyncio.run` would work."""
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = launched(playwright)
        yield started
        started.close()


@pytest.fixture(scope="package")
def windows(browser: Browser) -> Windows:
    from tests.web.browsing import Windows

    return Windows(browser)


@pytest.fixture
def people(web: Web, windows: Windows) -> Iterator[Callable[..., Person]]:
    """Returns a function that opens a window for a new person; none of them may have met an error."""
    from tests.web.browsing import Person

    came: list[Person] = []

    def come(**options: Any) -> Person:
        came.append(Person(windows, web, **options))
        return came[-1]

    yield come
    for person in came:
        person.leave()
    assert [trouble for person in came for trouble in person.troubles] == []


@pytest.fixture
def person(people: Callable[..., Person]) -> Person:
    """A person who entered by the link and sees the board."""
    return people().enter()


@pytest.fixture
def newcomer(people: Callable[..., Person]) -> Person:
    """A person who is admitted and has seen no page yet."""
    return people().admit()
