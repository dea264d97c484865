"""Fixtures for all unit tests: an initialised session in `tmp_path`, with a recorder as its doorbell."""

from __future__ import annotations

import compileall
import gc
import importlib
import os
import shutil
from collections.abc import Generator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings

import multi_agent_mcp
from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.services.team.setup import add_missing, create_session
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.locks import ORDER_CHECK
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.wiring import Services
from tests import warm
from tests.team import TEAM as TEAM

settings.register_profile("untimed", deadline=None)  # a loaded machine is no bug
settings.load_profile("untimed")

ORDER_CHECK.raise_violations()  # a lock taken out of order fails the test that takes it
os.environ["MULTI_AGENT_MCP_CHECK_LOCKS"] = "1"  # and ends a process that a test has started

warm.install()


def pytest_configure(config: pytest.Config) -> None:
    """Compiles the package before any test starts: the processes that tests start do not write what they compile. In a
    new clone the tests, too: each worker of pytest-xdist would rewrite all of their assertions."""
    if hasattr(config, "workerinput"):
        return
    compileall.compile_dir(multi_agent_mcp.__path__[0], quiet=2)
    tests = Path(__file__).parent
    if getattr(config.option, "numprocesses", None) and not any(tests.glob("*/__pycache__/test_*-pytest-*.pyc")):
        for path in sorted(tests.rglob("test_*.py")):
            with suppress(pytest.skip.Exception):  # `allow_module_level`
                importlib.import_module(".".join(path.relative_to(tests.parent).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spares the garbage collector the tests: some hundred thousand objects that stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("tmux") and shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 21, 46, 1, 123456, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / ".multi-agent-mcp"


@pytest.fixture(scope="session")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the session `demo`, to be copied: making one durably takes a quarter of a second."""
    root = tmp_path_factory.mktemp("initialised")
    create_session(root, "demo", TEAM, "en")
    add_missing(open_session(root, "demo", clock=Clock(), notifier=Recorder()).agents, TEAM)
    return root


@pytest.fixture
def services(initialised: Path, root: Path, clock: Clock, recorder: Recorder) -> Services:
    """The session `demo` with owner, admin, worker-a and worker-b."""
    shutil.copytree(initialised, root)
    return open_session(root, "demo", clock=clock, notifier=recorder)


@pytest.fixture
def workspace(services: Services) -> Workspace:
    return services.workspace


@pytest.fixture
def files(tmp_path: Path) -> Files:
    base = tmp_path / "session"
    base.mkdir(mode=0o700)
    return Files(base)


@pytest.fixture
def owner(services: Services) -> Agent:
    return services.agents.get("owner")


@pytest.fixture
def admin(services: Services) -> Agent:
    return services.agents.get("admin")


@pytest.fixture
def worker_a(services: Services) -> Agent:
    return services.agents.get("worker-a")


@pytest.fixture
def worker_b(services: Services) -> Agent:
    return services.agents.get("worker-b")
