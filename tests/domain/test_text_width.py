"""Columns of a terminal."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.text import columns, shortened


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("", 1, ""),
        ("abcd", 4, "abcd"),
        ("abcde", 4, "abc…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("ab cd", 4, "ab…"),
    ],
)
def test_a_text_is_shortened_to_columns_not_to_characters(text: str, width: int, shown: str) -> None:
    assert shortened(text, width) == shown
    assert columns(shown) <= width
