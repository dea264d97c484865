"""Reads a dialog and its choices from a screen. Pure.

Fail closed: whatever is not wholly on the screen, or has one row more than the profile describes, is no dialog that
could be answered from elsewhere (docs/protocol.md, Answering a dialog).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from multi_agent_mcp.domain.dialog import Choice, Dialog
from multi_agent_mcp.notify.tmux.profiles import Profile
from multi_agent_mcp.notify.tmux.profiles.choices import ChoiceShape
from multi_agent_mcp.notify.tmux.screens import DIALOG, Screen, classify, topic_of

FEWEST, MOST = 2, 9
_LINES = " ─╌━│╭╮╰╯├┤"


@dataclass(frozen=True)
class ShownDialog:
    """A dialog, and the rows of the screen (from 0) that it takes: `first` up to `last`."""

    dialog: Dialog
    first: int
    last: int


@dataclass(frozen=True)
class _Choices:
    """The choices of a screen, and the row of the first one."""

    choices: tuple[Choice, ...]
    first: int


def read_dialog(profile: Profile, screen: Screen) -> ShownDialog | None:
    """The dialog that waits for an answer; None where there is none, or none whose choices the profile describes."""
    shape = profile.choices
    if shape is None or classify(profile, screen).state != DIALOG:
        return None
    last = max((number for number, row in enumerate(screen.rows) if row.strip()), default=-1)
    found = _choices(shape, screen.rows[: last + 1])
    first = None if found is None else _first_row(shape, screen.rows, found.first)
    if found is None or first is None:
        return None
    rows = [_inside(shape, row) for row in screen.rows[first : found.first]]
    topic = topic_of(profile, [*rows, *(choice.label for choice in found.choices)])
    if topic not in shape.topics:
        return None
    by_key = tuple(choice for choice in found.choices if not (shape.in_pane and shape.in_pane.search(choice.label)))
    return ShownDialog(Dialog(topic, _text(shape, rows), by_key), first, last)


def _choices(shape: ChoiceShape, rows: Sequence[str]) -> _Choices | None:
    """The lowest choices, counted down to 1 without a gap, exactly one of them marked."""
    choices: list[Choice] = []
    wrapped: list[str] = []
    marked, under = 0, True
    for number in range(len(rows) - 1, -1, -1):
        row = _inside(shape, rows[number])
        found = shape.row.match(row)
        if found is None:
            if under and (not row.strip() or shape.below.search(rows[number])):
                continue
            wrapped.insert(0, row)
            under = False
            continue
        if not _go_on(wrapped, found.start("label")) or (choices and int(found["key"]) != int(choices[0].key) - 1):
            return None
        label = " ".join([re.sub(" {2,}", " – ", found["label"].strip()), *map(str.strip, wrapped)])
        choices.insert(0, Choice(found["key"], label, shape.lasting.search(label) is not None))
        marked, wrapped, under = marked + bool(found["mark"].strip()), [], False
        if found["key"] == "1":
            whole = marked == 1 and FEWEST <= len(choices) <= MOST
            return _Choices(tuple(choices), number) if whole else None
    return None


def _go_on(rows: Sequence[str], column: int) -> bool:
    """Whether these rows are what did not fit into a choice's own: indented as far as its label."""
    return all(row.strip() and not row[:column].strip() for row in rows)


def _first_row(shape: ChoiceShape, rows: Sequence[str], below: int) -> int | None:
    """Where the dialog's text begins; None when that has left the screen."""
    if shape.begin is not None:
        return next((number for number in range(below) if shape.begin.search(rows[number])), None)
    top = shape.top
    return next((number + 1 for number in range(below - 1, -1, -1) if top and top.search(rows[number])), None)


def _inside(shape: ChoiceShape, row: str) -> str:
    """What stands between the sides of the box."""
    if not shape.frame:
        return row
    inner = row.strip(" ")
    return inner.removeprefix(shape.frame).removesuffix(shape.frame).rstrip(" ") if shape.frame in inner[:1] else row


def _text(shape: ChoiceShape, rows: Sequence[str]) -> str:
    """Without lines and boxes, the indentation that all of it has, and blank rows around it."""
    rows = [_inside(shape, row) for row in rows if not row.strip() or row.strip(_LINES)]
    indent = min((len(row) - len(row.lstrip(" ")) for row in rows if row.strip()), default=0)
    return "\n".join(row[indent:].rstrip() for row in rows).strip("\n")
