"""Text that agents wrote, made harmless for a person's terminal, desktop and eye. The one place where that is done.

Control characters command terminals; bidirectional and invisible ones, and Unicode's tag characters, show a person
something other than what is written; letters that only look alike make one name out of another.
"""

from __future__ import annotations

import re

from multi_agent_mcp.domain.ids import is_name

HIDDEN = (
    (0x00, 0x08),  # C0 controls but tab and newline
    (0x0B, 0x1F),
    (0x7F, 0x9F),  # DEL and the C1 controls
    (0x061C, 0x061C),  # what changes the direction of writing, here and below; zero-width characters
    (0x200B, 0x200B),
    (0x200E, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0xD800, 0xDFFF),  # lone surrogates, which no terminal can be sent
    (0xFEFF, 0xFEFF),
    (0xFFF9, 0xFFFB),
    (0xFFFE, 0xFFFF),  # noncharacters, which no XML may hold
    (0xE0000, 0xE007F),  # tags
)
"""First and last code points of what is replaced. The console's pages are told it too (`web/pages.py`)."""
_HIDDEN = re.compile("[" + "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in HIDDEN) + "]")


def sanitize(text: str, instead: str = "�") -> str:
    """The text without anything that a terminal would obey or that hides what it says. Tabs and newlines stay, and so
    do the joiners that some scripts and emoji need."""
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub(instead, text)


def one_line(text: str) -> str:
    """The same on one line: what stands in a line of ours must not begin another one."""
    return sanitize(" ".join(text.split()))


def display_id(name: str | None) -> str:
    """An id as it is; anything else that claims to be one in quotes and in ASCII, so that no letter that merely looks
    like `a` makes an `admin`."""
    if name is None:
        return "-"
    return name if is_name(name) else ascii(name[:64])
