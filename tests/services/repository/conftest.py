"""Sessions with settings of a repository."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.wiring import Services


@pytest.fixture
def reopened(services: Services) -> Callable[..., Services]:
    """Opens the session again, with further settings in session.yaml."""

    def reopen(**settings: object) -> Services:
        path = services.workspace.settings_path
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **settings}))
        return open_session(services.root, "demo", clock=services.clock, notifier=services.notifier)

    return reopen
