"""The hand that types: a paste and a key, each in one tmux command with everything it depends on (PANES.md row 15), and
the look afterwards (row 1)."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.notify.hosts import Profile, Profiles
from multi_agent_mcp.notify.looking import Look, look
from multi_agent_mcp.notify.screens import UNKNOWN, Sight, classify, squeezed
from multi_agent_mcp.notify.tmux import FACTS_FORMAT, Tmux, parse_facts

ENDED = ("pane_gone", "tmux_restarted", "pane_changed", "pane_dead", "shell")
CHANGED = "changed_meanwhile"
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


def paste(visit: Visit, gate: str, text: str) -> str | None:
    """Types the text if the gate holds. None when it did, else what kept it from it."""
    buffer = f"multi-agent-mcp-{os.getpid()}-{time.monotonic_ns()}"
    paste = f"paste-buffer -p -r -d -b {buffer} -t {visit.pane}"
    return _guarded(
        visit, ("load-buffer", "-b", buffer, "-", ";"), gate, paste, no=f"delete-buffer -b {buffer} ; ", stdin=text
    )


def press(visit: Visit, gate: str, key: str) -> str | None:
    return _guarded(visit, (), gate, f"send-keys -t {visit.pane} {key}")


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
        if sight.composer is not None and f"#{tag}" not in squeezed(sight.composer.text):
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
