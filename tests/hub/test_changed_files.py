"""Detection of changed files that are to be sent, while other processes remove and archive them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from multi_agent_mcp.hub.noticing import changed_since, travels


def test_what_vanishes_during_the_look_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ipc/admin/kept.md", "ipc/admin/archived.md", "conversations/cnv_1/conversation.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    scandir = os.scandir

    @contextmanager
    def scanned(path: str) -> Iterator[list[os.DirEntry[str]]]:
        if path.endswith("cnv_1"):
            (Path(path) / "conversation.md").unlink()
            Path(path).rmdir()
        with scandir(path) as found:
            items = list(found)
        if path.endswith("admin"):
            (Path(path) / "archived.md").unlink()
        yield items

    monkeypatch.setattr(os, "scandir", scanned)
    assert [changed.path for changed in changed_since(tmp_path, 0.0)] == [Path("ipc/admin/kept.md")]


@pytest.mark.parametrize("kind", ["ipc", "notifications", "sessions", "executions"])
def test_only_an_agents_directory_travels(kind: str) -> None:
    assert travels(Path(kind, "worker-a", "a.md"))
    assert travels(Path(kind, "worker-a", "archive", "2026-01", "a.md"))
    assert not travels(Path(kind, "worker-a.bak", "a.md"))
    assert not travels(Path(kind, "a.md"))
