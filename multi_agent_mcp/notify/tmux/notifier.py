"""The pane doorbell: one line typed into somebody else's terminal, or not at all
(docs/protocol.md, Typing into a pane).

One call looks and decides; a pane with a draft or a dialog costs no second one. Then all gates and the paste are one
tmux command, so nothing can change in between (One command). The line goes through a paste buffer of its own (Paste
buffer, Harmless text) into a pane that is addressed by `%id` and recognised by its process and its server (Pane
identity). The submit key is pressed only while our own line, with its tag, is what stands in the composer (Own line
only). Nothing but the line and that key is ever sent (No other keys).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import timedelta

from libtmux import exc

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.notify.channel import LINE_GONE
from multi_agent_mcp.notify.line import sanitized
from multi_agent_mcp.notify.tmux import conditions as gates
from multi_agent_mcp.notify.tmux.client import GONE, PANE_ID, Tmux
from multi_agent_mcp.notify.tmux.profiles import Profile, Profiles
from multi_agent_mcp.notify.tmux.programs import recognise
from multi_agent_mcp.notify.tmux.screens import (
    DRAFT,
    IDLE,
    MARK,
    OURS,
    TYPEABLE,
    UNKNOWN,
    Screen,
    classify,
)
from multi_agent_mcp.notify.tmux.snapshot import PaneSnapshot, take_snapshot
from multi_agent_mcp.notify.tmux.submit import NOT_ECHOED, SETTLE_SECONDS, enter, finish, gate
from multi_agent_mcp.notify.tmux.typing import (
    CHANGED,
    ENDED,
    NOT_SUBMITTED,
    Attempt,
    forget_line,
    has_left_cursor,
    paste,
    press,
    stranger,
)

QUIET_SECONDS = 3.0
LASTS_SECONDS = 0.05
LOOK_SECONDS = 0.01  # what a look takes: the last one falls into the pause
ATTEMPTS = 3
UNKNOWN_SCREEN = "unknown_screen"
"""The reason when a known host shows what nobody has described; kept, so that the profile can be mended."""
_TAG_LETTERS = "23456789bcdfghjkmnpqrstvwxz"  # no vowels: no words

Keep = Callable[[str, Screen], None]


class TmuxNotifier:
    """Rings an agent in its registered pane. `keep` is handed the screens of known hosts that nobody has described."""

    name = "tmux"

    def __init__(
        self,
        submit_pause_seconds: float,
        profiles: Profiles,
        keep: Keep | None = None,
        quiet_seconds: float = QUIET_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.submit_pause_seconds = submit_pause_seconds
        self.profiles = profiles
        self.keep = keep
        self.quiet_seconds = quiet_seconds
        self.clock = clock

    def ring(self, agent: Agent, line: str) -> Delivery:
        """`submitted` when the line was typed and entered, `rung` when it stands there but was not entered,
        `stored` with the reason when nothing was typed."""
        try:
            for _ in range(ATTEMPTS - 1):
                outcome = self._ring(agent, sanitized(line))
                if outcome != Delivery("stored", CHANGED):
                    return outcome
            return self._ring(agent, sanitized(line))
        except exc.TmuxCommandNotFound:
            return Delivery("stored", "no_tmux")

    def check(self, agent: Agent) -> str | None:
        """Why nothing would be typed at this moment, or None: the gates of tmux, a human who types, and what the host
        shows. One call of tmux."""
        try:
            visit = self._visit(agent)
        except exc.TmuxCommandNotFound:
            return "no_tmux"
        return visit if isinstance(visit, str) else _untypeable(visit)

    def screen(self, agent: Agent) -> str:
        """The host and what it shows (`claude: draft`), else why nobody can look; for `doctor`."""
        try:
            visit = self._visit(agent)
        except exc.TmuxCommandNotFound:
            return "no_tmux"
        return visit if isinstance(visit, str) else f"{visit.profile.name}: {visit.sight.state}"

    def finish(self, agent: Agent) -> Delivery:
        """Enters a line of ours that was left in the composer, because its echo came late or a human typed: `submitted`
        once it was entered; `stored` with `line_gone` when there is none (any more), else with what forbids the key
        now. Pastes nothing."""
        try:
            visit = self._visit(agent)
        except exc.TmuxCommandNotFound:
            return Delivery("stored", LINE_GONE)
        if isinstance(visit, str):
            return Delivery("stored", LINE_GONE if visit in (*GONE, *ENDED) else visit)
        if visit.sight.state == OURS:
            return finish(visit)
        reason = _untypeable(visit)
        composer = visit.sight.composer
        elsewhere = reason != NOT_ECHOED and composer is not None and MARK not in composer.typed
        return Delivery("stored", LINE_GONE if reason is None or elsewhere else reason)

    def _ring(self, agent: Agent, line: str) -> Delivery:
        visit = self._visit(agent)
        if isinstance(visit, str):
            if visit == "shell":
                _show_status(agent, line)
            return Delivery("stored", visit)
        if (reason := _untypeable(visit)) is not None:
            if reason == UNKNOWN_SCREEN and self.keep is not None and self._lasts(visit):
                self.keep(visit.profile.name, visit.seen.screen)
            return Delivery("stored", reason)
        if visit.profile.composer is None:
            return self._to_line_reader(visit, line)
        return finish(visit) if visit.sight.state == OURS else self._to_composer(visit, line)

    def _visit(self, agent: Agent) -> Attempt | str:
        """One look at the agent's pane; the reason when nothing may be typed there whatever it shows: tmux says so, the
        program is a stranger, a human types."""
        if agent.pane_id is None or agent.socket_path is None or not PANE_ID.fullmatch(agent.pane_id):
            return "no_pane"
        began, server = time.monotonic(), _server(agent)
        seen = take_snapshot(server, agent.pane_id)
        if isinstance(seen, str):
            return seen
        if (reason := seen.facts.refusal(agent)) is not None:
            return reason
        profile = recognise(agent, seen.facts.pane_pid, seen.facts.command, self.profiles)
        if isinstance(profile, str):
            return profile
        if self._is_typing(seen):
            return "human_typing"
        sight = classify(profile, seen.screen)
        visit = Attempt(server, agent, agent.pane_id, self.profiles, profile, seen, sight, began)
        if visit.has_shown:
            forget_line(visit)
        return visit

    def _is_typing(self, seen: PaneSnapshot) -> bool:
        """Whether a human has pressed a key a moment ago. A key that lies further in the future was pressed before the
        clock was set back: it must not silence the doorbell until the clock has caught up."""
        return abs(self.clock() - seen.last_key) < self.quiet_seconds

    def _lasts(self, visit: Attempt) -> bool:
        """Whether the screen stays; a frame caught half drawn is not worth keeping."""
        time.sleep(LASTS_SECONDS)
        again = take_snapshot(visit.server, visit.pane)
        return not isinstance(again, str) and again.screen == visit.seen.screen

    def _to_line_reader(self, visit: Attempt, line: str) -> Delivery:
        """A program that is declared to read lines: its screen says nothing. The gates of tmux, a pause, Enter."""
        condition = gate(visit, [])
        if (kept := paste(visit, condition, line)) is not None:
            return Delivery("stored", kept)
        time.sleep(self._pause(visit.profile))
        if (kept := stranger(visit) or press(visit, condition, visit.profile.submit[IDLE][0])) is not None:
            return Delivery("rung", kept)
        entered = timedelta(seconds=time.monotonic() - visit.began)
        if has_left_cursor(visit, line):
            return Delivery("submitted", entered_after=entered)
        return Delivery("rung", NOT_SUBMITTED)

    def _to_composer(self, visit: Attempt, line: str) -> Delivery:
        composer, screen = visit.sight.composer, visit.seen.screen
        assert composer is not None  # noqa: S101 - `idle` and `busy` have one, by `classify`
        tag = _new_tag(screen)
        text, condition = f"{line} #{tag}", gate(visit, gates.same_screen(visit.profile, screen, composer))
        if (kept := paste(visit, condition, text, tag)) is not None:
            return Delivery("stored", kept)
        pause, typed = self._pause(visit.profile), time.monotonic()
        time.sleep(max(0.0, pause - LOOK_SECONDS))
        return enter(visit, text, typed + pause + SETTLE_SECONDS, not_before=typed + pause)

    def _pause(self, profile: Profile) -> float:
        return self.submit_pause_seconds if profile.pause_seconds is None else profile.pause_seconds


def _untypeable(visit: Attempt) -> str | None:
    """The reason for a screen that is not to be typed into, or None."""
    if visit.sight.state in TYPEABLE and visit.awaits_echo:
        return NOT_ECHOED  # a second line would be merged with the first
    if visit.profile.composer is None:
        return DRAFT if _has_draft(visit.seen) else None
    if visit.sight.state in (*TYPEABLE, OURS):
        return None
    return UNKNOWN_SCREEN if visit.sight.state == UNKNOWN else visit.sight.state


def _has_draft(seen: PaneSnapshot) -> bool:
    """Whether a human may have begun a line before a program that has no composer: a client of theirs shows the pane,
    and something stands in the cursor's line, be it a prompt."""
    screen = seen.screen
    return seen.last_key > 0 and (screen.cursor_x > 0 or bool(screen.rows[screen.cursor_y].strip()))


def _server(agent: Agent) -> Tmux:
    """The agent's tmux server, asked from within its pane: the clients it then speaks of are those that show it."""
    server = Tmux(socket_path=agent.socket_path)
    server.inside = agent.pane_id
    return server


def _new_tag(screen: Screen) -> str:
    """Four letters that stand nowhere on the screen."""
    while True:
        tag = "".join(random.choices(_TAG_LETTERS, k=4))  # noqa: S311 - a mark, not a secret
        if not any(tag in row for row in screen.rows):
            return tag


def _show_status(agent: Agent, line: str) -> None:
    """The agent has quit to its shell: nothing is typed, but a client that shows the pane is told (No shells)."""
    literal = line.replace("#", "##").replace("%", "%%")  # -l would say so, from tmux 3.4 on
    _server(agent).cmd("display-message", "-t", str(agent.pane_id), "-d", "5000", literal)
