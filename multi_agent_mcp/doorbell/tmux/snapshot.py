"""A snapshot of a pane, by one call of tmux: its facts, its clients' last key, and its screen; and the marker that we
set on it (docs/protocol.md, Typing into a pane); and a pane as a person sees it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.text import width
from multi_agent_mcp.doorbell.tmux.client import Pane, Server, columns_format, number, pane_filter, parse_columns
from multi_agent_mcp.doorbell.tmux.profiles import Profiles, load_profiles, recognise
from multi_agent_mcp.doorbell.tmux.screens import Screen, parsed

MARKER_OPTION = "@ipc_line"
"""The tmux option of the pane that is set in the same command as a paste or a key, whichever process sends it. A host
under load shows neither for a while; its screen alone would invite a second paste or key, which it would then read
together with the first (Slow hosts)."""
ANSWER_OPTION = "@ipc_answer"
"""The option for the last dialog that was answered from elsewhere, with the dialog's id in place of the tag."""
ECHO_SECONDS = 10.0
"""How long a host may take to show a paste. Meanwhile an empty composer proves nothing."""
KEY_SECONDS = 10.0
"""How long a host may take to act on a key. Meanwhile a line that is still shown proves nothing."""
GONE = ("no_pane", "pane_gone", "pane_changed", "tmux_gone", "tmux_restarted", "no_tmux")
"""Results of `probe` that mean that the registered pane no longer exists."""


@dataclass(frozen=True)
class PaneMarker:
    """The last line of ours pasted into a pane: its tag, the process that it was pasted to, the time of the paste or of
    its last key, and the number of keys. The time counts from the machine's start: it is the same for all processes and
    does not move when the clock is set."""

    tag: str
    pane_pid: int
    at: int
    keys: int = 0

    @classmethod
    def parse(cls, text: str) -> PaneMarker | None:
        """Parses the option's value; None if it is not set, or not by us."""
        tag, *values = text.split(":")
        pane_pid, at, keys = map(number, values) if len(values) == 3 else (None, None, None)
        if pane_pid is None or at is None or keys is None:
            return None
        return cls(tag, pane_pid, at, keys)

    def __str__(self) -> str:
        return f"{self.tag}:{self.pane_pid}:{self.at}:{self.keys}"

    def younger_than(self, seconds: float) -> bool:
        return 0 <= machine_time() - self.at < seconds


def machine_time() -> int:
    """Whole seconds since the machine's start."""
    return int(time.monotonic())


_NUMBERS = {
    "pane_pid": "pane_pid",
    "tmux_pid": "pid",
    "height": "pane_height",
    "cursor_x": "cursor_x",
    "cursor_y": "cursor_y",
    "output": "window_activity",
}
_FLAGS = {
    "dead": "pane_dead",
    "in_mode": "pane_in_mode",
    "input_off": "pane_input_off",
    "synchronized": "pane_synchronized",
    "cursor_flag": "cursor_flag",
}
_TEXTS = {
    "pane_id": "pane_id",
    "window_id": "window_id",
    "command": "pane_current_command",
    "marker": MARKER_OPTION,
    "answered": ANSWER_OPTION,
    "title": "pane_title",
}
_COLUMNS = {**_NUMBERS, **_FLAGS, **_TEXTS}
"""The fields of `PaneFacts` and tmux's names for them."""
FACTS_FORMAT = columns_format(_COLUMNS.values())


@dataclass(frozen=True)
class PaneFacts:
    """tmux's variables of a pane at one moment; `output` is when its window last printed (whole seconds since the
    epoch)."""

    pane_pid: int
    tmux_pid: int
    height: int
    cursor_x: int
    cursor_y: int
    output: int
    dead: bool
    in_mode: bool
    input_off: bool
    synchronized: bool
    cursor_flag: bool
    pane_id: str
    window_id: str
    command: str
    marker: str
    answered: str
    title: str

    def refusal(self, agent: Agent) -> str | None:
        """The reason why nothing may be typed, or None. The same conditions as `typing.safe_pane`."""
        reasons = {
            "pane_gone": self.pane_id != agent.pane_id,
            "tmux_restarted": agent.tmux_pid is not None and self.tmux_pid != agent.tmux_pid,
            "pane_changed": agent.pane_pid is not None and self.pane_pid != agent.pane_pid,
            "pane_dead": self.dead,
            "copy_mode": self.in_mode,
            "input_off": self.input_off,
            "synchronized": self.synchronized,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)


def parse_facts(line: str) -> PaneFacts | None:
    """A line of `FACTS_FORMAT`; None for anything else."""
    values = parse_columns(line, tuple(_COLUMNS), _NUMBERS)
    if values is None:
        return None
    return PaneFacts(**values | {flag: values[flag] not in ("", "0") for flag in _FLAGS})


def probe(agent: Agent, profiles: Profiles | None = None) -> str | None:
    """The reason why this agent's pane cannot be rung now, whatever it shows, or None. Types nothing."""
    if agent.pane_id is None or agent.socket_path is None:
        return "no_pane"
    wanted = pane_filter(agent.pane_id)
    found = Server(agent.socket_path).cmd("list-panes", "-a", "-f", wanted, "-F", FACTS_FORMAT)
    if found.failure:
        return found.failure
    if (facts := parse_facts(found.stdout[0]) if found.stdout else None) is None:
        return "pane_gone"
    if (reason := facts.refusal(agent)) is not None:
        return reason
    profile = recognise(agent, facts.pane_pid, profiles or load_profiles())
    return profile if isinstance(profile, str) else None


@dataclass(frozen=True)
class PaneSnapshot:
    """A pane at one moment. `last_key` is when a human last pressed a key in a client that shows the pane (whole
    seconds since the epoch; 0: no client shows it); `activity` is the value of `client_activity` to use in a condition.
    `settled`: the window printed nothing in the second of the snapshot, so any later output changes `facts.output`."""

    facts: PaneFacts
    screen: Screen
    last_key: int
    activity: str
    settled: bool = False


_CLIENT, _SCREEN = "client", "screen"
_CLIENT_FORMAT = f"{_CLIENT}\t#{{window_id}}\t#{{client_activity}}\t#{{client_readonly}}"


def take_snapshot(pane: Pane) -> PaneSnapshot | str:
    """Takes a snapshot, or returns the reason why that is not possible."""
    second, pane_id = int(time.time()), pane.pane_id
    done = pane.server.cmd(
        "list-panes", "-a", "-f", pane_filter(pane_id), "-F", FACTS_FORMAT, ";",
        "list-clients", "-F", _CLIENT_FORMAT, ";",
        "display-message", "-p", "-t", pane_id, f"{_SCREEN}\t#{{client_activity}}", ";",
        "capture-pane", "-e", "-p", "-t", pane_id,
    )  # fmt: skip
    at = next((number for number, line in enumerate(done.stdout) if line.startswith(f"{_SCREEN}\t")), None)
    if at is None:
        return done.failure or "tmux_gone"
    facts = parse_facts(done.stdout[0])
    if facts is None or done.returncode:
        return "pane_gone"
    last_key = _last_key(facts.window_id, done.stdout[1:at])
    activity, screen = done.stdout[at].partition("\t")[2], _screen(facts, done.stdout[at + 1 :])
    return PaneSnapshot(facts, screen, last_key, activity, settled=facts.output < second)


def _screen(facts: PaneFacts, lines: list[str]) -> Screen:
    rows, solid = parsed([*lines, *[""] * (facts.height - len(lines))])
    return Screen(
        rows=rows,
        solid=solid,
        lines=tuple(lines),
        cursor_x=facts.cursor_x,
        cursor_y=facts.cursor_y,
        cursor_flag=facts.cursor_flag,
        title=facts.title,
        dead=facts.dead,
        in_mode=facts.in_mode,
    )


def _last_key(window_id: str, clients: list[str]) -> int:
    """The newest `client_activity` of the clients that show the window, 0 if none does. It changes on human keys, not
    on `send-keys` (docs/protocol.md, Typing into a pane, Human first). Read-only clients do not count."""
    fields = [line.split("\t") for line in clients if line.startswith(f"{_CLIENT}\t")]
    return max(
        (number(field[2]) or 0 for field in fields if field[1] == window_id and field[3:] != ["1"]),
        default=0,
    )


# A pane as a person sees it: its cells with their attributes, and the cursor. Read-only.

SCROLLBACK_ROWS = 2_000
_VIEW_NUMBERS = ("width", "height", "cursor_x", "cursor_y", "cursor_flag", "pane_pid", "history")
_VIEW_COLUMNS = {
    "width": "pane_width",
    "height": "pane_height",
    "cursor_x": "cursor_x",
    "cursor_y": "cursor_y",
    "cursor_flag": "cursor_flag",
    "pane_pid": "pane_pid",
    "history": "history_size",
}


@dataclass(frozen=True)
class Look:
    """The attributes of a cell (ECMA-48, 8.3.117). Colours are `0` to `15` of the terminal's palette, or `#rrggbb`;
    None is the terminal's default."""

    fg: str | None = None
    bg: str | None = None
    bold: bool = False
    faint: bool = False
    italic: bool = False
    underline: bool = False
    inverse: bool = False
    strike: bool = False

    def as_answer(self) -> dict[str, Any]:
        """The attributes that differ from a plain cell's, for JSON."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True)
class PaneView:
    """The content of a pane. `rows` are lists of pieces {text, wide?, fg?, bg?, bold? …}; the letters of a `wide` piece
    take two cells each. `cursor` is (column, row), None while hidden. `history` counts the rows above the screen."""

    width: int
    height: int
    rows: tuple[tuple[dict[str, Any], ...], ...]
    cursor: tuple[int, int] | None
    history: int


def view_pane(pane: Pane, pane_pid: int | None, *, scrollback: bool = False) -> PaneView | str:
    """The pane's current content, with `scrollback` also the newest rows above its screen; else the reason why it
    cannot be seen. One call of tmux."""
    above = ("-S", f"-{SCROLLBACK_ROWS}") if scrollback else ()
    done = pane.server.cmd(
        "list-panes", "-a", "-f", pane_filter(pane.pane_id), "-F", columns_format(_VIEW_COLUMNS.values()), ";",
        "capture-pane", "-e", "-p", *above, "-t", pane.pane_id,
    )  # fmt: skip
    facts = parse_columns(done.stdout[0], tuple(_VIEW_COLUMNS), _VIEW_NUMBERS) if done.stdout else None
    if facts is None or done.returncode:
        closed = any("find pane" in line for line in done.stderr)  # the server is there and has no such pane
        return "pane_gone" if closed else done.failure or "pane_gone"
    if pane_pid is not None and facts["pane_pid"] != pane_pid:
        return "pane_changed"
    lines = [*done.stdout[1:], *[""] * (facts["height"] - len(done.stdout) + 1)]
    shown = facts["cursor_flag"] and not scrollback
    cursor = (facts["cursor_x"], facts["cursor_y"]) if shown else None
    return PaneView(facts["width"], facts["height"], tuple(pieces(lines)), cursor, facts["history"])


_SEQUENCE = re.compile(r"\x1b\[([0-9;:]*)m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;:?]*[A-Za-z]|[\x0e\x0f]")
_DRAWING = str.maketrans("`afgjklmnopqrstuvwxyz{|}~", "◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")
"""DEC's line drawing characters, switched on by SO (0x0e) and off by SI."""
_ON = {"1": "bold", "2": "faint", "3": "italic", "4": "underline", "7": "inverse", "9": "strike"}
_OFF = {"22": ("bold", "faint"), "23": ("italic",), "24": ("underline",), "27": ("inverse",), "29": ("strike",)}
_STEPS = (0, 95, 135, 175, 215, 255)


def pieces(lines: Iterable[str]) -> Iterable[tuple[dict[str, Any], ...]]:
    """Parses the output of `capture-pane -e` into rows of pieces with equal attributes, which carry over from row to
    row, as line drawing does."""
    look, draws = Look(), False
    for line in lines:
        row: list[dict[str, Any]] = []
        at = 0
        for found in _SEQUENCE.finditer(line):
            row += _pieces(line[at : found.start()], look, draws=draws)
            look = _after(look, found[1]) if found[1] is not None else look
            draws = found[0] == "\x0e" if found[0] in "\x0e\x0f" else draws
            at = found.end()
        row += _pieces(line[at:], look, draws=draws)
        yield tuple(row)


def _pieces(text: str, look: Look, *, draws: bool = False) -> list[dict[str, Any]]:
    """Splits text of one look into wide and narrow pieces; a combining mark stays with the letter before it."""
    wide, parts = False, list[tuple[bool, str]]()
    for letter in text.translate(_DRAWING) if draws else text:
        before, taken = wide, width(letter)
        wide = taken == 2 if taken else wide
        if parts and wide == before:
            parts[-1] = (wide, parts[-1][1] + letter)
        else:
            parts.append((wide, letter))
    return [{"text": part, **({"wide": True} if wide else {}), **look.as_answer()} for wide, part in parts]


def _after(look: Look, parameters: str) -> Look:
    """The look after an SGR sequence; unknown codes are ignored."""
    codes = parameters.split(";")
    while codes:
        code = codes.pop(0).partition(":")[0]
        if code in ("", "0"):
            look = Look()
        elif code in _ON:
            look = _with(look, {_ON[code]: True})
        elif code in _OFF:
            look = _with(look, dict.fromkeys(_OFF[code], False))
        elif code in ("38", "48", "58"):
            colour = _colour(codes)
            look = look if code == "58" else _with(look, {"fg" if code == "38" else "bg": colour})
        elif code in ("39", "49"):
            look = _with(look, {"fg" if code == "39" else "bg": None})
        elif (named := _named(code)) is not None:
            look = _with(look, named)
    return look


def _with(look: Look, changed: Mapping[str, Any]) -> Look:
    return replace(look, **changed)


def _named(code: str) -> dict[str, str] | None:
    """The colour of an SGR code: 30–37 and 90–97 for letters, 40–47 and 100–107 for the background."""
    number = int(code) if code.isascii() and code.isdigit() and len(code) < 4 else 0
    for first, target, base in ((30, "fg", 0), (40, "bg", 0), (90, "fg", 8), (100, "bg", 8)):
        if first <= number < first + 8:
            return {target: str(number - first + base)}
    return None


def _colour(codes: list[str]) -> str | None:
    """The colour after 38 or 48; removes its codes from the list."""
    kind = codes[:1]
    taken = [int(code) for code in codes[1 : 2 if kind == ["5"] else 4] if code.isascii() and code.isdigit()]
    del codes[: 2 if kind == ["5"] else 4]
    if kind == ["5"] and len(taken) == 1 and taken[0] < 256:
        return _of_palette(taken[0])
    if kind == ["2"] and len(taken) == 3 and max(taken) < 256:
        return "#" + "".join(f"{part:02x}" for part in taken)
    return None


def _of_palette(number: int) -> str:
    """A colour of xterm's 256: sixteen of the terminal's own, a cube with six steps per axis, greys."""
    if number < 16:
        return str(number)
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    number -= 16
    return "#" + "".join(f"{_STEPS[part]:02x}" for part in (number // 36, number // 6 % 6, number % 6))
