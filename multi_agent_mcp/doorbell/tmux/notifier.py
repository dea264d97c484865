"""The channel that types one line into an agent's pane, or nothing at all, and a person's use of panes from elsewhere
(docs/protocol.md, Typing into a pane, Answering a dialog)."""

from __future__ import annotations

import random
import re
import threading
import time
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from functools import partial

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import LIFELESS, MANY, About, Delivery
from multi_agent_mcp.domain.dialog import Answered, Dialog
from multi_agent_mcp.domain.text import sanitize
from multi_agent_mcp.doorbell.channel import LINE_GONE, Channel, sanitized
from multi_agent_mcp.doorbell.tmux import typing
from multi_agent_mcp.doorbell.tmux.client import PANE_ID, TIMEOUT, Pane, Server, SilentServers
from multi_agent_mcp.doorbell.tmux.dialogs import ShownDialog, answer, described, read_screen
from multi_agent_mcp.doorbell.tmux.profiles import Profile, Profiles, recognise
from multi_agent_mcp.doorbell.tmux.screens import (
    BUSY,
    DIALOG,
    DRAFT,
    IDLE,
    OURS,
    PREFIX,
    TYPEABLE,
    UNKNOWN,
    Screen,
    classify,
)
from multi_agent_mcp.doorbell.tmux.snapshot import (
    ECHO_SECONDS,
    GONE,
    PaneSnapshot,
    PaneView,
    probe,
    take_snapshot,
    view_pane,
)
from multi_agent_mcp.errors import InvalidArguments, TmuxTimeout
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.system.file_status import Memory

QUIET_SECONDS = 3.0
UNTOUCHABLE = ("copy_mode", "input_off", "synchronized")
"""Reasons to type nothing into a pane whose screen can be read nevertheless."""
LASTS_SECONDS = 0.05
SNAPSHOT_SECONDS = 0.01  # the duration of a snapshot: the last one is part of the pause
UNKNOWN_SCREEN = "unknown_screen"
"""The reason for a known host whose screen its profile does not describe; the screen is saved to correct that."""
_TAG_LETTERS = "23456789bcdfghjkmnpqrstvwxz"  # no vowels: no words

SaveScreen = Callable[[str, Screen], None]


class TmuxNotifier(Channel):
    """Rings an agent in its registered pane. `save_screen` gets the host's name and screen when the profile does not
    describe the screen.

    One snapshot decides; a pane with a draft or a dialog costs no second call. Then all conditions and the paste
    are one tmux command, so nothing can change in between (docs/protocol.md, One command). The line goes through a
    paste buffer of its own (Paste buffer, Harmless text) into a pane that is addressed by `%id` and identified by
    its process and its server (Pane identity). The submit key follows only while the composer contains our own
    line, with its tag, and nothing else (Own line only). Nothing but the line and that key is ever sent (No other
    keys).
    """

    name = "tmux"

    def __init__(
        self,
        submit_pause_seconds: float,
        profiles: Profiles,
        save_screen: SaveScreen | None = None,
        quiet_seconds: float = QUIET_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.submit_pause_seconds = submit_pause_seconds
        self.profiles = profiles
        self.save_screen = save_screen
        self.quiet_seconds = quiet_seconds
        self.clock = clock
        self.silent = SilentServers()

    def ring(self, agent: Agent, line: str, about: About = MANY) -> Delivery:  # noqa: ARG002
        """`submitted` when the line was typed and entered; `rung` when it was typed but not entered, or when an earlier
        line has just left the composer after a key whose effect was not seen (a human may have cleared the line);
        `stored` with the reason when nothing was typed."""
        for _ in range(typing.ATTEMPTS - 1):
            outcome = self._ring(agent, sanitized(line))
            if outcome != Delivery("stored", typing.CHANGED):
                return outcome
        return self._ring(agent, sanitized(line))

    def check(self, agent: Agent) -> str | None:
        """The reason why nothing would be typed at this moment, or None: tmux's own conditions, a human who types, or
        the host's screen. One call of tmux."""
        attempt = self._attempt(agent)
        return attempt if isinstance(attempt, str) else _untypeable(attempt)

    def screen(self, agent: Agent) -> str:
        """The host and the state of its screen (`claude: draft`), else why there is no snapshot; for `doctor`."""
        attempt = self._seen(agent)
        return attempt if isinstance(attempt, str) else f"{attempt.profile.name}: {attempt.shown.state}"

    def host(self, agent: Agent) -> tuple[str, str] | None:
        """The host whose profile describes the pane, and the state of its screen; None if there is no such host."""
        attempt = self._seen(agent, regardless=True)
        if isinstance(attempt, str) or attempt.profile.composer is None:
            return None
        return attempt.profile.name, attempt.shown.state

    def limit(self, agent: Agent) -> tuple[str, str, str | None] | None:
        """The host, its words and the window, if the agent's screen shows a usage limit. One call of tmux."""
        attempt = self._seen(agent, regardless=True)
        if isinstance(attempt, str):
            return None
        rows = "\n".join(attempt.snapshot.screen.rows)
        found = next((shown for pattern in attempt.profile.limits if (shown := pattern.search(rows))), None)
        return None if found is None else (attempt.profile.name, found[0], found.groupdict().get("window"))

    def probe(self, agent: Agent) -> str | None:
        """The reason why this agent's pane cannot be rung now, whatever it shows, or None. Types nothing."""
        found = self.silent.ask(agent.socket_path, lambda: probe(agent, self.profiles) or True)
        return None if found is True else str(found)

    def is_at_work(self, agent: Agent) -> bool:
        """Whether the agent's host works, by its screen."""
        seen = self.host(agent) if agent.pane_id is not None else None
        return seen is not None and seen[1] == BUSY

    def has_lost(self, agent: Agent) -> bool:
        """Whether no program of the agent runs in the pane where it is registered."""
        return agent.pane_id is None or self.probe(agent) in LIFELESS

    def dialog(self, agent: Agent) -> Dialog | None:
        """The dialog that waits in the agent's pane, if the profile describes its choices. One call of tmux."""
        attempt = self._seen(agent, regardless=True)
        shown = None if isinstance(attempt, str) else described(attempt)
        return None if shown is None else shown.dialog

    def asking(self, agent: Agent, keys: Sequence[str] = ()) -> Dialog | None:
        """What the agent's host shows in place of its composer, with these keys as the only choice, whether a profile
        describes it or not; None where it asks nothing. One call of tmux."""
        attempt = self._seen(agent, regardless=True)
        shown = None if isinstance(attempt, str) else _undescribed(attempt, keys)
        return None if shown is None else shown.dialog

    def answer(self, agent: Agent, dialog_id: str, key: str, keys: Sequence[str] = ()) -> Answered:
        """Answers the dialog with this id by the choice with this key, if it is still shown; see `dialogs.answer`. With
        `keys` it is what `asking` returned for them. The pane's state is returned, never raised."""
        read = partial(_undescribed, keys=keys) if keys else described
        return answer(lambda: self._attempt(agent), dialog_id, key, read)

    def finish(self, agent: Agent) -> Delivery:
        """Enters a line of ours that was left in the composer, because its echo came late or a human typed: `submitted`
        if it was entered; `stored` with `line_gone` if there is none (any more), else with the reason that forbids the
        key now. Pastes nothing."""
        attempt = self._attempt(agent)
        if isinstance(attempt, str):
            return Delivery("stored", LINE_GONE if attempt in (*GONE, *typing.ENDED) else attempt)
        if attempt.shown.state == OURS:
            return typing.finish(attempt)
        reason = _untypeable(attempt)
        composer = attempt.shown.composer
        elsewhere = reason != typing.NOT_ECHOED and composer is not None and PREFIX not in composer.typed
        return Delivery("stored", LINE_GONE if reason is None or elsewhere else reason)

    def _ring(self, agent: Agent, line: str) -> Delivery:
        attempt = self._attempt(agent)
        if isinstance(attempt, str):
            if attempt == "shell":
                _show_status(agent, line)
            return Delivery("stored", attempt)
        if (reason := _untypeable(attempt)) is not None:
            if reason == UNKNOWN_SCREEN and self.save_screen is not None and self._lasts(attempt):
                self.save_screen(attempt.profile.name, attempt.snapshot.screen)
            return Delivery("stored", reason)
        if attempt.profile.composer is None:
            return self._to_line_reader(attempt, line)
        if attempt.shown.state == OURS:
            return typing.finish(attempt)
        if attempt.was_entered_late:
            typing.clear_marker(attempt)
            return Delivery("rung", "earlier_line")
        return self._to_composer(attempt, line)

    def _seen(self, agent: Agent, *, regardless: bool = False) -> typing.Attempt | str:
        """As `_attempt`, for callers that only look; `regardless` ignores a human who types or scrolls there, which
        does not change the host's screen."""
        look = partial(self._look, agent, UNTOUCHABLE) if regardless else partial(self._attempt, agent)
        return self.silent.ask(agent.socket_path, look)

    def _attempt(self, agent: Agent) -> typing.Attempt | str:
        """A snapshot of the agent's pane, or the reason when nothing may be typed there, whatever it shows: tmux
        forbids it, the program is unknown, a human types."""
        attempt = self._look(agent)
        if isinstance(attempt, str):
            return attempt
        if self._is_typing(attempt.snapshot):
            return "human_typing"
        if attempt.has_echoed:
            typing.clear_marker(attempt)
        return attempt

    def _look(self, agent: Agent, allowed: Collection[str] = ()) -> typing.Attempt | str:
        """As `_attempt`, but ignores a human who types and the `allowed` reasons, and changes nothing."""
        if agent.pane_id is None or agent.socket_path is None or not PANE_ID.fullmatch(agent.pane_id):
            return "no_pane"
        began, pane = time.monotonic(), _pane(agent)
        snapshot = take_snapshot(pane)
        if isinstance(snapshot, str):
            return snapshot
        if (reason := snapshot.facts.refusal(agent)) is not None and reason not in allowed:
            return reason
        if reason is not None:
            snapshot = replace(snapshot, screen=replace(snapshot.screen, in_mode=False))
        profile = recognise(agent, snapshot.facts.pane_pid, self.profiles)
        if isinstance(profile, str):
            return profile
        shown = classify(profile, snapshot.screen)
        return typing.Attempt(
            pane=pane, agent=agent, profiles=self.profiles, profile=profile, snapshot=snapshot, shown=shown, began=began
        )

    def _is_typing(self, snapshot: PaneSnapshot) -> bool:
        """Whether a human pressed a key within `quiet_seconds`. A key time further in the future is from before the
        clock was set back, and must not silence the doorbell until the clock has caught up."""
        return abs(self.clock() - snapshot.last_key) < self.quiet_seconds

    def _lasts(self, attempt: typing.Attempt) -> bool:
        """Whether the screen stays the same for `LASTS_SECONDS`; a half-drawn frame is not worth saving."""
        time.sleep(LASTS_SECONDS)
        again = take_snapshot(attempt.pane)
        return not isinstance(again, str) and again.screen == attempt.snapshot.screen

    def _to_line_reader(self, attempt: typing.Attempt, line: str) -> Delivery:
        """Rings a program that is declared to read lines: pastes if tmux's own conditions hold, pauses, presses Enter.
        Its screen cannot be interpreted."""
        condition = attempt.condition()
        if (reason := typing.paste(attempt, condition, line)) is not None:
            return Delivery("stored", reason)
        time.sleep(self._pause(attempt.profile))
        if (
            reason := typing.program_changed(attempt)
            or typing.press(attempt, condition, attempt.profile.submit[IDLE][0])
        ) is not None:
            return Delivery("rung", reason)
        entered = timedelta(seconds=time.monotonic() - attempt.began)
        if typing.left_cursor_row(attempt, line):
            return Delivery("submitted", entered_after=entered)
        return Delivery("rung", typing.NOT_SUBMITTED)

    def _to_composer(self, attempt: typing.Attempt, line: str) -> Delivery:
        composer, screen = attempt.shown.composer, attempt.snapshot.screen
        assert composer is not None  # noqa: S101 - `idle` and `busy` have one, by `classify`
        tag = _new_tag(screen)
        text = f"{line} #{tag}"
        condition = attempt.condition(*typing.same_screen(attempt.profile, screen, composer))
        settled = self._pause(attempt.profile) + typing.SETTLE_SECONDS
        held_until = time.monotonic() + settled  # from before the paste: we may hear of it long after the host
        if (reason := typing.paste(attempt, condition, text, tag)) is not None:
            return Delivery("stored", reason)
        pause, typed = self._pause(attempt.profile), time.monotonic()
        time.sleep(max(0.0, pause - SNAPSHOT_SECONDS))
        return typing.enter(attempt, text, typed + settled, not_before=typed + pause, held_until=held_until)

    def _pause(self, profile: Profile) -> float:
        return self.submit_pause_seconds if profile.pause_seconds is None else profile.pause_seconds


def _undescribed(attempt: typing.Attempt, keys: Sequence[str] = ()) -> ShownDialog | None:
    if attempt.profile.composer is None:
        return None
    return read_screen(attempt.snapshot.screen, attempt.shown, keys)


def _untypeable(attempt: typing.Attempt) -> str | None:
    """The reason why the screen must not be typed into, or None."""
    if attempt.shown.state in TYPEABLE and attempt.awaits_echo:
        return typing.NOT_ECHOED  # a second line would be merged with the first
    if attempt.profile.composer is None:
        return DRAFT if _has_draft(attempt.snapshot) else None
    if attempt.shown.state == BUSY and not attempt.profile.takes_lines_while_busy:
        return BUSY
    if attempt.shown.state in (*TYPEABLE, OURS):
        return None
    return UNKNOWN_SCREEN if attempt.shown.state == UNKNOWN else attempt.shown.state


def _has_draft(snapshot: PaneSnapshot) -> bool:
    """Whether a human may have begun a line in a program without a composer: a client shows the pane, and the cursor's
    row is not empty (it may only hold a prompt)."""
    screen = snapshot.screen
    return snapshot.last_key > 0 and (screen.cursor_x > 0 or bool(screen.rows[screen.cursor_y].strip(" ")))


def _pane(agent: Agent) -> Pane:
    """The agent's pane, of a server that is called as from it, so that client variables are about clients showing
    it."""
    return Server(str(agent.socket_path), inside=agent.pane_id).pane(str(agent.pane_id))


def _new_tag(screen: Screen) -> str:
    """Four letters that occur nowhere on the screen."""
    while True:
        tag = "".join(random.choices(_TAG_LETTERS, k=4))  # noqa: S311 - a tag, not a secret
        if not any(tag in row for row in screen.rows):
            return tag


def _show_status(agent: Agent, line: str) -> None:
    """Displays the line in clients that show the pane, for an agent that has quit to its shell (No shells)."""
    literal = line.replace("#", "##").replace("%", "%%")  # tmux 3.4 has -l for this
    _pane(agent).cmd("display-message", "-d", "5000", literal)


LOOK_SECONDS = 0.5
"""The shortest interval between looks. Each captures the pane twice: as people see it, and for its dialog."""
LINE_CHARACTERS = 100
"""The longest line: a line of ours is recognised by its prefix, its length and its tag (`screens.tag_of`)."""
LATE_SECONDS = ECHO_SECONDS
"""How long to wait for a host to show a line."""
LATE_POLL_SECONDS = 0.25
_LINE = re.compile(rf"[^#\x00-\x1f\x7f]{{1,{LINE_CHARACTERS}}}")
_JOINING = re.compile("[\u200c\u200d\u20dd-\u20e4\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Characters that combine with the one before, with a width that differs between terminals: the line in the composer
could not be compared with the line typed."""


class RemotePanes(Service):
    """A person's remote use of agents' panes: viewing them, answering their hosts' dialogs, typing a line
    (docs/protocol.md, Answering a dialog). `audit` adds a line to the audit log, for every key pressed from
    elsewhere."""

    def __init__(self, session: Session, typist: TmuxNotifier) -> None:
        super().__init__(session)
        self.typist = typist
        self._looks = Memory()
        self._turns: dict[str, threading.Lock] = {}

    def dialog(self, agent: Agent) -> Dialog | None:
        """The dialog that waits in the agent's pane, if a profile describes its choices. One call of tmux."""
        return None if agent.pane_id is None else self.typist.dialog(agent)

    def dialogs(self) -> dict[str, Dialog]:
        """The dialogs that wait, by agent id."""
        found = {agent.id: self.dialog(agent) for agent in self.workspace.registry.active().values()}
        return {agent_id: dialog for agent_id, dialog in found.items() if dialog is not None}

    def undescribed(self, agents: Iterable[Agent]) -> dict[str, Dialog]:
        """The dialogs that wait and no profile describes, by agent id: the rows of the screen."""
        looks = {agent.id: agent for agent in agents if agent.pane_id is not None and self._shows_dialog(agent)}
        found = {
            name: None if self.dialog(agent) is not None else self.typist.asking(agent) for name, agent in looks.items()
        }
        return {name: asked for name, asked in found.items() if asked is not None}

    def _shows_dialog(self, agent: Agent) -> bool:
        host = self.typist.host(agent)
        return host is not None and host[1] == DIALOG

    def unseen(self) -> list[str]:
        """The ids of the agents whose tmux did not answer a moment ago."""
        return [agent.id for agent in self.workspace.registry.active().values() if self._is_silent(agent)]

    def asked(self, agent: Agent) -> Dialog | None:
        """As `dialog`, for somebody who asks about this agent. Raises `TmuxTimeout` if its tmux does not answer."""
        dialog = self.dialog(agent)
        if self._is_silent(agent):
            raise TmuxTimeout(socket_path=agent.socket_path)
        return dialog

    def _is_silent(self, agent: Agent) -> bool:
        return agent.pane_id is not None and self.typist.silent.is_silent(agent.socket_path)

    def answer(self, agent: Agent, dialog_id: str, choice: str, by: Agent, keys: Sequence[str] = ()) -> Answered:
        """Answers the dialog with this id if it is still shown, and audits it; see `TmuxNotifier.answer`. Raises
        `TmuxTimeout` if tmux did not answer before a key was sent."""
        answered = self.typist.answer(agent, dialog_id, choice, keys)
        if (answered.state, answered.reason) == ("refused", TIMEOUT):
            raise TmuxTimeout(socket_path=agent.socket_path)
        if answered.dialog is not None and answered.state != "refused":
            picked = answered.dialog.choice(choice)
            label = picked.label if picked is not None else None
            facts = {"by": by.id, "agent_id": agent.id, **answered.as_answer(), "choice": choice, "label": label}
            self.session.audit("answer", **facts)
        return answered

    def view(self, agent: Agent, *, scrollback: bool = False) -> PaneView | str:
        """The pane's content with colours, else why it cannot be seen. See `view_pane`."""
        if agent.pane_id is None or agent.socket_path is None or not PANE_ID.fullmatch(agent.pane_id):
            return "no_pane"
        pane, pid = Server(agent.socket_path).pane(agent.pane_id), agent.pane_pid
        return self.typist.silent.ask(agent.socket_path, lambda: view_pane(pane, pid, scrollback=scrollback))

    def look(self, agent: Agent, *, scrollback: bool = False) -> tuple[PaneView | str, Dialog | None]:
        """The screen and its dialog, or the scrollback alone; captured every `LOOK_SECONDS` at most, however many
        people look."""
        with self._turns.setdefault(agent.id, threading.Lock()):
            look = partial(self._look, agent, scrollback)
            return self._looks.get((), look, key=(agent.id, scrollback), clock=time.monotonic, good_for=LOOK_SECONDS)

    def _look(self, agent: Agent, scrollback: bool) -> tuple[PaneView | str, Dialog | None]:
        view = self.view(agent, scrollback=scrollback)
        return view, None if isinstance(view, str) or scrollback else self.dialog(agent)

    def type_line(self, agent: Agent, text: str, by: Agent) -> Delivery:
        """Types a person's line, under the doorbell's own conditions and lock: `submitted`; `rung` with the reason why
        it was typed but not entered; or `stored` with the reason why nothing was typed. Raises `InvalidArguments` for
        a line that is empty, too long, or has `#`, control or combining characters."""
        line = unicodedata.normalize("NFC", text).strip()
        if not _LINE.fullmatch(line) or sanitize(line) != line or _JOINING.search(line):
            raise InvalidArguments("bad_line", most=LINE_CHARACTERS)
        with self._bell(agent):
            outcome = self.typist.ring(agent, f"{PREFIX} {line}")
        if outcome.left:
            outcome = self._entered(agent, outcome)
        if outcome.state != "stored":
            self.session.audit("line", by=by.id, agent_id=agent.id, text=text, **outcome.as_answer())
        return outcome

    def _entered(self, agent: Agent, outcome: Delivery) -> Delivery:
        """Waits up to `LATE_SECONDS` for the host to show a line that was typed, and enters it."""
        end = time.monotonic() + LATE_SECONDS
        while time.monotonic() < end:
            time.sleep(LATE_POLL_SECONDS)
            with self._bell(agent):
                now = self.typist.finish(agent)
            if now.state == "submitted":
                return Delivery("submitted")
            if now.reason == LINE_GONE:
                return Delivery("rung", LINE_GONE)
            outcome = Delivery("rung", now.reason, left=True)
        return outcome

    def _bell(self, agent: Agent) -> AbstractContextManager[None]:
        return self.workspace.locks.held(f"doorbell-{agent.id}")
