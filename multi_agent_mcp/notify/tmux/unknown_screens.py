"""Screens of known hosts that no profile describes, saved so that the profile can be corrected without a release."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.notify.tmux.screens import Screen
from multi_agent_mcp.store.files.durable_files import Files

MOST_SAVED = 50
_LAST_ROWS = 12


class UnknownScreens:
    """Saves redacted screens as `{session}/unknown_screens/{host}-{shape}.txt`, one per shape, fifty at most."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path

    def save(self, host: str, screen: Screen) -> None:
        """Saves a screen. Never raises: a failure here must not prevent a message from being stored."""
        name = f"{host}-{_fingerprint(screen)}.txt"
        facts = f"host={host} cursor={screen.cursor_x},{screen.cursor_y} cursor_flag={int(screen.cursor_flag)}"
        text = f"{facts} title={shape_of([screen.title])}{shape_of(screen.rows)}"
        with suppress(FileExistsError, Refusal):
            saved = self.files.names(self.path)
            if name not in saved and len(saved) < MOST_SAVED:
                self.files.create(self.path / name, text.encode(), sync=False)


def _fingerprint(screen: Screen) -> str:
    """A hash that is equal for screens that differ only in the lengths of words or in rows above the last twelve."""
    rows = [row for row in shape_of(screen.rows).splitlines() if row.strip()][-_LAST_ROWS:]
    pattern = "\n".join(re.sub(r"(.)\1+", r"\1", re.sub(r"[x9]+", "x", row)) for row in rows)
    return hashlib.sha256(pattern.encode()).hexdigest()[:12]


def shape_of(rows: Iterable[str]) -> str:
    """The layout of a screen without its words: letters become `x`, digits `9`; rules, boxes and punctuation stay."""
    text = "\n".join("".join(map(_redacted, row)).rstrip() for row in rows)
    return text.strip("\n") + "\n"


def _redacted(character: str) -> str:
    if character.isnumeric():
        return "9"
    return "x" if character.isalpha() else character
