"""Values as tmux hands them out. Programs, users and anybody's `set-option` choose many of them freely, so all are read
here, and what makes no sense is not believed."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"[0-9]{1,18}")
_CONTROLS = "[\x01-\x1f\x7f]"


def number(text: str) -> int | None:
    """A whole number in plain digits, of a size that a process id or a time has. `str.isdigit` and `int` take more, and
    not the same."""
    return int(text) if _NUMBER.fullmatch(text) else None


def printable(name: str) -> str:
    """A tmux format for a variable, each of its control characters a blank: it breaks no line and no column."""
    return f"#{{s/{_CONTROLS}/ /:{name}}}"
