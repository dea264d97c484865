"""Checks of a sentence: it may not contain the other language, placeholders, or more than one line."""

from __future__ import annotations

import re

JAPANESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
PLACEHOLDER = re.compile(r"\{[a-z_]+\}")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|「[^」]*」|\[[^\]]*\]")
COMMAND = re.compile(r"multi-agent-mcp(?: [a-z][a-z-]*)*|agent (?:add|set)|host-config claude")
ENGLISH = re.compile(r"(?<![\w./%-])[A-Za-z][a-z]+(?: [a-z]{2,})+(?![\w./-])")
"""Two or more consecutive English words. A single one may be a name: of a role, a file, a program."""


def faults(sentence: str, language: str) -> list[str]:
    """The faults of one of our texts in this language; quoted parts come from others or are to be typed, and are
    ignored."""
    ours = COMMAND.sub("", QUOTED.sub("", sentence))
    found = [f"not filled: {name}" for name in PLACEHOLDER.findall(ours)]
    found += ["None"] * ("None" in ours)
    if language == "en":
        return found + [f"Japanese: {word}" for word in JAPANESE.findall(ours)]
    return found + [f"English: {words}" for words in ENGLISH.findall(ours)]
