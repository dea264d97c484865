"""Classifies a host's screen: idle, busy, a human's draft, a dialog … No I/O; nothing here talks to tmux.

Fails closed: typing is harmless only in `idle` and `busy`. Nothing is typed in any other state, including screens that
no profile describes, `unknown` (docs/protocol.md, Typing into a pane, Fail closed; docs/hosts.md, Distinguishing the
states).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.text import columns

if TYPE_CHECKING:
    from multi_agent_mcp.doorbell.tmux.profiles import ComposerShape, Profile

IDLE, BUSY, DRAFT, OURS, DIALOG, UNKNOWN = "idle", "busy", "draft", "our_line", "dialog", "unknown"
TYPEABLE = (IDLE, BUSY)
_TALLEST_COMPOSER = 30
_NEAR_ROWS = 12
PREFIX = "[IPC]"
"""The beginning of every line of ours."""
_OURS = re.compile(r"\[IPC\][^#]{1,120}#([0-9a-z]{4})")
_BLANKS = " \n"
"""What hosts fill and wrap rows with. Other white space was typed by somebody, such as an ideographic space."""
_ESCAPE = re.compile(r"\x1b\[([0-9;:]*)m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;:?]*[A-Za-z]|[\x0e\x0f]")


@dataclass(frozen=True)
class Screen:
    """The content of a pane at one moment. `rows` is its text; `solid` is the text with faint characters (placeholders,
    suggestions) blanked, `lines` the text with all attributes (`capture-pane -e`); None where unknown."""

    rows: tuple[str, ...]
    solid: tuple[str, ...] | None = None
    lines: tuple[str, ...] | None = field(default=None, compare=False)
    cursor_x: int = 0
    cursor_y: int = 0
    cursor_flag: bool = True
    title: str = ""
    dead: bool = False
    in_mode: bool = False

    def row_of(self, pattern: str) -> int:
        """The first row that matches, counted from 1 as tmux's `#{C/r:…}` does; 0 when none does."""
        seek = re.compile(pattern).search
        return next((number for number, row in enumerate(self.rows, 1) if seek(row)), 0)


@dataclass(frozen=True, kw_only=True)
class Composer:
    """The composer on a screen: its rows `first` to `last`, its whole text, and the part of it that was typed; the
    cursor's column while it is empty (`left`), and the row and column where its text ends."""

    first: int
    last: int
    text: str
    typed: str
    left: int
    end: tuple[int, int]
    mode: str | None = None


@dataclass(frozen=True)
class Classification:
    """The state of a screen, and the composer if one was found."""

    state: str
    composer: Composer | None = None

    @property
    def composed(self) -> Composer:
        """The composer, for the states that imply one."""
        assert self.composer is not None  # noqa: S101 - `idle`, `busy` and `our_line` have one, by `classify`
        return self.composer

    def has_line(self, tag: str) -> bool:
        """Whether the composer contains the line with this tag, possibly beside other text."""
        return self.composer is not None and f"#{tag}" in squeezed(self.composer.text)

    @property
    def tag(self) -> str | None:
        """The tag of the doorbell line of ours that the composer contains, if it contains nothing else."""
        return tag_of(self.composer.typed) if self.composer is not None else None


def classify(profile: Profile, screen: Screen) -> Classification:
    """Classifies a screen. Only an empty composer at the cursor, with no dialog's words below it, is `idle` or
    `busy`."""
    if screen.dead or screen.in_mode:
        return Classification("pane_dead" if screen.dead else "copy_mode")
    shape = profile.composer
    composer = find_composer(shape, screen) if shape is not None else None
    if (view := _view(profile, screen, composer)) is not None:
        return Classification(view, composer)
    if shape is None or composer is None:
        return Classification(UNKNOWN)
    if composer.mode is not None:
        return Classification(composer.mode, composer)
    if composer.typed:
        return Classification(_typed(composer, screen), composer)
    placed = (screen.cursor_x, screen.cursor_y) == (composer.left, composer.first)
    if not placed or (shape.placeholder_required and not composer.text):
        return Classification(UNKNOWN, composer)
    return Classification(BUSY if is_busy(profile, screen, composer) else IDLE, composer)


def dialog_topic(profile: Profile, screen: Screen) -> str | None:
    """The topic of a dialog on this screen, by the lowest row that matches one of the profile's `dialogs`. The agent
    may have written the same words, so this is for people to read, never to act upon."""
    return topic_of(profile, screen.rows)


def topic_of(profile: Profile, rows: Sequence[str]) -> str | None:
    """The topic of the lowest row that matches one of the profile's `dialogs`, or None."""
    for row in reversed(rows):
        for topic, words in profile.dialogs.items():
            if words.search(row):
                return topic
    return None


def is_busy(profile: Profile, screen: Screen, composer: Composer) -> bool:
    """Whether the host works, by a spinner in its title or words near the composer."""
    if profile.busy_title is not None and profile.busy_title.search(screen.title):
        return True
    near = screen.rows[max(0, composer.first - _NEAR_ROWS) :]
    return profile.busy_screen is not None and any(profile.busy_screen.search(row) for row in near)


def find_composer(shape: ComposerShape, screen: Screen) -> Composer | None:
    """The composer that contains the cursor, or None; one that is merely printed somewhere does not count."""
    if shape.cursor_flag is not None and screen.cursor_flag != shape.cursor_flag:
        return None
    for first in range(screen.cursor_y, max(0, screen.cursor_y - _TALLEST_COMPOSER), -1):
        if first >= len(screen.rows):
            continue
        mode, opening = _opening(shape, screen.rows[first])
        if opening is not None and shape.above.search(screen.rows[first - 1]):
            last = _last_row(shape, screen)
            return None if last is None else _composer(shape, screen, first, last, mode)
        if shape.frame is not None and opening is None:
            return None  # the frame is broken: the cursor is in something that is over the composer
        if first != screen.cursor_y and shape.below.search(screen.rows[first]) and screen.rows[first].strip():
            return None  # a rule between the cursor and the prompt: the cursor is somewhere else
    return None


def _opening(shape: ComposerShape, row: str) -> tuple[str | None, int | None]:
    """The mode and the length of the prompt that a row begins with; the length is None if there is no prompt."""
    if (found := shape.prompt.search(row)) is not None:
        return None, found.end()
    for mode, pattern in shape.modes.items():
        if (found := pattern.search(row)) is not None:
            return mode, found.end()
    return None, None


def _last_row(shape: ComposerShape, screen: Screen) -> int | None:
    end = min(len(screen.rows), screen.cursor_y + _TALLEST_COMPOSER)
    for row in range(screen.cursor_y + 1, end):
        if shape.below.search(screen.rows[row]):
            return row - 1
        if shape.frame is not None and not shape.prompt.search(screen.rows[row]):
            return None
    return None


def _composer(shape: ComposerShape, screen: Screen, first: int, last: int, mode: str | None) -> Composer | None:
    """The composer between two rows; None when the cursor is outside its text: in its frame, or left of it."""
    top, bottom = shape.frame or (0, 0)
    edge = _right_edge(shape, screen.rows[last + 1])
    first, last = first + top, last - bottom
    left = _indent(screen.rows[first]) + shape.column
    if not first <= screen.cursor_y <= last or screen.cursor_x < left:
        return None
    rows = [up_to(edge, row) for row in screen.rows[first : last + 1]]
    openings = [(_opening(shape, row)[1] or 0) if shape.frame or not at else 0 for at, row in enumerate(rows)]
    texts = [row[opening:] for row, opening in zip(rows, openings, strict=True)]
    text = "\n".join(texts).strip(_BLANKS)
    if screen.solid is None or not shape.placeholder_faint:
        typed = "" if any(pattern.fullmatch(text) for pattern in shape.placeholders) else text
    else:
        solid = [up_to(edge, row) for row in screen.solid[first : last + 1]]
        typed = "\n".join(row[opening:] for row, opening in zip(solid, openings, strict=True)).strip(_BLANKS)
        if len(typed) == 1 and len(text) > 1 and screen.cursor_x == left:
            typed = ""  # the drawn cursor is on a placeholder's first letter, which is not faint then
    lowest = max((row for row, part in enumerate(texts) if part.strip(_BLANKS)), default=0)
    return Composer(
        first=first,
        last=last,
        text=text,
        typed=typed,
        left=left,
        end=(first + lowest, columns(rows[lowest])),
        mode=mode,
    )


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip())


def _right_edge(shape: ComposerShape, lower: str) -> int | None:
    """The width up to a frame's right edge, None without a frame; anything beyond it is no part of the composer."""
    found = shape.below.search(lower) if shape.frame is not None else None
    return None if found is None else columns(lower[: found.end()])


def up_to(edge: int | None, row: str) -> str:
    """The first `edge` cells of the row; all of it if `edge` is None."""
    while edge is not None and columns(row) > edge:
        row = row[:-1]
    return row.rstrip(" ")


def _typed(composer: Composer, screen: Screen) -> str:
    if composer.typed.startswith("/"):
        return "slash_menu"
    return OURS if tag_of(composer.typed) is not None and _ends_at_cursor(composer, screen) else DRAFT


def _ends_at_cursor(composer: Composer, screen: Screen) -> bool:
    """Whether the cursor is at the end of the text. A blank typed by a human shows only in the cursor's position."""
    row, column = composer.end
    if screen.cursor_y == row:
        return screen.cursor_x == column
    return screen.cursor_y == row + 1  # the row was full, or Enter became part of the paste (Separate key)


def tag_of(text: str) -> str | None:
    """The tag of a text that is one doorbell line of ours, however wrapped, and nothing else; else None."""
    found = _OURS.fullmatch(squeezed(text))
    return found[1] if found else None


def squeezed(text: str) -> str:
    """The text without blanks, for comparing lines however they were wrapped."""
    return text.translate(dict.fromkeys(map(ord, _BLANKS)))


def _view(profile: Profile, screen: Screen, composer: Composer | None) -> str | None:
    """The state of a view other than the composer, or None. With a composer at the cursor, `text` is sought only below
    it: an agent may have written about dialogs further up."""
    rows = screen.rows if composer is None else screen.rows[composer.last + 1 :]
    over = () if composer is None else screen.rows[max(0, composer.first - _NEAR_ROWS) : composer.first]
    for view in profile.views:
        if view.title is not None and view.title.search(screen.title):
            return view.state
        if view.text is not None and any(view.text.search(row) for row in rows):
            return view.state
        if view.above is not None and any(view.above.search(row) for row in over):
            return view.state
    return None


def parsed(lines: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Parses the output of `capture-pane -e` into plain rows and solid rows. Attributes carry over from row to row."""
    plain, solid, faint = [], [], False
    for line in lines:
        text, solid_text, at = "", "", 0
        for found in _ESCAPE.finditer(line):
            part = line[at : found.start()]
            text, solid_text = text + part, solid_text + (" " * len(part) if faint else part)
            faint = _faint(found[1], faint) if found[1] is not None else faint
            at = found.end()
        part = line[at:]
        plain.append((text + part).rstrip(" "))
        solid.append((solid_text + (" " * len(part) if faint else part)).rstrip(" "))
    return tuple(plain), tuple(solid)


def _faint(parameters: str, faint: bool) -> bool:
    """Whether text after an SGR sequence is faint: 2 switches it on, 0 and 22 off; arguments of colours are skipped."""
    codes = parameters.split(";")
    while codes:
        code = codes.pop(0)
        if code in ("", "0", "22"):
            faint = False
        elif code == "2":
            faint = True
        elif code in ("38", "48", "58"):
            del codes[: 2 if codes[:1] == ["5"] else 4]
    return faint
