"""Makes text by agents harmless for people's terminals and desktops, and for their eyes. All sanitizing is done here.

Control characters command terminals; bidirectional and invisible characters, and Unicode's tags, display something
other than what is written; look-alike letters make one name appear as another.
"""

from __future__ import annotations

import re

from multi_agent_mcp.domain.ids import is_name

HIDDEN = (
    (0x00, 0x08),  # C0 controls but tab and newline
    (0x0B, 0x1F),
    (0x7F, 0x9F),  # DEL and the C1 controls
    (0x061C, 0x061C),  # here and below: changes of the writing direction, and zero-width characters
    (0x200B, 0x200B),
    (0x200E, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0xD800, 0xDFFF),  # lone surrogates, which cannot be encoded
    (0xFEFF, 0xFEFF),
    (0xFFF9, 0xFFFB),
    (0xFFFE, 0xFFFF),  # noncharacters, which XML must not contain
    (0xE0000, 0xE007F),  # tags
)
"""The first and last code points of the replaced ranges; also passed to the console's pages (`web/pages.py`)."""
_HIDDEN = re.compile("[" + "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in HIDDEN) + "]")


def sanitize(text: str, instead: str = "�") -> str:
    """Replaces every character that a terminal would obey or that hides text. Tabs and newlines stay, and so do the
    joiners that some scripts and emoji need."""
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub(instead, text)


def one_line(text: str) -> str:
    """The sanitized text on one line, so that it can be part of a line of ours."""
    return sanitize(" ".join(text.split()))


def display_id(name: str | None) -> str:
    """A valid id unchanged; any other text quoted and in ASCII, so that a look-alike letter cannot imitate an id; `-`
    for None."""
    if name is None:
        return "-"
    return name if is_name(name) else ascii(name[:64])
