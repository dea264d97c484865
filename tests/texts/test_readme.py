"""The two READMEs show the same things, each in its language."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

READMES = [Path(__file__).parents[2] / name for name in ("README.md", "README.ja.md")]


@pytest.mark.parametrize(
    "shown",
    [
        r"^(#+) ",
        r"^(```\w*|!\[)",
        r"`((?:scripts/demo|multi-agent-mcp|telemetry|notify_command|share|workspace|init)\b ?[a-z-]*)",
        r"(multi-agent-mcp (?:--)?[a-z-]+|pip install [^#\\n]*)",
        r"\]\(((?:docs|https:)[\w./:#-]+)",
    ],
)
def test_the_japanese_readme_shows_what_the_english_one_does(shown: str) -> None:
    english, japanese = (re.findall(shown, readme.read_text(encoding="utf-8"), re.MULTILINE) for readme in READMES)
    assert sorted(set(japanese)) == sorted(set(english))
    assert len(japanese) >= len(english)


@pytest.mark.parametrize("readme", READMES, ids=lambda readme: readme.name)
def test_a_readme_is_read_in_two_minutes(readme: Path) -> None:
    assert len(readme.read_text(encoding="utf-8").splitlines()) <= 110
