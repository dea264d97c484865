"""Makes text by agents harmless for people's terminals and desktops, and for their eyes. All sanitizing is done here.

Control characters command terminals; bidirectional and invisible characters, and Unicode's tags, display something
other than what is written; look-alike letters make one name appear as another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from unicodedata import category, east_asian_width, normalize

from multi_agent_mcp.domain.entity import is_name

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


_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")
"""A control sequence of a terminal (ECMA-48, 5.4), such as a colour."""


def as_printed(text: str) -> str:
    """What a program printed for a terminal, as it is read there: without colours, and of a line that was overwritten
    the last state."""
    if "\x1b" not in text and "\r" not in text:
        return text
    lines = _SEQUENCE.sub("", text).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def one_line(text: str) -> str:
    """The sanitized text on one line, so that it can be part of a line of ours."""
    return sanitize(" ".join(text.split()))


KEPT = "\u00a0"
"""A blank at which no line is broken; a terminal gets a common one instead."""
BOXES = "☐☑"
"""How what is open and what is done of a checklist is drawn."""
NAMES_SHOWN = 5


def some(names: Sequence[str]) -> str:
    """The first few of these names, for a sentence."""
    return ", ".join([*names[:NAMES_SHOWN], *(["…"] if len(names) > NAMES_SHOWN else [])])


# Another's words in what we say (docs/protocol.md, Another's words). Values of an answer (`content`, `description`) are
# handed out as they are; sentences, briefings, notices and mails of ours have others' words only through these three.

QUOTED_CHARACTERS = 120
_MARKS = str.maketrans(dict.fromkeys('"“”„‟«»「」『』〝〞＂', "'"))
_OURS = re.compile(r"[\s>*#|\ufffd-]*[\[【]\s*ipc\s*[\]】]", re.IGNORECASE)
"""A beginning, as it `looks`, that could be taken for a doorbell line."""
_BRACKETED = re.compile(r"[\[［﹇【]\s*([^\]］﹈】]*?)\s*[\]］﹈】]")
_JOINER = "\u200d"
_EMOJI = ("So", "Sk", "Sm")
"""Unicode's categories of the parts of an emoji."""


def quoted(text: str, characters: int = QUOTED_CHARACTERS) -> str:
    """Another's words within a sentence of ours, between quotation marks that the sentence has: one harmless line of at
    most so many characters, without a mark that could end the quotation."""
    line = _not_ours(one_line(_visible(text)).translate(_MARKS))
    return line if len(line) <= characters else f"{line[: characters - 1]}…"


def named(name: str, characters: int = QUOTED_CHARACTERS) -> str:
    """Another's name of something (a path, a pattern, an agent's name) within a sentence of ours: as it is if it is one
    harmless word, else `quoted`, with quotation marks."""
    words = quoted(name, characters)
    return words if words == name and " " not in name else f"“{words}”"


def quoted_lines(text: str, characters: int | None = None) -> str:
    """Another's words in lines of their own, below a sentence that says whose they are: a harmless line that begins
    with `> ` for each of theirs, where every character that some program takes for the end of a line ends one; cut to
    so many characters in all."""
    whole = "\n".join(
        f"> {_not_ours(sanitize(_visible(line)).rstrip())}".rstrip() for line in text.splitlines() or [""]
    )
    if characters is None or len(whole) <= characters:
        return whole
    return f"{whole[: characters - 1].rstrip()}…"


def _not_ours(line: str) -> str:
    return _BRACKETED.sub(r"(\1)", line, count=1) if _OURS.match(looks(line)) else line


def _visible(text: str) -> str:
    """The text without format characters, which show nothing and hide what the rest is; those that join the parts of
    an emoji stay."""
    if text.isascii():
        return text
    around = zip(f" {text}", text, f"{text[1:]} ", strict=False)
    return "".join(one for before, one, after in around if category(one) != "Cf" or _joins(before, one, after))


def _joins(before: str, joiner: str, after: str) -> bool:
    drawn = category(before) in _EMOJI or before == "\ufe0f"
    return joiner == _JOINER and drawn and category(after) in _EMOJI


_LOOKALIKES = str.maketrans(
    "АВЕЅІЈКМНОРСТУХҮԌаеѕіјорсухԁһԛԝӏɡΑΒΕΖΗΙΚΜΝΟΡΤΥΧονρ",
    "ABESIJKMHOPCTYXYGaesijopcyxdhqwlgABEZHIKMNOPTYXovp",
)
"""Cyrillic and Greek letters that fonts draw like Latin ones, and the Latin ones."""
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0]")


def looks(text: str) -> str:
    """What a reader sees of a text: equal for texts that look alike although one has invisible characters, another
    width, or letters of another script that look the same. Empty if nothing is visible."""
    if text.isascii():
        return " ".join(text.split())
    shown = normalize("NFKC", "".join(character for character in text if category(character) != "Cf"))
    return " ".join(_BLANK.sub("", shown).translate(_LOOKALIKES).split())


def display_id(name: str | None) -> str:
    """A valid id unchanged; any other text quoted and in ASCII, so that a look-alike letter cannot imitate an id; `-`
    for None."""
    if name is None:
        return "-"
    return name if is_name(name) else ascii(name[:64])


# The width of text in a terminal: East Asian characters take two columns, combining marks none.


def columns(text: str) -> int:
    """The number of columns that a text takes in a terminal."""
    return len(text) if text.isascii() else sum(map(width, text))


def shortened(text: str, columns_there: int) -> str:
    """The text if it fits into so many columns, else as much of its beginning as fits with an ellipsis."""
    if columns(text) <= columns_there:
        return text
    ends = accumulate(map(width, text))
    return text[: sum(end < columns_there for end in ends)].rstrip() + "…"


def width(character: str) -> int:
    """The columns of a character: 2 if wide (Unicode Standard Annex #11), 0 if combining or invisible, else 1."""
    if not character.isascii() and category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
