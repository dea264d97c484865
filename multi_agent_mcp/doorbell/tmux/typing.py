"""Typing: a paste and a key, each in one tmux command with all its conditions, and the verification afterwards
(docs/protocol.md, Typing into a pane, One command, Separate key). The submit key is pressed only while the composer
contains our own line, with its tag, and nothing else (Own line only)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.doorbell.tmux.client import Pane, printable
from multi_agent_mcp.doorbell.tmux.profiles import Profile, Profiles, recognise
from multi_agent_mcp.doorbell.tmux.screens import (
    BUSY,
    IDLE,
    OURS,
    TYPEABLE,
    UNKNOWN,
    Classification,
    Composer,
    Screen,
    classify,
    is_busy,
    squeezed,
    tag_of,
)
from multi_agent_mcp.doorbell.tmux.snapshot import (
    ECHO_SECONDS,
    FACTS_FORMAT,
    KEY_SECONDS,
    MARKER_OPTION,
    PaneMarker,
    PaneSnapshot,
    machine_time,
    parse_facts,
    take_snapshot,
)

# Conditions that tmux itself evaluates, in the same command that types (docs/protocol.md, Typing into a pane, One
# command).
#
# Each is a tmux format that is true or false; `all_of` joins them. Text inside `#{…}` is escaped for tmux.

_POSIX_SPECIAL = re.compile(r"([\\^$.|?*+()\[\]{}])")


def all_of(formats: Sequence[str]) -> str:
    """A format that is true if all of them are, as a balanced tree: tmux gives up on formats nested a hundred deep."""
    if len(formats) == 1:
        return formats[0]
    middle = len(formats) // 2
    return f"#{{&&:{all_of(formats[:middle])},{all_of(formats[middle:])}}}"


def safe_pane(agent: Agent, command: str) -> list[str]:
    """Conditions on the pane itself: it is the registered pane of the registered server, alive, takes input, is in no
    mode and not synchronized with others, and its foreground command is still `command` (Pane identity, Live input, No
    shells)."""
    found = [
        same("pane_id", agent.pane_id),
        "#{==:#{pane_dead}#{pane_in_mode}#{pane_input_off}#{pane_synchronized},0000}",
        f"#{{==:{printable('pane_current_command')},{escaped(command)}}}",
    ]
    if agent.pane_pid is not None:
        found.append(same("pane_pid", int(agent.pane_pid)))
    if agent.tmux_pid is not None:
        found.append(same("pid", int(agent.tmux_pid)))
    return found


def same_screen(profile: Profile, screen: Screen, composer: Composer) -> list[str]:
    """Conditions that the pane still shows the snapshot: the same cursor, the same first row of the composer, and no
    words of a dialog in new places."""
    row = screen.rows[composer.first]
    return [*same_cursor(screen), shown(whole(row), screen), *no_dialog(profile, screen)]


def same_line(profile: Profile, screen: Screen, composer: Composer) -> list[str]:
    """Conditions that our own line is still in the composer: the same cursor, and every row of it unchanged (Own
    line only). Whole rows are compared, because wrapping may split the tag."""
    rows = [row for row in screen.rows[composer.first : composer.last + 1] if row.strip()]
    return [*same_cursor(screen), *(shown(whole(row), screen) for row in rows), *no_dialog(profile, screen)]


def same_human(snapshot: PaneSnapshot) -> list[str]:
    """The condition that no human has pressed a key since the snapshot in a client that shows the pane. tmux records a
    key before it passes it on, so none can come in between (Human first)."""
    return [same("client_activity", snapshot.activity)] if snapshot.last_key else []


def same_cursor(screen: Screen) -> list[str]:
    return [
        same("cursor_x", screen.cursor_x),
        same("cursor_y", screen.cursor_y),
        same("cursor_flag", int(screen.cursor_flag)),
    ]


def no_dialog(profile: Profile, screen: Screen) -> list[str]:
    """Conditions that a dialog's words occur nowhere new. An agent may have written such words itself: then their first
    occurrence must still be on the same row."""
    return [shown(pattern, screen) for pattern in profile.gates]


def same(name: str, value: object) -> str:
    return f"#{{==:#{{{name}}},{value}}}"


def literal(text: str) -> str:
    """A POSIX extended regular expression that matches exactly this text."""
    return _POSIX_SPECIAL.sub(r"\\\1", text)


def whole(row: str) -> str:
    """A regular expression that matches exactly this whole row."""
    return f"^{literal(row)}$"


def escaped(pattern: str) -> str:
    """Escapes `#`, `,` and `}` for use inside a tmux format."""
    return re.sub(r"([#,}])", r"#\1", pattern)


def shown(pattern: str, screen: Screen) -> str:
    """The condition that the first matching row has the same number as in the snapshot (0: none matches)."""
    return f"#{{==:#{{C/r:{escaped(pattern)}}},{screen.row_of(pattern)}}}"


ENDED = ("pane_gone", "tmux_restarted", "pane_changed", "pane_dead", "shell")
CHANGED, NOT_ECHOED, NOT_SUBMITTED = "changed_meanwhile", "not_echoed", "not_submitted"
ATTEMPTS = 3
SETTLE_SECONDS = 0.6
"""How long after the pause the key may still follow the paste. Claude Code and Codex delay dialogs until 1 s after the
last input to the composer; a later key could hit a dialog that opens at that moment. Hosts that do not delay dialogs
are typed into only when idle (`Profile.takes_lines_while_busy`)."""
POLL_SECONDS = 0.01
VERIFY_PAUSES = (0.01, 0.03, 0.06, 0.15, 0.3)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt to ring in a pane: the snapshot it is based on and its classification."""

    pane: Pane
    agent: Agent
    profiles: Profiles
    profile: Profile
    snapshot: PaneSnapshot
    shown: Classification
    began: float

    @property
    def marker(self) -> PaneMarker | None:
        """The marker of the last line of ours, if it was pasted to the process that runs now."""
        marker = PaneMarker.parse(self.snapshot.facts.marker)
        return marker if marker is not None and marker.pane_pid == self.snapshot.facts.pane_pid else None

    @property
    def awaits_echo(self) -> bool:
        """Whether a line was pasted a moment ago that the host has not shown yet."""
        marker = self.marker
        pasted = marker is not None and not marker.keys and marker.younger_than(ECHO_SECONDS)
        return pasted and marker is not None and not self.shown.has_line(marker.tag)

    @property
    def was_entered_late(self) -> bool:
        """Whether a line has left the composer after a key of ours whose effect was not seen in time: typing it again
        would deliver it twice."""
        marker = self.marker
        pressed = marker is not None and marker.keys > 0 and marker.younger_than(KEY_SECONDS)
        return pressed and marker is not None and not self.shown.has_line(marker.tag)

    @property
    def has_echoed(self) -> bool:
        """Whether the host shows the pasted line, so that the screen tells its fate and the marker is not needed."""
        return self.marker is not None and not self.marker.keys and self.shown.has_line(self.marker.tag)

    def condition(self, *more: str) -> str:
        """All requirements for a key or a paste, as one condition for tmux."""
        safe = safe_pane(self.agent, self.snapshot.facts.command)
        return all_of([*safe, *same_human(self.snapshot), *more])


@dataclass(frozen=True)
class Echo:
    """The last snapshot while waiting for our line, why the key must not be pressed (None: it may), and how many
    seconds this look took."""

    reason: str | None
    snapshot: PaneSnapshot | None = None
    shown: Classification | None = None
    took: float = 0.0


# Why typing is two commands, each with all conditions of its own.
#
# A host takes a paste and the key that follows at once for one paste, and does not submit: so the key comes later. In
# between, everything may have changed: a dialog asks for permission, and our key would answer it; a person begins a
# sentence, and our key would send it; the program has ended, and a shell runs our line. So before the key the pane is
# looked at once more, and the key belongs only to a composer that holds our line, by its tag, and nothing else.
#
# But a look is old when it arrives. What it has seen is therefore repeated as conditions (`same_line`, `same_human`,
# `safe_pane`) that tmux itself evaluates in the command that presses the key: tmux serves one command at a time, and
# notes a person's key before it passes it on, so nothing comes between condition and key except what the program
# draws that very moment. For that, hosts delay their dialogs after input, and those that do not are typed into only
# when idle (`SETTLE_SECONDS`). What is left is a line in a composer, unsubmitted: visible, harmless, and entered by
# the next ring (`finish`).
def enter(attempt: Attempt, text: str, until: float, not_before: float = 0.0, held_until: float = 0.0) -> Delivery:
    """Presses the submit key once if the composer contains the text, and only it, before `until` (`time.monotonic`);
    then verifies that the text has left it. `rung` means that the line is left there, or not shown yet. A host at work
    gets the key only if it is there before `held_until`, by what the look before has taken: later its dialogs are not
    delayed any more."""
    tag = tag_of(text) or ""
    while True:
        echo = _await_echo(attempt, text, until)
        if echo.snapshot is None or echo.shown is None or echo.reason is not None:
            return _left(attempt, echo.reason, echoed=echo.shown is not None and echo.shown.has_line(tag))
        condition = attempt.condition(*same_line(attempt.profile, echo.snapshot.screen, echo.shown.composed))
        keys = attempt.marker.keys if attempt.marker is not None and attempt.marker.tag == tag else 0
        key = _key(attempt.profile, echo.shown, echo.snapshot, keys)
        time.sleep(max(0.0, not_before - time.monotonic()))
        works = is_busy(attempt.profile, echo.snapshot.screen, echo.shown.composed)
        if works and time.monotonic() + echo.took >= held_until:
            return _left(attempt, BUSY, echoed=True)
        if (reason := press(attempt, condition, key, tag, keys + 1)) is None:
            break
        if reason != CHANGED or time.monotonic() >= until:
            return _left(attempt, reason, echoed=True)
        # a host at work moves its composer up and down
    entered = timedelta(seconds=time.monotonic() - attempt.began)
    if (reason := _unverified(attempt, tag)) is not None:
        return Delivery("rung", reason, left=True)
    clear_marker(attempt)  # a marker that counts keys always means that their effect was not seen
    return Delivery("submitted", entered_after=entered)


def finish(attempt: Attempt) -> Delivery:
    """Enters an earlier line of ours that is still in the composer, whole and alone. Only when the host is idle: a
    busy one may open a dialog between snapshot and key. And not while an earlier key may still take effect. `stored`
    with the reason if it was not entered."""
    composer, marker = attempt.shown.composed, attempt.marker
    if is_busy(attempt.profile, attempt.snapshot.screen, composer):
        return Delivery("stored", OURS)
    if marker is not None and marker.keys and marker.tag == attempt.shown.tag and marker.younger_than(KEY_SECONDS):
        return Delivery("stored", NOT_SUBMITTED)
    outcome = enter(attempt, composer.typed, time.monotonic() + SETTLE_SECONDS)
    if outcome.state == "submitted":
        return Delivery("submitted", "earlier_line", outcome.entered_after)
    return Delivery("stored", outcome.reason)


def program_changed(attempt: Attempt) -> str | None:
    """The reason if the program in the pane is no longer the one of the snapshot, or None."""
    found = recognise(attempt.agent, attempt.snapshot.facts.pane_pid, attempt.profiles)
    if isinstance(found, str):
        return found
    return None if found == attempt.profile else CHANGED


def paste(attempt: Attempt, condition: str, text: str, tag: str = "") -> str | None:
    """Pastes the text if the condition holds; with a tag, also sets the pane's marker. Returns None, or the reason why
    nothing was pasted."""
    buffer = f"multi-agent-mcp-{os.getpid()}-{time.monotonic_ns()}"
    command = f"paste-buffer -p -r -d -b {buffer} -t {attempt.pane.pane_id}"
    if tag:
        command += f" ; {_set_marker(attempt, tag, 0)}"
    load = ("load-buffer", "-b", buffer, "-", ";")
    return guarded(attempt, condition, command, before=load, otherwise=f"delete-buffer -b {buffer} ; ", stdin=text)


def press(attempt: Attempt, condition: str, key: str, tag: str = "", keys: int = 0) -> str | None:
    """Presses the key if the condition holds; with a tag, also records in the marker that the line has had `keys` keys.
    Returns None, or the reason why the key was not pressed."""
    marking = f" ; {_set_marker(attempt, tag, keys)}" if tag else ""
    return guarded(attempt, condition, f"send-keys -t {attempt.pane.pane_id} {key}{marking}")


def clear_marker(attempt: Attempt) -> None:
    attempt.pane.cmd("set-option", "-p", "-u", MARKER_OPTION)


def left_cursor_row(attempt: Attempt, line: str) -> bool:
    """Whether the line is no longer in the cursor's row; for programs without a known composer."""
    for pause in VERIFY_PAUSES[:4]:
        time.sleep(pause)
        now = take_snapshot(attempt.pane)
        if isinstance(now, str):
            return False
        rows, at = now.screen.rows, now.screen.cursor_y
        if at >= len(rows) or line[-12:] not in rows[at]:
            return True
    return False


def _await_echo(attempt: Attempt, text: str, until: float) -> Echo:
    """Waits until the composer contains the text and nothing else, or `until`."""
    while True:
        began = time.monotonic()
        now = take_snapshot(attempt.pane)
        if isinstance(now, str):
            return Echo(now)
        if (reason := now.facts.refusal(attempt.agent)) is not None:
            return Echo(reason)
        shown = classify(attempt.profile, now.screen)
        if now.last_key > attempt.snapshot.last_key:
            return Echo("human_typing", now, shown)
        if shown.state == OURS and squeezed(shown.composed.typed) == squeezed(text):
            reason = _keyless(attempt.profile, shown, now) or program_changed(attempt)
            return Echo(reason, now, shown, time.monotonic() - began)
        if time.monotonic() >= until:
            return Echo(NOT_ECHOED if shown.state in (*TYPEABLE, UNKNOWN) else shown.state, now, shown)
        time.sleep(POLL_SECONDS)


def _keyless(profile: Profile, shown: Classification, snapshot: PaneSnapshot) -> str | None:
    """`busy` if the host has begun to work and takes no lines while busy, else None."""
    works = not profile.takes_lines_while_busy and is_busy(profile, snapshot.screen, shown.composed)
    return BUSY if works else None


def _left(attempt: Attempt, reason: str | None, *, echoed: bool) -> Delivery:
    if echoed:
        clear_marker(attempt)
    return Delivery("rung", reason, left=True)


def _key(profile: Profile, shown: Classification, snapshot: PaneSnapshot, pressed: int) -> str:
    """The submit key for this state; if the profile has several, the next one at each attempt."""
    state = BUSY if is_busy(profile, snapshot.screen, shown.composed) else IDLE
    keys = profile.submit.get(state) or profile.submit[IDLE]
    return keys[pressed % len(keys)]


def _unverified(attempt: Attempt, tag: str) -> str | None:
    """Verifies that our key submitted the line, i.e. that it has left the composer, even under copy mode. Returns None,
    or why this is uncertain: a host that has ended or whose screen is unknown may not have taken it, and a human's key
    may have cleared it."""
    for pause in VERIFY_PAUSES:
        time.sleep(pause)
        now = take_snapshot(attempt.pane)
        if isinstance(now, str):
            return NOT_SUBMITTED
        if now.facts.refusal(attempt.agent) in ENDED or now.facts.command != attempt.snapshot.facts.command:
            return NOT_SUBMITTED
        shown = classify(attempt.profile, replace(now.screen, in_mode=False))
        if shown.has_line(tag) or shown.state == UNKNOWN:
            continue  # also when more text follows, as when a human's key came in the same read as ours
        # any other state, also a dialog or a picker: the host has taken the line
        return "human_typing" if now.last_key > attempt.snapshot.last_key else None
    return NOT_SUBMITTED


def _set_marker(attempt: Attempt, tag: str, keys: int) -> str:
    marker = PaneMarker(tag, attempt.snapshot.facts.pane_pid, machine_time(), keys)
    return f"set-option -p -t {attempt.pane.pane_id} {MARKER_OPTION} {marker}"


def guarded(
    attempt: Attempt,
    condition: str,
    command: str,
    *,
    before: tuple[str, ...] = (),
    otherwise: str = "",
    stdin: str = "",
) -> str | None:
    """Runs the command if the condition holds, in one call of tmux. Returns None, or the reason why it did not run."""
    report = f"{otherwise}display-message -p -t {attempt.pane.pane_id} '{FACTS_FORMAT}'"
    then = f"{command} ; display-message -p DONE"
    done = attempt.pane.if_true(condition, then, report, before=before, stdin=stdin)
    if done.failure or done.stderr:
        return done.failure or "tmux_gone"
    if done.stdout == ["DONE"]:
        return None
    facts = parse_facts(done.stdout[-1] if done.stdout else "")
    if facts is None:
        return "pane_gone"
    return facts.refusal(attempt.agent) or CHANGED
