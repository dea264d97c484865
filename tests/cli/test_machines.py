"""`share` and its like: what they refuse, before anything listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.mark.parametrize("arguments", [("share", "--again", "laptop"), ("share", "--reseed"), ("relay", "--start")])
def test_what_needs_a_shared_session_shares_none(run: Run, session: Path, arguments: tuple[str, ...]) -> None:
    refused = run(*arguments)
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "invalid_arguments" in refused.stderr
    assert not (session / ".share").exists()
