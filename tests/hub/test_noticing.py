"""What becomes of a changed file that cannot be published."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from multi_agent_mcp.errors import HubUnreachable, InvalidId, Refusal
from multi_agent_mcp.hub.publishing import Noticing


@pytest.mark.parametrize(("refusal", "left"), [(InvalidId(value="'x y'"), 0), (HubUnreachable(), 1)])
def test_only_what_may_succeed_later_is_tried_again(tmp_path: Path, refusal: Refusal, left: int) -> None:
    tried = []

    async def publish(path: Path) -> None:
        tried.append(path)
        raise refusal

    publishing = SimpleNamespace(publish=publish, is_own=lambda _: False)
    noticing = Noticing(tmp_path, cast("Any", SimpleNamespace(usable=True)), cast("Any", publishing))
    noticing.due.add(Path("agents.json"), 0.0)
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(noticing.run(), 0.2))
    assert (len(tried), len(noticing.due)) == (1, left)
