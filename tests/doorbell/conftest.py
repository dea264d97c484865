"""Fixtures for the tests of doorbells: a tmux server with panes in which programs can be started."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.conformance.stage import Stage


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    with Stage(0) as made:
        yield made
