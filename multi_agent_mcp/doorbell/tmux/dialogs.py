"""Reads a dialog and its choices from a screen; no I/O.

Fails closed: a dialog that is not wholly on the screen, or has a row that the profile does not describe, cannot be
answered from elsewhere (docs/protocol.md, Answering a dialog).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from multi_agent_mcp.domain.dialog import Answered, Choice, Dialog
from multi_agent_mcp.domain.text import columns
from multi_agent_mcp.doorbell.tmux import typing
from multi_agent_mcp.doorbell.tmux.client import TIMEOUT
from multi_agent_mcp.doorbell.tmux.profiles import SHELL, UNKNOWN_HOST, ChoiceShape, Profile
from multi_agent_mcp.doorbell.tmux.screens import DIALOG, UNKNOWN, Classification, Screen, classify, topic_of, up_to
from multi_agent_mcp.doorbell.tmux.snapshot import ANSWER_OPTION, KEY_SECONDS, PaneMarker, machine_time, pieces

FEWEST, MOST = 2, 9
MARGIN = 6
"""How many columns at the right a host may leave blank."""
_BETWEEN = "   "
_NUMBER = re.compile(r"[0-9]+[.] ")
_LINES = " ─╌━│╭╮╰╯├┤"


@dataclass(frozen=True)
class ShownDialog:
    """A dialog and the screen rows that it occupies, `first` to `last`, counted from 0."""

    dialog: Dialog
    first: int
    last: int


@dataclass(frozen=True)
class _Choices:
    """The choices on a screen and the row of the first one."""

    choices: tuple[Choice, ...]
    first: int


def read_dialog(profile: Profile, screen: Screen) -> ShownDialog | None:
    """The dialog on the screen; None where there is none, or the profile does not describe its choices."""
    shape = profile.choices
    if shape is None or classify(profile, screen).state != DIALOG:
        return None
    whole = _whole_rows(shape, screen)
    last = max((number for number, row in enumerate(whole) if row.strip()), default=-1)
    rows = whole[: last + 1]
    found = _lettered(shape, rows) or (_numbered(shape, rows) if shape.row else _across(shape, screen, rows))
    found = found or _unnumbered(shape, rows)
    first = None if found is None else _first_row(shape, whole, found.first)
    if found is None or first is None or (shape.tallest and last - first + 2 >= shape.tallest):
        return None
    rows = [_inside(shape, row) for row in whole[first : found.first]]
    topic = topic_of(profile, [*rows, *(choice.label for choice in found.choices)])
    by_key = tuple(choice for choice in found.choices if not (shape.in_pane and shape.in_pane.search(choice.label)))
    if topic not in shape.topics or not by_key:
        return None
    return ShownDialog(Dialog(topic, _text(shape, rows), by_key), first, last)


def _whole_rows(shape: ChoiceShape, screen: Screen) -> list[str]:
    """The rows, cut off at the right edge of the box if its row of choices tells it: a sidebar may follow."""
    matches = filter(None, map(shape.across.search, reversed(screen.rows))) if shape.across else iter(())
    lowest = next(matches, None)
    edge = columns(lowest.string[: lowest.end()]) if lowest is not None and lowest["edge"] else None
    return [up_to(edge, row) for row in screen.rows]


def _across(shape: ChoiceShape, screen: Screen, rows: Sequence[str]) -> _Choices | None:
    """The choices of the lowest row that has any, one of them marked. The box must continue below it to its blank lower
    edge."""
    matches = ((number, shape.across.search(rows[number])) for number in range(len(rows) - 1, -1, -1) if shape.across)
    at, found = next(((number, match) for number, match in matches if match), (0, None))
    below = rows[at + 1 :]
    if found is None or not below or below[-1].strip() != shape.frame or not all(map(shape.below.search, below)):
        return None
    labels = found["labels"].split(_BETWEEN)
    marked = _marked(screen, at, found.start("labels"), labels)
    if marked is None:
        return None
    choices = [shape.choice(str(n), label) for n, label in enumerate(labels, 1)]
    return _Choices(_by_moving(choices, marked, "Left", "Right"), at)


def _by_moving(choices: Sequence[Choice], marked: int, back: str, on: str) -> tuple[Choice, ...]:
    """The choices, each picked by moving the mark there from the choice with the number `marked`, and Enter."""
    moves = ([back] * (marked - number) + [on] * (number - marked) for number in range(1, len(choices) + 1))
    return tuple(replace(choice, moves=(*move, "Enter")) for choice, move in zip(choices, moves, strict=True))


def _lettered(shape: ChoiceShape, rows: Sequence[str]) -> _Choices | None:
    """The choices in the lowest row, each after the letter that picks it."""
    found = shape.letters.search(rows[-1]) if shape.letters is not None and rows else None
    if found is None:
        return None
    pairs = (label.split(" ", 1) for label in found["labels"].split(_BETWEEN))
    return _Choices(tuple(shape.choice(key, label) for key, label in pairs), len(rows) - 1)


def _marked(screen: Screen, row: int, start: int, labels: Sequence[str]) -> int | None:
    """The number, from 1, of the label that has another background; None unless there is exactly one."""
    if screen.lines is None:
        return None
    grounds = [piece.get("bg") for piece in list(pieces(screen.lines))[row] for _ in piece["text"]]
    starts = accumulate((len(label) + len(_BETWEEN) for label in labels[:-1]), initial=start)
    marked = [number for number, at in enumerate(starts, 1) if grounds[at] != grounds[at - 2]]
    return marked[0] if len(marked) == 1 else None


def _numbered(shape: ChoiceShape, rows: Sequence[str]) -> _Choices | None:
    """The lowest numbered choices, from 1 without a gap, exactly one of them marked."""
    assert shape.row is not None  # noqa: S101 - `choice_shape` asks for it or for `across`
    choices: list[Choice] = []
    wrapped: list[str] = []
    marks: list[str] = []
    under = True
    for number in range(len(rows) - 1, -1, -1):
        row = _inside(shape, rows[number])
        found = shape.row.match(row)
        if found is None:
            if under and _ends(shape, rows[number]):
                continue
            if choices and not wrapped and row.strip() and not row.strip(_LINES):
                continue  # a rule between two choices
            wrapped.insert(0, row)
            under = False
            continue
        if not _go_on(wrapped, found.start("label")) or (choices and int(found["key"]) != int(choices[0].key) - 1):
            return None
        label = " ".join([re.sub(" {2,}", " – ", found["label"].strip()), *map(str.strip, wrapped)])
        choices.insert(0, shape.choice(found["key"], label))
        marks += [found["key"]] if found["mark"].strip() else []
        wrapped, under = [], False
        if found["key"] == "1":
            whole = len(marks) == 1 and FEWEST <= len(choices) <= MOST
            return _Choices(_picked(shape, choices, int(marks[0]), rows[number:]), number) if whole else None
    return None


def _picked(shape: ChoiceShape, choices: Sequence[Choice], marked: int, rows: Sequence[str]) -> tuple[Choice, ...]:
    """The choices with the keys that pick them: of a dialog with a row like `enter` the mark and Enter, because the key
    of a choice may only move the mark there."""
    if shape.enter is None or not any(map(shape.enter.search, rows)):
        return tuple(choices)
    return _by_moving(choices, marked, "Up", "Down")


def _unnumbered(shape: ChoiceShape, rows: Sequence[str]) -> _Choices | None:
    """The rows of the lowest block, above the hint that ends the dialog: all of them choices without a number, in one
    column, exactly one of them marked."""
    last = first = next((at for at in range(len(rows), 0, -1) if not _ends(shape, rows[at - 1])), 0)
    while first and _inside(shape, rows[first - 1]).strip():
        first -= 1
    block = [_inside(shape, row) for row in rows[first:last]]
    if shape.unnumbered is None or last == len(rows) or not first or not FEWEST <= len(block) <= MOST:
        return None
    found = [match for match in map(shape.unnumbered.match, block) if match is not None]
    marked = [number for number, match in enumerate(found, 1) if match["mark"].strip()]
    numbered = any(_NUMBER.match(match["label"]) for match in found)
    aligned = len(found) == len(block) and len({match.start("label") for match in found}) == 1
    if numbered or not aligned or len(marked) != 1 or _may_be_wrapped(block, max(map(columns, rows))):
        return None
    choices = [shape.choice(str(number), match["label"].strip()) for number, match in enumerate(found, 1)]
    return _Choices(_by_moving(choices, marked[0], "Up", "Down"), first)


def _ends(shape: ChoiceShape, row: str) -> bool:
    """Whether the row may be below the choices."""
    return not _inside(shape, row).strip() or shape.below.search(row) is not None


def _may_be_wrapped(block: Sequence[str], width: int) -> bool:
    """Whether one of the rows may be the second row of the choice above it, which had no room for its first word."""
    firsts = (columns(row.split()[0]) for row in block[1:])
    return any(columns(row) + 1 + first > width - MARGIN for row, first in zip(block, firsts, strict=False))


def _go_on(rows: Sequence[str], column: int) -> bool:
    """Whether these rows continue a choice's label: they are indented at least as far."""
    return all(row.strip() and not row[:column].strip() for row in rows)


def _first_row(shape: ChoiceShape, rows: Sequence[str], below: int) -> int | None:
    """The row where the dialog's text begins; None when it has scrolled off the screen."""
    if shape.begin is not None:
        return next((number for number in range(below) if shape.begin.search(rows[number])), None)
    top = shape.top
    return next((number + 1 for number in range(below - 1, -1, -1) if top and top.search(rows[number])), None)


def _inside(shape: ChoiceShape, row: str) -> str:
    """The row without the sides of the box."""
    if not shape.frame:
        return row
    inner = row.strip(" ")
    return inner.removeprefix(shape.frame).removesuffix(shape.frame).rstrip(" ") if shape.frame in inner[:1] else row


def _text(shape: ChoiceShape, rows: Sequence[str]) -> str:
    """The text of these rows, without rules and box edges, common indentation, and leading and trailing blank rows."""
    return _text_of([_inside(shape, row) for row in rows if not row.strip() or row.strip(_LINES)])


def _text_of(rows: Sequence[str]) -> str:
    indent = min((len(row) - len(row.lstrip(" ")) for row in rows if row.strip()), default=0)
    return "\n".join(row[indent:].rstrip() for row in rows).strip("\n")


SCREEN_ROWS = 30
"""How many of the lowest rows of a screen are shown, and compared, where nothing tells where its question begins."""


def read_screen(screen: Screen, shown: Classification, keys: Sequence[str] = ()) -> ShownDialog | None:
    """A screen that no profile describes, as a dialog for a person who has read it: its lowest rows, with these keys as
    the only choice. None if a composer is at the cursor, where the keys would be typed into a line."""
    last = max((number for number, row in enumerate(screen.rows) if row.strip()), default=-1)
    if last < 0 or (shown.composer is not None and shown.state != DIALOG):
        return None
    first = max(0, last + 1 - SCREEN_ROWS)
    words = " ".join(keys)
    text = _text_of([row.rstrip() for row in screen.rows[first : last + 1]])
    return ShownDialog(Dialog(shown.state, text, (Choice(words, "", moves=tuple(keys)),)), first, last)


# Answers a dialog with the keys of one choice, which tmux sends only while exactly the same dialog is shown
# (docs/protocol.md, Answering a dialog).

NO_DIALOG, OTHER_DIALOG, PENDING, RESTLESS = "no_dialog", "other_dialog", "answer_pending", "restless"
NO_CHOICE, NOT_TAKEN = "no_such_choice", "not_taken"
SETTLE_SECONDS = 2.0
"""How long to wait for a snapshot whose window has printed nothing since the second before."""
TAKEN_SECONDS = 3.0
POLL_SECONDS = 0.03

Look = Callable[[], typing.Attempt | str]
"""Takes a snapshot of the pane, or returns the reason when nothing may be typed there, whatever it shows."""
Read = Callable[[typing.Attempt], ShownDialog | None]
"""Reads what is asked in a snapshot."""


def described(attempt: typing.Attempt) -> ShownDialog | None:
    """The dialog that a profile describes."""
    return read_dialog(attempt.profile, attempt.snapshot.screen)


def answer(look: Look, dialog_id: str, key: str, read: Read = described) -> Answered:
    """Sends the keys of a choice if the dialog with this id is shown, then verifies the outcome."""
    for _ in range(typing.ATTEMPTS):
        expected = _expected(look, dialog_id, read)
        if isinstance(expected, Answered):
            return expected
        attempt, shown = expected
        if (choice := shown.dialog.choice(key)) is None:
            return Answered("refused", NO_CHOICE, dialog=shown.dialog)
        mark = PaneMarker(dialog_id, attempt.snapshot.facts.pane_pid, machine_time(), 1)
        reason = typing.program_changed(attempt) or _press(attempt, shown, choice, mark)
        if reason is None:
            return _outcome(look, attempt, shown, mark, read)
        if reason == TIMEOUT:  # tmux runs what it was sent once it goes on
            return Answered("pressed", reason, dialog=shown.dialog)
        if reason != typing.CHANGED:
            return Answered("refused", reason)
    return Answered("refused", typing.CHANGED)


def _expected(look: Look, dialog_id: str, read: Read) -> tuple[typing.Attempt, ShownDialog] | Answered:
    """The dialog as shown at a moment when its window is still; the refusal if it is not the one with this id.

    A window that is never still is refused, because tmux's conditions compare the words of rows, wherever they are,
    but neither blank rows nor colours.
    """
    end = time.monotonic() + SETTLE_SECONDS
    while True:
        attempt = look()
        if isinstance(attempt, str):
            return Answered("refused", attempt)
        shown = read(attempt)
        if shown is None:
            return Answered("refused", NO_DIALOG, attempt.shown.state)
        if shown.dialog.id != dialog_id:
            return Answered("refused", OTHER_DIALOG, dialog=shown.dialog)
        if _is_pending(attempt, dialog_id):
            return Answered("refused", PENDING, dialog=shown.dialog)
        if attempt.snapshot.settled:
            return attempt, shown
        if time.monotonic() >= end:
            return Answered("refused", RESTLESS, dialog=shown.dialog)
        time.sleep(POLL_SECONDS)


def _is_pending(attempt: typing.Attempt, dialog_id: str) -> bool:
    """Whether anybody pressed a key for the dialog within `KEY_SECONDS` and did not see it taken: the host may not have
    read that key yet, and would take a second one as the answer to its next question."""
    facts = attempt.snapshot.facts
    last = PaneMarker.parse(facts.answered)
    same = last is not None and (last.tag, last.pane_pid) == (dialog_id, facts.pane_pid)
    return same and last is not None and last.younger_than(KEY_SECONDS)


def _press(attempt: typing.Attempt, shown: ShownDialog, choice: Choice, mark: PaneMarker) -> str | None:
    """Presses the keys in one tmux command with all conditions and the marker that prevents a second key. Returns None,
    or the reason why they were not pressed."""
    facts, screen = attempt.snapshot.facts, attempt.snapshot.screen
    rows = screen.rows[shown.first : shown.last + 1]
    condition = attempt.condition(
        *typing.same_cursor(screen),
        *(typing.shown(typing.whole(row), screen) for row in rows if row.strip()),
        typing.same("window_activity", facts.output),
        typing.same(ANSWER_OPTION, typing.escaped(facts.answered)),
    )
    marking = f"set-option -p -t {attempt.pane.pane_id} {ANSWER_OPTION} {mark}"
    return typing.guarded(
        attempt, condition, f"send-keys -t {attempt.pane.pane_id} {' '.join(choice.keys)} ; {marking}"
    )


def _outcome(look: Look, attempt: typing.Attempt, shown: ShownDialog, mark: PaneMarker, read: Read) -> Answered:
    """The outcome of the keys. While the dialog stays, the screen is unknown (it may be half drawn), or the host lets
    another program read the terminal (as Claude Code once it is trusted), looks again for up to `TAKEN_SECONDS`."""
    end = time.monotonic() + TAKEN_SECONDS
    while True:
        now = look()
        is_over = time.monotonic() >= end
        if isinstance(now, str):
            if now not in (SHELL, UNKNOWN_HOST) or is_over:
                return Answered("pressed", now, dialog=shown.dialog)
            time.sleep(POLL_SECONDS)
            continue
        after = read(now)
        gone = after is None or after.dialog.id != shown.dialog.id
        if gone and now.snapshot.last_key > attempt.snapshot.last_key:
            return Answered("pressed", "human_typing", now.shown.state, shown.dialog)
        if gone and (is_over or now.shown.state != UNKNOWN):
            _unmark(attempt, mark)
            return Answered("answered", screen=now.shown.state, dialog=shown.dialog)
        if is_over:
            return Answered("pressed", NOT_TAKEN, now.shown.state, shown.dialog)
        time.sleep(POLL_SECONDS)


def _unmark(attempt: typing.Attempt, mark: PaneMarker) -> None:
    """Removes our marker, because the keys were taken: the same question, asked again, is another one."""
    ours = typing.same(ANSWER_OPTION, mark)
    unset = f"set-option -p -u -t {attempt.pane.pane_id} {ANSWER_OPTION}"
    attempt.pane.if_true(ours, unset)
