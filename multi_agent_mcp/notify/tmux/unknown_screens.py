"""Screens of known hosts that nobody has described, kept so that a profile can be mended without a release."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.notify.tmux.screens import Screen, shape_of
from multi_agent_mcp.store.files.durable_files import Files

MOST_KEPT = 50
_LAST_ROWS = 12


class UnknownScreens:
    """`{session}/unknown_screens/{host}-{shape}.txt`: the redacted screen, once per shape, at most fifty of them."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path

    def keep(self, host: str, screen: Screen) -> None:
        """Never raises: a screen that cannot be kept must not keep a message from being stored."""
        name = f"{host}-{_fingerprint(screen)}.txt"
        facts = f"host={host} cursor={screen.cursor_x},{screen.cursor_y} cursor_flag={int(screen.cursor_flag)}"
        text = f"{facts} title={shape_of([screen.title])}{shape_of(screen.rows)}"
        with suppress(FileExistsError, Refusal):
            kept = self.files.names(self.path)
            if name not in kept and len(kept) < MOST_KEPT:
                self.files.create(self.path / name, text.encode(), sync=False)


def _fingerprint(screen: Screen) -> str:
    """The same for screens that differ in their words' lengths or in what has scrolled by further up."""
    rows = [row for row in shape_of(screen.rows).splitlines() if row.strip()][-_LAST_ROWS:]
    pattern = "\n".join(re.sub(r"(.)\1+", r"\1", re.sub(r"[x9]+", "x", row)) for row in rows)
    return hashlib.sha256(pattern.encode()).hexdigest()[:12]
