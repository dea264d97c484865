"""The session directory that is fuzzed: one for a whole run, restored for every input."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.services.team.setup import add_missing, create_session
from multi_agent_mcp.wiring import Services
from tests.conftest import TEAM
from tests.crash.stage import MEMORY, Seat
from tests.end_to_end.support import ERROR_CODES

AGENT = "worker-a"
ANSWER_CHARACTERS = 9_000


@cache
def _template() -> Path:
    base = Path(tempfile.mkdtemp(prefix="fuzz-", dir=MEMORY if MEMORY.is_dir() else None))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    root = base / "template"
    create_session(root, "demo", TEAM, "en")
    add_missing(context(root).agents, TEAM)
    return root


def fresh() -> Path:
    """A root with the session `demo` as `init` makes it."""
    base = _template().parent
    for old in base.glob("root-*"):
        shutil.rmtree(old, ignore_errors=True)
    # A name of its own: the console's threads may still look at the one before.
    root = Path(tempfile.mkdtemp(prefix="root-", dir=base)) / "root"
    shutil.copytree(_template(), root)
    return root


def context(root: Path) -> Services:
    return open_session(root, "demo", notifier=Recorder())


def seat(root: Path, agent_id: str = AGENT, purpose: str = "task") -> Seat:
    return Seat(context(root), agent_id, purpose)


def ask(taken: Seat, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a call, after checking that it is one: JSON, not too long, a known code, nothing `internal`. An
    interrupt in its place is answered by {}."""
    from multi_agent_mcp.services.sessions.confirmation import Confirmation

    confirmation = Confirmation()
    result = taken.middleware.answer(tool, arguments, confirmation)
    confirmation.written()
    if result.structured_content is None:
        return {}
    answer: dict[str, Any] = result.structured_content
    text = json.dumps(answer, ensure_ascii=False, allow_nan=False)
    text.encode()
    assert len(text) < ANSWER_CHARACTERS, (tool, len(text))
    assert answer["success"] is not bool(result.is_error)
    if not answer["success"]:
        assert answer["error"] in ERROR_CODES, answer
        assert answer["error"] != "storage_error", (tool, arguments, answer)
    return answer
