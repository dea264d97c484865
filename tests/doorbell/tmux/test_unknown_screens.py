"""Screens nobody has described are kept once per shape, without what they say."""

from __future__ import annotations

from multi_agent_mcp.doorbell.tmux.learning import MOST_SAVED, UnknownScreens
from multi_agent_mcp.doorbell.tmux.screens import Screen
from multi_agent_mcp.store.durable_files import Files


def _kept(files: Files) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted((files.base / "unknown_screens").glob("*.txt"))]


def test_a_screen_is_kept_once_per_shape_and_redacted(files: Files) -> None:
    unknown = UnknownScreens(files, files.base / "unknown_screens")
    for secret in ("rosebud 12", "swordfish 3456"):
        unknown.save("claude", Screen(rows=("╭──╮", f"│ {secret} │", "╰──╯"), title=secret))
    (text,) = _kept(files)
    assert "│ xxxxxxx 99 │" in text
    assert "rosebud" not in text
    unknown.save("claude", Screen(rows=("> ? (y/n)",)))
    assert len(_kept(files)) == 2


def test_no_more_than_fifty_screens_are_kept(files: Files) -> None:
    unknown = UnknownScreens(files, files.base / "unknown_screens")
    for number in range(MOST_SAVED + 5):
        unknown.save("codex", Screen(rows=("-+" * (number + 1),)))
    assert len(_kept(files)) == MOST_SAVED
