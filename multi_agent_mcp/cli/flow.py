"""Where a line of text may be broken: between words, and between the characters of a script without blanks.

rich breaks lines at blanks alone, so a Japanese sentence goes to the next line as a whole and is then cut anywhere.
Here the simple rules of Japanese setting hold (JIS X 4051): no line begins with a closing mark or a small kana, none
ends with an opening mark, and a number stays with the word that counts, a colon with the word before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, chop_cells
from rich.containers import Lines
from rich.text import Text

from multi_agent_mcp.domain.text import KEPT

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = (
    r"\u2e80-\u33ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60\uffe0-\uffe6\U00020000-\U0003fffd"
)
_OPENING = r"(\[{“‘（［｛「『【〔〈《〘〖｟"
_LETTER = r"\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_CLOSING = (
    r")\]}”’%,.:;!?）］｝」』】〕〉》〙〗｠、。，．：；！？・…‥％゛゜ー々〻ヽヾゝゞ〜～"
    r"ぁぃぅぇぉっゃゅょゎゕゖァィゥェォッャュョヮヵヶ\u3099\u309a\ufe00-\ufe0f\u200d"
)
_IN_LABEL = rf"(?<=[{_LETTER}])[{_LETTER}]{{1,4}}[:：]"
_MAY_BREAK = re.compile(
    rf"(?:(?<=[^:：→][ \t])(?=[^ \t→])(?<![{_WIDE}] (?=\d))(?<!\d (?=[{_WIDE}]))"  # a label stays with its value
    rf"|(?<=[{_WIDE}])(?<![{_OPENING}])(?=[^\s{_CLOSING}])"
    rf"|(?<=[^\s\d{_OPENING}])(?=[{_WIDE}])(?![{_CLOSING}\u3000]))(?!{_IN_LABEL})"
)
_PARTS = re.compile(r"(?<= · )")
_DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: \(?(?:[A-Z]{2}|[+-]\d)[^ \t]*)?"
_HELD = re.compile(rf"[^ \t]*{KEPT}[^ \t]*|{_DATE}")
_LABEL = re.compile(r"\s*(?:[-*+•☐☑✓·>→] +|\d+[.)] +|\S.*?[ \t]{2,})?")
"""What stands before the text of a line: the mark of a list, or a label with two blanks after it."""


def breaks(text: str, width: int) -> list[int]:
    """Where to break a line, so that each part fits into so many columns; a word that is longer is cut."""
    found, used, start = [0], 0, 0
    for end in _ends(text, width):
        if used + cell_len(text[start:end].rstrip()) > width:
            if text[found[-1] : start].strip():
                found.append(start)
                used = 0
            room = max(width - used, 2)
            while cell_len(text[start:end].rstrip()) > room:
                start += len(chop_cells(text[start:end], room)[0])
                found.append(start)
                used, room = 0, max(width, 2)
        used += cell_len(text[start:end])
        start = end
    return found[1:]


def _ends(text: str, width: int) -> Iterator[int]:
    """Where the pieces of a line end that are not broken as long as they fit; parts with ` · ` between them are such
    pieces, and so are a date with its time and zone, and what has a blank that is kept."""
    held = [place.span() for place in _HELD.finditer(text) if cell_len(place[0]) <= width]
    end = 0
    for part in _PARTS.split(text):
        if cell_len(part.rstrip()) > width or " · " not in text:
            ends = (end + place.start() for place in _MAY_BREAK.finditer(part))
            yield from (at for at in ends if not any(first < at < last for first, last in held))
        yield (end := end + len(part))


def flow(line: Text, width: int) -> list[Text]:
    """The line in as many as it needs; they go on below its text, not below its label or mark."""
    label = _LABEL.match(line.plain)
    hang = cell_len(label[0]) if label else 0
    if hang > width // 3:
        hang = min(len(line.plain) - len(line.plain.lstrip()), width // 3)
    begun = next((at for at in range(len(line.plain)) if cell_len(line.plain[:at]) >= hang), 0)
    first, rest = line.divide([begun]) if begun else (Text(), line)
    parts = rest.divide(breaks(rest.plain, width - hang))
    return [_printed((Text(" " * hang) if number else first).append_text(part)) for number, part in enumerate(parts)]


class Flowing(Text):
    """Text that rich breaks at these places, in tables and paddings too."""

    def wrap(self, console: Console, width: int, **options: Any) -> Lines:
        places = [] if options.get("no_wrap") or cell_len(self.plain) <= width else breaks(self.plain, width)
        broken = Text("\n").join(map(_printed, self.divide(places)))
        return broken.wrap(console, width, **options)


def _printed(part: Text) -> Text:
    part.rstrip()
    part.plain = part.plain.replace(KEPT, " ")
    return part
