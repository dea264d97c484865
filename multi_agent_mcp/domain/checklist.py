"""Compares the checklist in a task's description with the reported one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_ASKED = re.compile(r"^[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[[ xX]\][ \t]+(\S.*)$", re.MULTILINE)
"""An item of a task list (GitHub Flavored Markdown, Task list items)."""


def compare(description: str, reported: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The items of the description's task lists in order, then those only reported, each with `text`, `completed`,
    `asked` (it is in the description) and `reported`. Texts that differ only in case and blanks are the same item."""
    answers = {_same(item["text"]): item for item in reported}
    asked = {_same(text): text.strip() for text in _ASKED.findall(description)}
    texts = asked | {key: item["text"] for key, item in answers.items() if key not in asked}
    return [
        {
            "text": text,
            "completed": bool(answers.get(key, {}).get("completed")),
            "asked": key in asked,
            "reported": key in answers,
        }
        for key, text in texts.items()
    ]


def _same(text: str) -> str:
    return " ".join(text.split()).casefold()
