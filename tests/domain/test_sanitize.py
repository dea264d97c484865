"""Text written by agents cannot control a terminal, conceal its content, or imitate another agent's name."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_agent_mcp.domain.text import display_id, one_line, sanitize

KEPT = {"\t", "\n", "\u200c", "\u200d", "\u00ad"}
"""Controls and format characters that are wanted: joiners make emoji and Persian words, a soft hyphen breaks one."""


@given(st.text())
def test_no_control_or_hidden_character_is_left(text: str) -> None:
    shown = sanitize(text)
    assert len(shown) == len(text)
    for character in set(shown) - KEPT:
        assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in (
            "LRE",
            "RLE",
            "LRO",
            "RLO",
            "PDF",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
        )
    assert not any("\U000e0000" <= character <= "\U000e007f" for character in shown)  # invisible tags
    shown.encode()


@pytest.mark.parametrize(
    "text",
    ["日本語のテキスト", "👩‍👩‍👧 🎉", "naïve Ünïcödé", "العربية", "a\tb\nc", "${HOME} `id` $(id) #{pane_id} #(id)"],
)
def test_what_people_write_is_shown_as_it_is(text: str) -> None:
    assert sanitize(text) == text


@given(st.text())
def test_a_line_stays_one(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1


@pytest.mark.parametrize("name", ["admin", "worker-a", "A_1", "a" * 64])
def test_a_name_is_shown_as_it_is(name: str) -> None:
    assert display_id(name) == name


@pytest.mark.parametrize(
    "name", ["аdmin", "admin\u200b", "ad\u202emin", "admin ", "admin → owner", "ｏｗｎｅｒ", "a\nb", "", "-a", "a" * 65]
)
def test_what_only_looks_like_a_name_is_quoted_and_spelled_in_ascii(name: str) -> None:
    shown = display_id(name)
    assert shown.startswith(("'", '"'))
    assert shown.isascii()
    assert shown.isprintable()


def test_nobody_is_a_dash() -> None:
    assert display_id(None) == "-"
