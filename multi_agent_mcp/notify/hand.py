"""The hand that types: a paste and a key, each in one tmux command with everything it depends on (PANES.md row 15), and
the look afterwards (row 1)."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.notify.hosts import Profile, Profiles
from multi_agent_mcp.notify.looking import Look, look
from multi_agent_mcp.notify.screens import UNKNOWN, Sight, classify
from multi_agent_mcp.notify.tmux import FACTS_FORMAT, LINE_OPTION, Tmux, parse_facts

ENDED = ("pane_gone", "tmux_restarted", "pane_changed", "pane_dead", "shell")
CHANGED = "changed_meanwhile"
ECHO_SECONDS = 20.0
"""How long a host may take to show what was pasted. Meanwhile an empty composer proves nothing."""
VERIFY_PAUSES = (0.01, 0.03, 0.06, 0.15, 0.3)


@dataclass(frozen=True)
class Visit:
    """One attempt: whom, where, and what was taken for what."""

    server: Tmux
    agent: Agent
    pane: str
    profiles: Profiles
    profile: Profile
    seen: Look
    sight: Sight
    began: float

    @property
    def awaits_line(self) -> bool:
        """Whether a line of ours was pasted a moment ago that the host has not shown yet: it may have much to do."""
        tag, _, rest = self.seen.facts.line.partition(":")
        pid, _, at = rest.partition(":")
        if not at.isdigit() or pid != str(self.seen.facts.pane_pid) or self.sight.shows(tag):
            return False
        return 0 <= time.time() - int(at) < ECHO_SECONDS


def paste(visit: Visit, gate: str, text: str, tag: str = "") -> str | None:
    """Types the text if the gate holds, and with a tag notes it as a line to be entered. None when it did, else what
    kept it from it."""
    buffer = f"multi-agent-mcp-{os.getpid()}-{time.monotonic_ns()}"
    paste = f"paste-buffer -p -r -d -b {buffer} -t {visit.pane}"
    if tag:
        note = f"{tag}:{visit.seen.facts.pane_pid}:{int(time.time())}"
        paste += f" ; set-option -p -t {visit.pane} {LINE_OPTION} {note}"
    return _guarded(
        visit, ("load-buffer", "-b", buffer, "-", ";"), gate, paste, no=f"delete-buffer -b {buffer} ; ", stdin=text
    )


def press(visit: Visit, gate: str, key: str) -> str | None:
    """Presses the key if the gate holds, and notes that no line is to be entered any more."""
    return _guarded(
        visit, (), gate, f"send-keys -t {visit.pane} {key} ; set-option -p -u -t {visit.pane} {LINE_OPTION}"
    )


def forget_line(visit: Visit) -> None:
    """The host has shown the line, so that the screen says from now on where it is."""
    visit.server.cmd("set-option", "-p", "-u", "-t", visit.pane, LINE_OPTION)


def _guarded(
    visit: Visit, before: tuple[str, ...], gate: str, yes: str, *, no: str = "", stdin: str = ""
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
    return facts.refusal(visit.agent, visit.profiles) or CHANGED


def has_left_composer(visit: Visit, tag: str) -> bool:
    """Looks whether our line was submitted: it no longer stands in the composer, even if copy mode covers that. A host
    that has ended meanwhile, or shows nothing known, has not taken it for all we know."""
    for pause in VERIFY_PAUSES:
        time.sleep(pause)
        seen = look(visit.server, visit.pane)
        if isinstance(seen, str):
            return False
        if seen.facts.refusal(visit.agent, visit.profiles) in ENDED:
            return False
        sight = classify(visit.profile, replace(seen.screen, in_mode=False))
        if sight.composer is not None and not sight.shows(tag):
            return True  # not even with more behind it, as when a human's key came in the same read as ours
        if sight.composer is None and sight.state != UNKNOWN:
            return True  # a dialog, a picker: it has gone on
    return False


def has_left_cursor(visit: Visit, line: str) -> bool:
    """The same for a program without a known composer: the line no longer stands where the cursor is."""
    for pause in VERIFY_PAUSES[:4]:
        time.sleep(pause)
        seen = look(visit.server, visit.pane)
        if isinstance(seen, str):
            return False
        rows, at = seen.screen.rows, seen.screen.cursor_y
        if at >= len(rows) or line[-12:] not in rows[at]:
            return True
    return False
