"""Derives the fields of a profile from a program's screens, for `host learn` (docs/hosts.md, Learning a host); no I/O.

Fails closed: only screens like those captured at rest count as idle. Edges, prefix and placeholders of the composer
must match exactly (except digits and widths), and a row below it that was never seen there makes the screen
`unknown`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.text import columns
from multi_agent_mcp.doorbell.tmux.client import PANE_ID, TIMEOUT, Server
from multi_agent_mcp.doorbell.tmux.profiles import ComposerShape, Profile, Profiles, composer_shape, load_profiles
from multi_agent_mcp.doorbell.tmux.screens import BUSY, DRAFT, IDLE, Screen, classify, find_composer
from multi_agent_mcp.doorbell.tmux.snapshot import PaneSnapshot, take_snapshot
from multi_agent_mcp.doorbell.tmux.typing import literal
from multi_agent_mcp.errors import InvalidArguments, Reason, Refusal, TmuxTimeout
from multi_agent_mcp.hosts import PLAIN
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.system.process import Foreground, foreground

# Screens of known hosts that no profile describes, saved so that the profile can be corrected without a release.

MOST_SAVED = 50
_LAST_ROWS = 12


class UnknownScreens:
    """Saves redacted screens as `{session}/unknown_screens/{host}-{shape}.txt`, one per shape, fifty at most."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path

    def save(self, host: str, screen: Screen) -> None:
        """Saves a screen. Never raises: a failure here must not prevent a message from being stored."""
        name = f"{host}-{_fingerprint(screen)}.txt"
        facts = f"host={host} cursor={screen.cursor_x},{screen.cursor_y} cursor_flag={int(screen.cursor_flag)}"
        text = f"{facts} title={shape_of([screen.title])}{shape_of(screen.rows)}"
        with suppress(FileExistsError, Refusal):
            saved = self.files.names(self.path)
            if name not in saved and len(saved) < MOST_SAVED:
                self.files.create(self.path / name, text.encode(), sync=False)


def _fingerprint(screen: Screen) -> str:
    """A hash that is equal for screens that differ only in the lengths of words or in rows above the last twelve."""
    rows = [row for row in shape_of(screen.rows).splitlines() if row.strip()][-_LAST_ROWS:]
    pattern = "\n".join(re.sub(r"(.)\1+", r"\1", re.sub(r"[x9]+", "x", row)) for row in rows)
    return hashlib.sha256(pattern.encode()).hexdigest()[:12]


def shape_of(rows: Iterable[str]) -> str:
    """The layout of a screen without its words: letters become `x`, digits `9`; rules, boxes and punctuation stay."""
    text = "\n".join("".join(map(_redacted, row)).rstrip() for row in rows)
    return text.strip("\n") + "\n"


def _redacted(character: str) -> str:
    if character.isnumeric():
        return "9"
    return "x" if character.isalpha() else character


# A program without a profile in an agent's pane: its name and its screen. Types nothing.


@dataclass(frozen=True)
class UnknownProgram:
    """A program without a profile. `name` is its name for a profile's `commands`; `directory` is where profiles go."""

    agent: Agent
    name: str
    identities: tuple[str, ...]
    profiles: Profiles
    directory: Path

    @classmethod
    def in_pane_of(cls, agent: Agent, directory: Path) -> Self:
        """The program in the agent's pane. Raises `InvalidArguments` for a pane that does not exist, a program that is
        never typed into, and a host that has a profile; `TmuxTimeout`."""
        profiles = load_profiles(directory)
        _, seen = _look(agent)
        if os.getpid() in {process.pid for process in seen.readers}:
            raise _refused(Reason("learn_here"))
        for process in seen.readers:
            if profiles.forbids(process, ()) is not None:
                raise _refused(Reason("learn_never", program=process.name or process.executable))
        described = profiles.describing(agent, seen)
        if described is not None and described.name != PLAIN:
            raise _refused(Reason("learn_described", host=described.name))
        name = profiles.program(seen.leader)
        if name is None:
            raise _refused(Reason("learn_nameless"))
        return cls(agent, name, tuple(seen.identities), profiles, directory)

    def capture(self) -> Screen:
        """The program's current screen. Raises `InvalidArguments` when another program or no pane is there."""
        snapshot, seen = _look(self.agent)
        if not set(self.identities) <= set(seen.identities):
            raise _refused(Reason("learn_changed"))
        return snapshot.screen


def _look(agent: Agent) -> tuple[PaneSnapshot, Foreground]:
    if agent.pane_id is None or agent.socket_path is None or not PANE_ID.fullmatch(agent.pane_id):
        raise _refused(Reason("learn_pane", reason="no_pane"))
    snapshot = take_snapshot(Server(agent.socket_path).pane(agent.pane_id))
    if snapshot == TIMEOUT:
        raise TmuxTimeout(socket_path=agent.socket_path)
    if isinstance(snapshot, str):
        raise _refused(Reason("learn_pane", reason=snapshot))
    if (reason := snapshot.facts.refusal(agent)) is not None:
        raise _refused(Reason("learn_pane", reason=reason))
    if (seen := foreground(snapshot.facts.pane_pid)) is None:
        raise _refused(Reason("learn_nameless"))
    return snapshot, seen


def _refused(reason: Reason) -> InvalidArguments:
    return InvalidArguments("not_learned", reason=reason)


STEPS = (IDLE, DRAFT, BUSY, "dialog", "rest")
"""The states that the user shows, in this order; `rest` is `idle` once more, after some work."""
DRAFT_TEXT = "half a sentence"
"""The text that the user types into the composer; its position tells the prefix and the edges."""
PAUSE_SECONDS = 0.5
"""The pause between a paste and its key: more than any host is known to need."""
SIGNS, DIALOG_ROWS = 5, 6
_PHRASE = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")
_SHORTEST_PHRASE = 4
_PART = re.compile(r"([^\w\s])\1{9,}|[ \u00a0]{2,}|[0-9]+|.")
_BLANK = "^ *$"

Screens = Mapping[str, Sequence[Screen]]
"""The screens captured in each step so far, one or several per step."""


class Unlearnable(Exception):
    """Raised when the states cannot be distinguished by these screens."""

    def __init__(self, key: str) -> None:
        self.reason = Reason(key)
        super().__init__(self.reason)


@dataclass(frozen=True)
class Row:
    """The cursor's row of a composer: the prefix before the typed text, and the rest of the row after it."""

    prefix: str
    behind: str

    @property
    def is_framed(self) -> bool:
        """Whether the prefix begins with the side of a box."""
        side = self.prefix.strip()[0]
        return side == "|" or "\u2500" <= side <= "\u259f"


def prefix(screens: Screens) -> str:
    """The prefix before the composer's text. Raises `Unlearnable`."""
    return _row(screens[IDLE][0], screens[DRAFT][0]).prefix.strip()


def composer_fields(screens: Screens) -> dict[str, Any]:
    """The profile's field `composer`, from the screens at rest and with the draft. Raises `Unlearnable`."""
    idle, draft = screens[IDLE][0], screens[DRAFT][0]
    row = _row(idle, draft)
    top, bottom = _edges(idle, row)
    before = row.prefix.strip()
    column = columns(row.prefix) - (len(row.prefix) - len(row.prefix.lstrip()))
    fields: dict[str, Any] = {"above": _pattern(idle.rows[top]), "prompt": _prompt(row), "column": column}
    fields["below"] = _lower_edge(idle.rows[bottom]) if row.is_framed else _pattern(idle.rows[bottom])
    if row.is_framed:
        fields["frame"] = [idle.cursor_y - top - 1, bottom - idle.cursor_y - 1]
    at_rest = [*screens[IDLE], *screens.get("rest", ())]
    if len({screen.cursor_flag for screen in (*at_rest, draft)}) == 1:
        fields["cursor_flag"] = idle.cursor_flag
    side = before[0] if row.is_framed else ""
    shown = [screen.rows[screen.cursor_y].partition(before)[2].strip().removesuffix(side).strip() for screen in at_rest]
    fields |= {
        "placeholder_faint": False,  # told by their words: a suggestion in the same grey is no placeholder
        "placeholder_required": all(shown),
        "placeholders": [generalised(text) for text in dict.fromkeys(filter(None, shown))],
    }
    return fields


def busy_signs(screens: Screens) -> list[str]:
    """Phrases that every busy screen shows and no other screen does; those near the composer first."""
    frames = screens[BUSY]
    others = "\n".join(row for screen in _others(screens, BUSY) for row in screen.rows)
    first = frames[0]
    found = {
        phrase: abs(number - first.cursor_y)
        for number, row in enumerate(first.rows)
        for phrase in _PHRASE.findall(row)
        if len(phrase) >= _SHORTEST_PHRASE and phrase not in others
        if all(any(phrase in line for line in frame.rows) for frame in frames)
    }
    return sorted(found, key=lambda phrase: (found[phrase], -len(phrase)))[:SIGNS]


def busy_titles(screens: Screens) -> str | None:
    """A pattern for the pane's title while the program works; None if the title's first character does not tell."""
    working = {screen.title[:1] for screen in screens[BUSY]}
    resting = {screen.title[:1] for screen in _others(screens, BUSY)}
    if working & resting or any(sign.isalnum() or not sign.strip() for sign in working):
        return None
    if all("\u2801" <= sign <= "\u28ff" for sign in working):
        return "^[\u2801-\u28ff]"
    return f"^({'|'.join(sorted(map(literal, working)))})"


def dialog_rows(screens: Screens) -> list[str]:
    """The lowest rows with words that only the dialog shows."""
    known = {generalised(row) for screen in _others(screens, "dialog") for row in screen.rows}
    rows = dict.fromkeys(row for screen in screens["dialog"] for row in screen.rows if _PHRASE.search(row))
    return [row for row in rows if generalised(row) not in known][-DIALOG_ROWS:]


def profile_fields(screens: Screens, program: str, key: str, sign: str | None) -> dict[str, Any]:
    """All fields of the profile, once every step was shown. Raises `Unlearnable`."""
    composer = composer_fields(screens)
    rows = [f"^{generalised(row)}$" for row in dialog_rows(screens)]
    busy = {"title": busy_titles(screens), "screen": None if sign is None else literal(sign)}
    gates = [*rows, *filter(None, [busy["screen"]])]
    return {
        "commands": [literal(program)],
        "submit": {IDLE: [key], BUSY: []},
        "pause_seconds": PAUSE_SECONDS,
        "composer": composer,
        "views": list(_views(composer_shape(composer), rows, screens)),
        "busy": {name: pattern for name, pattern in busy.items() if pattern is not None},
        "gates": gates,
    }


def verdicts(profile: Profile, screens: Screens) -> dict[str, str]:
    """The state that the profile assigns to each step's screens. If they differ, `idle`, the most dangerous to assign
    wrongly, else the alphabetically first."""
    found = {step: {classify(profile, screen).state for screen in screens[step]} for step in screens}
    return {step: IDLE if IDLE in states else min(states) for step, states in found.items()}


def confused(found: Mapping[str, str]) -> str | None:
    """The first step whose screens are misjudged, or None. Busy screens and dialogs need not be recognised as such, as
    long as nothing would be typed into them."""
    right: Mapping[str, Collection[str]] = {IDLE: {IDLE}, "rest": {IDLE}, DRAFT: {DRAFT}}
    wrong: Mapping[str, Collection[str]] = {BUSY: {IDLE}, "dialog": {IDLE, BUSY}}
    for step, state in found.items():
        if state not in right.get(step, {state}) or state in wrong.get(step, ()):
            return step
    return None


def generalised(row: str) -> str:
    """A POSIX extended regular expression for rows like this one: numbers and widths of rules and gaps may differ."""
    return "".join(map(_general, _PART.finditer(row.rstrip())))


def _general(part: re.Match[str]) -> str:
    text = part[0]
    if part[1] is not None:
        return f"{literal(part[1])}{{10,}}"
    if text.isspace() and len(text) > 1:
        return "[ \u00a0]+"
    return "[0-9]+" if re.fullmatch("[0-9]+", text) else literal(text)


def _row(idle: Screen, draft: Screen) -> Row:
    prefix, found, behind = draft.rows[draft.cursor_y].partition(DRAFT_TEXT)
    if not found or columns(prefix) + len(DRAFT_TEXT) != draft.cursor_x:
        raise Unlearnable("learn_draft")
    if not prefix.strip():
        raise Unlearnable("learn_prefix")
    row = Row(prefix, behind.strip())
    if behind.strip() != (row.prefix.strip()[0] if row.is_framed and behind.strip() else ""):
        raise Unlearnable("learn_beside")
    if idle.cursor_x != columns(prefix) or not idle.rows[idle.cursor_y].startswith(prefix.rstrip()):
        raise Unlearnable("learn_idle")
    return row


def _edges(idle: Screen, row: Row) -> tuple[int, int]:
    """The rows above and below the composer at rest. A box extends as far as its side. Raises `Unlearnable`."""
    top, bottom = idle.cursor_y - 1, idle.cursor_y + 1
    if row.is_framed:
        side = row.prefix.rstrip()[: len(row.prefix) - len(row.prefix.lstrip()) + 1]
        while top >= 0 and idle.rows[top].startswith(side):
            top -= 1
        while bottom < len(idle.rows) and idle.rows[bottom].startswith(side):
            bottom += 1
    if top < 0 or bottom >= len(idle.rows):
        raise Unlearnable("learn_edges")
    return top, bottom


def _prompt(row: Row) -> str:
    """The pattern of the prompt. In a box each row begins with its side, only the first with the rest of the prefix."""
    opening = row.prefix.rstrip()
    blanks = f"[ \u00a0]{{0,{len(row.prefix) - len(opening)}}}"
    if not row.is_framed:
        return f"^{literal(opening)}{blanks}"
    at = len(opening) - len(opening.lstrip()) + 1
    inner = f"({literal(opening[at:])})?" if opening[at:] else ""
    return f"^{literal(opening[:at])}{inner}{blanks}"


def _pattern(row: str) -> str:
    return f"^{generalised(row)}$" if row.strip() else _BLANK


def _lower_edge(row: str) -> str:
    """The pattern of a box's lower edge up to the end of its rule, where the box ends, too."""
    whole = generalised(row)
    rule, found, _ = whole.rpartition("{10,}")
    return f"^{rule}{found}" if found else f"^{whole}$"


def _views(shape: ComposerShape, rows: list[str], screens: Screens) -> Iterator[dict[str, str]]:
    """The views: the dialog, and as `unknown` every screen with a row below the composer that was not seen there."""
    if rows:
        words = "|".join(rows)
        yield {"state": "dialog", "text": words}
        if any(find_composer(shape, screen) for screen in screens["dialog"]):
            yield {"state": "dialog", "above": words}
    known = dict.fromkeys(map(generalised, _rows_below(shape, _others(screens, "dialog"))))
    yield {"state": "unknown", "text": f"^(?!({'|'.join(known)})$).*[^ ]"}


def _rows_below(shape: ComposerShape, screens: Iterable[Screen]) -> Iterator[str]:
    for screen in screens:
        composer = find_composer(shape, screen)
        below = screen.rows[composer.last + 1 :] if composer is not None else ()
        yield from (row for row in below if row.strip())


def _others(screens: Screens, step: str) -> Iterator[Screen]:
    """The screens of every other step."""
    for name, captured in screens.items():
        if name != step:
            yield from captured
