"""Text that agents wrote, made harmless for a person's terminal, desktop and eye. The one place where that is done.

Control characters command terminals; bidirectional and invisible ones, and Unicode's tag characters, show a person
something else than what stands there; letters that only look alike make one name out of another.
"""

from __future__ import annotations

import re

_COMMANDS = "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
_DECEPTIVE = "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_LONE = "\ud800-\udfff\ufffe\uffff"  # surrogates, which no terminal can be sent, and what XML cannot hold
_UNSAFE = re.compile(f"[{_COMMANDS}{_DECEPTIVE}{_LONE}]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def neutral(text: str, instead: str = "�") -> str:
    """The text without anything that a terminal would obey or that hides what it says. Tabs and newlines stay, and so
    do the joiners that some scripts and emoji need."""
    return _UNSAFE.sub(instead, text)


def one_line(text: str) -> str:
    """The same on one line: what stands in a line of ours must not begin another one."""
    return neutral(" ".join(text.split()))


def named(name: str | None) -> str:
    """An id as it is; anything else that claims to be one in quotes and in ASCII, so that no letter that merely looks
    like `a` makes an `admin`."""
    if name is None:
        return "-"
    return name if _NAME.fullmatch(name) else ascii(name[:64])
