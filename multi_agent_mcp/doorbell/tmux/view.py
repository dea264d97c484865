"""A pane as a person sees it: its cells with their attributes, and the cursor. Read-only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from multi_agent_mcp.domain.text import width
from multi_agent_mcp.doorbell.tmux.client import Tmux, columns_format, pane_filter, parse_columns

SCROLLBACK_ROWS = 2_000
_NUMBERS = ("width", "height", "cursor_x", "cursor_y", "cursor_flag", "pane_pid", "history")
_COLUMNS = {
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


def view_pane(server: Tmux, pane_id: str, pane_pid: int | None, *, scrollback: bool = False) -> PaneView | str:
    """The pane's current content, with `scrollback` also the newest rows above its screen; else the reason why it
    cannot be seen. One call of tmux."""
    above = ("-S", f"-{SCROLLBACK_ROWS}") if scrollback else ()
    done = server.cmd(
        "list-panes", "-a", "-f", pane_filter(pane_id), "-F", columns_format(_COLUMNS.values()), ";",
        "capture-pane", "-e", "-p", *above, "-t", pane_id,
    )  # fmt: skip
    facts = parse_columns(done.stdout[0], tuple(_COLUMNS), _NUMBERS) if done.stdout else None
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
_FLAGS = {"1": "bold", "2": "faint", "3": "italic", "4": "underline", "7": "inverse", "9": "strike"}
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
        elif code in _FLAGS:
            look = _with(look, {_FLAGS[code]: True})
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
