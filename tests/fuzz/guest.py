"""A visitor of the console of the fuzzed session, whose doorbell rings nowhere."""

from __future__ import annotations

from pathlib import Path

from multi_agent_mcp.wiring import Services
from tests.end_to_end.support import Team
from tests.fuzz.ground import context
from tests.web.support import Guest


class _Quiet(Team):
    @property
    def services(self) -> Services:
        return context(self.root)


def guest(root: Path) -> Guest:
    """`root` must be called `root`, as `ground.fresh` does."""
    return Guest(_Quiet(root.parent, {}))
