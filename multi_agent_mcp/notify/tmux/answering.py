"""Answers a dialog with the keys of one choice, which tmux sends only while exactly the same dialog is shown
(docs/protocol.md, Answering a dialog)."""

from __future__ import annotations

import time
from collections.abc import Callable

from multi_agent_mcp.domain.dialog import Answered, Choice
from multi_agent_mcp.notify.tmux import conditions
from multi_agent_mcp.notify.tmux.dialogs import ShownDialog, read_dialog
from multi_agent_mcp.notify.tmux.screens import UNKNOWN
from multi_agent_mcp.notify.tmux.snapshot import ANSWER_OPTION, KEY_SECONDS, PaneMarker, machine_time
from multi_agent_mcp.notify.tmux.typing import ATTEMPTS, CHANGED, Attempt, guarded, program_changed

NO_DIALOG, OTHER_DIALOG, PENDING, RESTLESS = "no_dialog", "other_dialog", "answer_pending", "restless"
NO_CHOICE, NOT_TAKEN = "no_such_choice", "not_taken"
SETTLE_SECONDS = 2.0
"""How long to wait for a snapshot whose window has printed nothing since the second before."""
TAKEN_SECONDS = 3.0
POLL_SECONDS = 0.03

Look = Callable[[], Attempt | str]
"""Takes a snapshot of the pane, or returns the reason when nothing may be typed there, whatever it shows."""


def answer(look: Look, dialog_id: str, key: str) -> Answered:
    """Sends the keys of a choice if the dialog with this id is shown, then verifies the outcome."""
    for _ in range(ATTEMPTS):
        expected = _expected(look, dialog_id)
        if isinstance(expected, Answered):
            return expected
        attempt, shown = expected
        if (choice := shown.dialog.choice(key)) is None:
            return Answered("refused", NO_CHOICE, dialog=shown.dialog)
        mark = PaneMarker(dialog_id, attempt.snapshot.facts.pane_pid, machine_time(), 1)
        reason = program_changed(attempt) or _press(attempt, shown, choice, mark)
        if reason is None:
            return _outcome(look, attempt, shown, mark)
        if reason != CHANGED:
            return Answered("refused", reason)
    return Answered("refused", CHANGED)


def _expected(look: Look, dialog_id: str) -> tuple[Attempt, ShownDialog] | Answered:
    """The dialog as shown at a moment when its window is settled; the refusal if it is not the one with this id.

    A window that never settles is refused, because tmux's conditions compare the words of rows, wherever they stand,
    but neither blank rows nor colours.
    """
    end = time.monotonic() + SETTLE_SECONDS
    while True:
        attempt = look()
        if isinstance(attempt, str):
            return Answered("refused", attempt)
        shown = read_dialog(attempt.profile, attempt.snapshot.screen)
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


def _is_pending(attempt: Attempt, dialog_id: str) -> bool:
    """Whether anybody pressed a key for the dialog within `KEY_SECONDS` and did not see it taken: the host may not have
    read that key yet, and would take a second one as the answer to its next question."""
    facts = attempt.snapshot.facts
    last = PaneMarker.parse(facts.answered)
    same = last is not None and (last.tag, last.pane_pid) == (dialog_id, facts.pane_pid)
    return same and last is not None and last.younger_than(KEY_SECONDS)


def _press(attempt: Attempt, shown: ShownDialog, choice: Choice, mark: PaneMarker) -> str | None:
    """Presses the keys in one tmux command with all conditions and the marker that prevents a second key. Returns None,
    or the reason why they were not pressed."""
    facts, screen = attempt.snapshot.facts, attempt.snapshot.screen
    rows = screen.rows[shown.first : shown.last + 1]
    condition = attempt.condition(
        *conditions.same_cursor(screen),
        *(conditions.shown(conditions.whole(row), screen) for row in rows if row.strip()),
        conditions.same("window_activity", facts.output),
        conditions.same(ANSWER_OPTION, conditions.escaped(facts.answered)),
    )
    marking = f"set-option -p -t {attempt.pane} {ANSWER_OPTION} {mark}"
    return guarded(attempt, condition, f"send-keys -t {attempt.pane} {' '.join(choice.keys)} ; {marking}")


def _outcome(look: Look, attempt: Attempt, shown: ShownDialog, mark: PaneMarker) -> Answered:
    """The outcome of the keys. While the dialog stays, or the screen is unknown (it may be half drawn), looks again for
    up to `TAKEN_SECONDS`."""
    end = time.monotonic() + TAKEN_SECONDS
    while True:
        now = look()
        if isinstance(now, str):
            return Answered("pressed", now, dialog=shown.dialog)
        after = read_dialog(now.profile, now.snapshot.screen)
        gone = after is None or after.dialog.id != shown.dialog.id
        if gone and now.snapshot.last_key > attempt.snapshot.last_key:
            return Answered("pressed", "human_typing", now.shown.state, shown.dialog)
        is_over = time.monotonic() >= end
        if gone and (is_over or now.shown.state != UNKNOWN):
            _unmark(attempt, mark)
            return Answered("answered", screen=now.shown.state, dialog=shown.dialog)
        if is_over:
            return Answered("pressed", NOT_TAKEN, now.shown.state, shown.dialog)
        time.sleep(POLL_SECONDS)


def _unmark(attempt: Attempt, mark: PaneMarker) -> None:
    """Removes our marker, because the keys were taken: the same question, asked again, is another one."""
    ours = conditions.same(ANSWER_OPTION, mark)
    unset = f"set-option -p -u -t {attempt.pane} {ANSWER_OPTION}"
    attempt.server.cmd("if-shell", "-F", "-t", attempt.pane, ours, unset)
