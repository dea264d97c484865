"""What a host shows: idle, busy, a human's draft, a dialog … Pure; nothing here talks to tmux.

Fail closed: typing is harmless only in `idle` and `busy`. What is neither, and what no profile describes (`unknown`),
is left alone (docs/protocol.md, Typing into a pane, Fail closed; docs/hosts.md, Telling the states apart).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from multi_agent_mcp.domain.text_width import columns
from multi_agent_mcp.notify.tmux.profiles import ComposerShape, Profile

IDLE, BUSY, DRAFT, OURS, DIALOG, UNKNOWN = "idle", "busy", "draft", "our_line", "dialog", "unknown"
TYPEABLE = (IDLE, BUSY)
_TALLEST_COMPOSER = 30
_NEAR_ROWS = 12
PREFIX = "[IPC]"
"""What every line of ours begins with."""
_OURS = re.compile(r"\[IPC\][^#]{1,120}#([0-9a-z]{4})")
_ESCAPE = re.compile(r"\x1b\[([0-9;:]*)m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;:?]*[A-Za-z]|[\x0e\x0f]")


@dataclass(frozen=True)
class Screen:
    """One moment of a pane. `rows` are its text; `solid` the same without what is printed faint (placeholders,
    suggestions), and `lines` the same with all its attributes (`capture-pane -e`); None where they are not known."""

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


@dataclass(frozen=True)
class Composer:
    """The composer as it stands: its rows `first` to `last`, what is in it, and what of that was typed; the cursor's
    column `left` while it is empty, and the row and the column where its text ends."""

    first: int
    last: int
    text: str
    typed: str
    left: int
    end: tuple[int, int]
    mode: str | None = None


@dataclass(frozen=True)
class Classification:
    """What a screen was taken for, and the composer where one was found."""

    state: str
    composer: Composer | None = None

    @property
    def composed(self) -> Composer:
        """The composer, where the state says that there is one."""
        assert self.composer is not None  # noqa: S101 - `idle`, `busy` and `our_line` have one, by `classify`
        return self.composer

    def has_line(self, tag: str) -> bool:
        """Whether the line with this tag stands in the composer, also beside something else."""
        return self.composer is not None and f"#{tag}" in squeezed(self.composer.text)

    @property
    def tag(self) -> str | None:
        """The tag of a doorbell line of ours that stands in the composer, and nothing beside it."""
        return tag_of(self.composer.typed) if self.composer is not None else None


def classify(profile: Profile, screen: Screen) -> Classification:
    """What the host is doing. Only a composer at the cursor, empty, and with no dialog's words below it is `idle` or
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
    """What a dialog on this screen is about: the lowest row that one of the profile's `dialogs` knows. The agent may
    have written the same words further up, so this is for people to read, never to act upon."""
    return topic_of(profile, screen.rows)


def topic_of(profile: Profile, rows: Sequence[str]) -> str | None:
    """What the lowest of these rows that one of the profile's `dialogs` knows is about."""
    for row in reversed(rows):
        for topic, words in profile.dialogs.items():
            if words.search(row):
                return topic
    return None


def is_busy(profile: Profile, screen: Screen, composer: Composer) -> bool:
    """Whether the host works: its title spins, or it says so near the composer."""
    if profile.busy_title is not None and profile.busy_title.search(screen.title):
        return True
    near = screen.rows[max(0, composer.first - _NEAR_ROWS) :]
    return profile.busy_screen is not None and any(profile.busy_screen.search(row) for row in near)


def find_composer(shape: ComposerShape, screen: Screen) -> Composer | None:
    """The composer the cursor stands in; one that is merely printed somewhere does not count."""
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
            return None  # the frame is broken: the cursor is in something that lies over the composer
        if first != screen.cursor_y and shape.below.search(screen.rows[first]) and screen.rows[first].strip():
            return None  # a rule between the cursor and the prompt: the cursor is somewhere else
    return None


def _opening(shape: ComposerShape, row: str) -> tuple[str | None, int | None]:
    """The mode and the length of the prompt a row begins with; no length: it begins with none."""
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
    """The composer between two rows; None when the cursor stands beside its text: in its frame, or left of it."""
    top, bottom = shape.frame or (0, 0)
    edge = _right_edge(shape, screen.rows[last + 1])
    first, last = first + top, last - bottom
    left = _indent(screen.rows[first]) + shape.column
    if not first <= screen.cursor_y <= last or screen.cursor_x < left:
        return None
    rows = [up_to(edge, row) for row in screen.rows[first : last + 1]]
    openings = [(_opening(shape, row)[1] or 0) if shape.frame or not at else 0 for at, row in enumerate(rows)]
    texts = [row[opening:] for row, opening in zip(rows, openings, strict=True)]
    text = "\n".join(texts).strip()
    if screen.solid is None or not shape.placeholder_faint:
        typed = "" if any(pattern.fullmatch(text) for pattern in shape.placeholders) else text
    else:
        solid = [up_to(edge, row) for row in screen.solid[first : last + 1]]
        typed = "\n".join(row[opening:] for row, opening in zip(solid, openings, strict=True)).strip()
        if len(typed) == 1 and len(text) > 1 and screen.cursor_x == left:
            typed = ""  # the drawn cursor stands on a placeholder's first letter, which is not faint then
    lowest = max((row for row, part in enumerate(texts) if part.strip()), default=0)
    return Composer(first, last, text, typed, left, (first + lowest, columns(rows[lowest])), mode)


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip())


def _right_edge(shape: ComposerShape, lower: str) -> int | None:
    """How far a frame reaches: what stands right of it belongs to something else, a sidebar."""
    found = shape.below.search(lower) if shape.frame is not None else None
    return None if found is None else columns(lower[: found.end()])


def up_to(edge: int | None, row: str) -> str:
    """The row's first so many cells."""
    while edge is not None and columns(row) > edge:
        row = row[:-1]
    return row.rstrip(" ")


def _typed(composer: Composer, screen: Screen) -> str:
    if composer.typed.startswith("/"):
        return "slash_menu"
    return OURS if tag_of(composer.typed) is not None and _ends_at_cursor(composer, screen) else DRAFT


def _ends_at_cursor(composer: Composer, screen: Screen) -> bool:
    """Whether nothing follows the text. A blank that a human has typed behind it shows only in the cursor's place."""
    row, column = composer.end
    if screen.cursor_y == row:
        return screen.cursor_x == column
    return screen.cursor_y == row + 1  # the row was full, or Enter became part of the paste (Separate key)


def tag_of(text: str) -> str | None:
    """The tag of a text that is one doorbell line of ours, however it was wrapped, and nothing else."""
    found = _OURS.fullmatch(squeezed(text))
    return found[1] if found else None


def squeezed(text: str) -> str:
    """Without white space: what survives every way of wrapping a line."""
    return "".join(text.split())


def _view(profile: Profile, screen: Screen, composer: Composer | None) -> str | None:
    """Another view than the composer. With a composer at the cursor only the rows below it count: what an agent has
    written about dialogs further up is no dialog."""
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
    """`capture-pane -e` → the plain rows and the solid ones. Attributes run on from row to row."""
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
    """SGR 2 switches faint on; 0 and 22 switch it off. A colour's own numbers mean nothing here."""
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
