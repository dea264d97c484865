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
        r"^\|.*?`((?:scripts/demo|multi-agent-mcp|limits|notify_command)\b ?[a-z-]*)",
        r"(multi-agent-mcp (?:--)?[a-z-]+|pip install [^#\\n]*)",
        r"\]\((docs/[\w./]+md)",
    ],
)
def test_the_japanese_readme_shows_what_the_english_one_does(shown: str) -> None:
    english, japanese = (re.findall(shown, readme.read_text(encoding="utf-8"), re.MULTILINE) for readme in READMES)
    assert sorted(set(japanese)) == sorted(set(english))
    assert len(japanese) >= len(english)
