"""The hand that types: a paste and a key, each in one tmux command with everything it depends on, and the look
afterwards (docs/protocol.md, Typing into a pane, One command, Separate key)."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.notify.tmux.client import FACTS_FORMAT, Tmux, parse_facts
from multi_agent_mcp.notify.tmux.pane_marker import ECHO_SECONDS, KEY_SECONDS, OPTION, LineMark, machine_time
from multi_agent_mcp.notify.tmux.profiles import Profile, Profiles
from multi_agent_mcp.notify.tmux.programs import recognise
from multi_agent_mcp.notify.tmux.screens import UNKNOWN, Sight, classify
from multi_agent_mcp.notify.tmux.snapshot import PaneSnapshot, take_snapshot

ENDED = ("pane_gone", "tmux_restarted", "pane_changed", "pane_dead", "shell")
CHANGED, NOT_SUBMITTED = "changed_meanwhile", "not_submitted"
VERIFY_PAUSES = (0.01, 0.03, 0.06, 0.15, 0.3)


@dataclass(frozen=True)
class Attempt:
    """One attempt: whom, where, and what was taken for what."""

    server: Tmux
    agent: Agent
    pane: str
    profiles: Profiles
    profile: Profile
    seen: PaneSnapshot
    sight: Sight
    began: float

    @property
    def mark(self) -> LineMark | None:
        """The last line of ours that was pasted to the program that runs there."""
        mark = LineMark.parse(self.seen.facts.line)
        return mark if mark is not None and mark.pane_pid == self.seen.facts.pane_pid else None

    @property
    def awaits_echo(self) -> bool:
        """Whether a line was pasted a moment ago that the host has not shown yet."""
        mark = self.mark
        return mark is not None and not mark.keys and not self.sight.shows(mark.tag) and mark.younger_than(ECHO_SECONDS)

    @property
    def was_entered_late(self) -> bool:
        """Whether a line has left the composer since a key of ours that nobody has seen working: typed again, it would
        be there twice."""
        mark = self.mark
        return mark is not None and mark.keys > 0 and not self.sight.shows(mark.tag) and mark.younger_than(KEY_SECONDS)

    @property
    def has_shown(self) -> bool:
        """Whether the screen says from now on what has become of the line, so that the mark is of no use."""
        return self.mark is not None and not self.mark.keys and self.sight.shows(self.mark.tag)


def stranger(visit: Attempt) -> str | None:
    """Why the program in the pane is not (any more) the one that was looked at, or None."""
    facts = visit.seen.facts
    found = recognise(visit.agent, facts.pane_pid, facts.command, visit.profiles)
    if isinstance(found, str):
        return found
    return None if found == visit.profile else CHANGED


def paste(visit: Attempt, gate: str, text: str, tag: str = "") -> str | None:
    """Types the text if the gate holds, and with a tag notes it as a line to be entered. None when it did, else what
    kept it from it."""
    buffer = f"multi-agent-mcp-{os.getpid()}-{time.monotonic_ns()}"
    paste = f"paste-buffer -p -r -d -b {buffer} -t {visit.pane}"
    if tag:
        paste += f" ; {_noted(visit, tag, 0)}"
    return _guarded(
        visit, ("load-buffer", "-b", buffer, "-", ";"), gate, paste, no=f"delete-buffer -b {buffer} ; ", stdin=text
    )


def press(visit: Attempt, gate: str, key: str, tag: str = "", keys: int = 0) -> str | None:
    """Presses the key if the gate holds, and with a tag notes that this line has now had so many. None when it did,
    else what kept it from it."""
    note = f" ; {_noted(visit, tag, keys)}" if tag else ""
    return _guarded(visit, (), gate, f"send-keys -t {visit.pane} {key}{note}")


def _noted(visit: Attempt, tag: str, keys: int) -> str:
    mark = LineMark(tag, visit.seen.facts.pane_pid, machine_time(), keys)
    return f"set-option -p -t {visit.pane} {OPTION} {mark}"


def forget_line(visit: Attempt) -> None:
    """Takes the mark away: the host has shown the line."""
    visit.server.cmd("set-option", "-p", "-u", "-t", visit.pane, OPTION)


def _guarded(
    visit: Attempt, before: tuple[str, ...], gate: str, yes: str, *, no: str = "", stdin: str = ""
) -> str | None:
    """Runs `yes` if the gate holds, in one call of tmux. None when it did, else the reason it did not."""
    report = f"{no}display-message -p -t {visit.pane} '{FACTS_FORMAT}'"
    choice = ("if-shell", "-F", "-t", visit.pane, gate, f"{yes} ; display-message -p DONE", report)
    call: list[str] = [*before, *choice]
    done = visit.server.cmd(call[0], *call[1:], stdin=stdin)
    if done.returncode or done.stderr:
        return "tmux_timeout" if done.returncode == 124 else "tmux_gone"
    if done.stdout == ["DONE"]:
        return None
    facts = parse_facts(done.stdout[-1] if done.stdout else "")
    if facts is None:
        return "pane_gone"
    return facts.refusal(visit.agent) or CHANGED


def kept_in_composer(visit: Attempt, tag: str) -> str | None:
    """Looks whether our key submitted the line: it no longer stands in the composer, even if copy mode covers that.
    None when it did; else why that cannot be said: a host that has ended meanwhile, or shows nothing known, has not
    taken it for all we know, and where a human has pressed a key since, that may have cleared it."""
    for pause in VERIFY_PAUSES:
        time.sleep(pause)
        seen = take_snapshot(visit.server, visit.pane)
        if isinstance(seen, str):
            return NOT_SUBMITTED
        if seen.facts.refusal(visit.agent) in ENDED or seen.facts.command != visit.seen.facts.command:
            return NOT_SUBMITTED
        sight = classify(visit.profile, replace(seen.screen, in_mode=False))
        if sight.shows(tag) or sight.state == UNKNOWN:
            continue  # also with more behind it, as when a human's key came in the same read as ours
        return "human_typing" if seen.last_key > visit.seen.last_key else None  # a dialog, a picker: it has gone on
    return NOT_SUBMITTED


def has_left_cursor(visit: Attempt, line: str) -> bool:
    """The same for a program without a known composer: the line no longer stands where the cursor is."""
    for pause in VERIFY_PAUSES[:4]:
        time.sleep(pause)
        seen = take_snapshot(visit.server, visit.pane)
        if isinstance(seen, str):
            return False
        rows, at = seen.screen.rows, seen.screen.cursor_y
        if at >= len(rows) or line[-12:] not in rows[at]:
            return True
    return False
