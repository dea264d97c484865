"""A visitor of the console of the fuzzed session, whose doorbell rings nowhere."""

from __future__ import annotations

from pathlib import Path

from multi_agent_mcp.bootstrap import Services
from tests.fuzz.ground import opened
from tests.system.support import Team
from tests.web.support import Guest


class _Quiet(Team):
    @property
    def services(self) -> Services:
        return opened(self.root)


def guest(root: Path) -> Guest:
    """`root` must be called `root`, as `ground.fresh` does."""
    return Guest(_Quiet(root.parent, {}))
