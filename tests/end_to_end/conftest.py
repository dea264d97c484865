"""Fixtures of the system tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.quiet import quiet_environment
from tests.end_to_end.support import Team, Terminal


@pytest.fixture
def anyio_backend() -> str:
    """The servers run on asyncio, and so do these tests."""
    return "asyncio"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment without access to the desktop, home and tmux of the user who runs the tests."""
    return quiet_environment(tmp_path)


@pytest.fixture
def bare(tmp_path: Path, env: dict[str, str]) -> Team:
    """A team before `init`."""
    return Team(tmp_path, env)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a team, to be copied, which costs a tenth of making one."""
    return Team(tmp_path_factory.mktemp("team"), {}).make().root


@pytest.fixture
def team(bare: Team, made_once: Path) -> Team:
    """A team of an owner, an admin and two workers; no server runs."""
    shutil.copytree(made_once, bare.root)
    return bare


@pytest.fixture
def terminal(env: dict[str, str]) -> Iterator[Terminal]:
    """A tmux server of one's own."""
    yield from _terminal(env)


@pytest.fixture
def other_terminal(env: dict[str, str]) -> Iterator[Terminal]:
    """A second tmux server."""
    yield from _terminal(env)


def _terminal(env: dict[str, str]) -> Iterator[Terminal]:
    """Its directory is short: a unix socket's path holds about a hundred bytes."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    started = Terminal(Path(tempfile.mkdtemp(prefix="mam-", dir="/tmp")), env)
    try:
        yield started
    finally:
        started.end()
