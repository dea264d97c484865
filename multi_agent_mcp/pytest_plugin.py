"""The fixture `agent_team` (docs/python.md, In your tests). What it needs is imported when a test uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from multi_agent_mcp.toolkit.team import Agents, Team

AGENTS = {"owner": "owner", "admin": "admin", "worker-a": "worker", "worker-b": "worker"}


class MakeTeam(Protocol):
    """The type of the fixture `agent_team`."""

    def __call__(self, agents: Agents = ..., *, session: str = ..., language: str = ..., **settings: Any) -> Team: ...


@pytest.fixture
def agent_team(tmp_path: Path) -> Iterator[MakeTeam]:
    """Makes teams in `tmp_path` that ring nobody, and closes them. `agent_team()` has an owner, an admin and the
    workers worker-a and worker-b; agents and settings are as in `Team.create`."""
    from multi_agent_mcp import Team

    with ExitStack() as teams:

        def make(agents: Agents = AGENTS, *, session: str = "demo", language: str = "en", **settings: Any) -> Team:
            return teams.enter_context(Team.create(tmp_path, agents, session=session, language=language, **settings))

        yield make
