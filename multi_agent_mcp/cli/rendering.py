"""How commands print for people: tables that fit the terminal, times as people say them, ids by their first digits.

In a terminal a table is laid out for its width, by rich: less important columns give way, and where even that does not
suffice, each row becomes a few lines. Into a pipe it goes whole, in plain aligned columns with whole ids, for grep(1)
and cut(1). Every cell is sanitized, as an agent may have written it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from multi_agent_mcp.domain.text import KEPT, columns, one_line, sanitize, shortened
from multi_agent_mcp.domain.times import duration_words, in_zone, local_zone, moment_in_words, parse_time
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from multi_agent_mcp.features import Features
    from multi_agent_mcp.services.team.approvals import Approval

Item = TypeVar("Item")

ROOMY, NARROW = 100, 28
"""How wide a terminal has to be for cells of `LARGEST` columns, and the most columns of a cell in others."""


class Painted(str):
    """A line of ours that was sanitized and may hold colours: it is printed as it is."""

    __slots__ = ()


class Styled(str):
    """A cell or a line with a style of rich, which a pipe does not get."""

    style: str

    def __new__(cls, text: str, style: str) -> Styled:
        made = super().__new__(cls, text)
        made.style = style
        return made


def together(words: str) -> str:
    """A label and its value, which a terminal gets on one line."""
    return words.replace(" ", KEPT) if is_terminal() else words


def is_terminal() -> bool:
    """Whether standard output is read by a person now, not by a program."""
    return sys.stdout.isatty()


# Words for times, lengths, ids and states.

_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_ENTITY_ID = re.compile(
    r"\b(?:[a-z]{3,4}_(?P<ours>[0-9a-f]{8})[0-9a-f]{4}|(?P<mail>[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f-]{22})\b"
)
STATUS_STYLES = {
    **dict.fromkeys(("in_progress", "active", "running", "rung", "submitted"), "cyan"),
    **dict.fromkeys(("blocked", "failed", "died"), "bold red"),
    **dict.fromkeys(("pending", "stored"), "yellow"),
    "review": "magenta",
    **dict.fromkeys(("done", "completed", "ended", "read", "backlog", "cancelled"), "dim"),
}


def status_words(status: str, texts: Texts) -> Styled:
    """A status as the language says it, coloured; see `words_of_code`."""
    return Styled(words_of_code("state", status, texts), STATUS_STYLES.get(status, ""))


def words_of_code(kind: str, code: str, texts: Texts) -> str:
    """What the language says for a code, the text `{kind}.{code}`; the code itself in a pipe, where programs look for
    it, and if it is unknown, from a hand-written file."""
    return one_line(texts.word(kind, code) if is_terminal() else code)


def ago(moment: datetime | None, now: datetime, texts: Texts) -> str:
    """The time since a moment, in one unit; `now` if it is less than a second, `-` if the moment is unknown."""
    if moment is None:
        return "-"
    length = now - moment
    return texts("ago.now") if length < timedelta(seconds=1) else duration_words(length, texts)


def local_words(moment: datetime, now: datetime, texts: Texts) -> str:
    """A moment by the local clock, as `moment_in_words`."""
    return moment_in_words(moment, now, local_zone(), texts)


def local_time(value: object, texts: Texts) -> str:
    """A value of a field for people: a time, as it is in files, by the local clock to the second, with its zone;
    anything else as it is."""
    if isinstance(value, str) and value[-1:] == "Z" and value[10:11] == "T" and (moment := parse_time(value)):
        there = in_zone(moment, local_zone())
        return texts("time.exact", at=f"{there:%Y-%m-%d %H:%M:%S}", zone=there.tzname() or "UTC")
    return str(value)


def moment_words(value: str, now: datetime, texts: Texts) -> str:
    """A value of a field in a cell: a time as `local_words` in a terminal, else as `local_time` says it."""
    moment = parse_time(value) if is_terminal() else None
    return local_time(value, texts) if moment is None else local_words(moment, now, texts)


def local_times(text: str, texts: Texts) -> str:
    """A sentence whose times are said by the local clock; in a pipe, as it is."""
    return _TIME.sub(lambda found: local_time(found[0], texts), text) if is_terminal() else text


def size_words(size: int) -> str:
    """A number of bytes as people say it, `84 KB`; in a pipe in megabytes."""
    if not is_terminal() or size >= 1_000_000:
        return f"{size / 1e6:.1f} MB"
    return f"{size / 1e3:.0f} KB"


def short_id(text: str) -> str:
    """A text in which each id is shown by its first eight digits, which every command takes."""
    return _ENTITY_ID.sub(lambda found: found["ours"] or found["mail"], text)


# Rows that say the same of different things.


def subjects_words(subjects: Sequence[str], texts: Texts, *, named: int = 2, room: int = NARROW) -> str:
    """The names of several things, the first few of many: `worker-a, worker-b, worker-c and 379 more`; so few that all
    of it has room, by default in a cell of a narrow table, as a number that is cut would be another one."""
    distinct = list(dict.fromkeys(subjects))
    if len(distinct) <= named + 1:
        return ", ".join(distinct)
    words = partial(texts, "fold.more", count=len(distinct) - named)
    said = words(names=", ".join(distinct[:named]))
    if columns(said) <= room:
        return said
    if named > 1:
        return subjects_words(subjects, texts, named=named - 1, room=room)
    return words(names=shortened(distinct[0], room - columns(words(names=""))))


def shortened_pair(words: str, most: int) -> str:
    """`sender → receiver` in so many columns, so that the beginnings of both are to be seen."""
    first, arrow, second = words.partition(" → ")
    room = most - columns(arrow)
    if not arrow or columns(words) <= most or room < 2:
        return shortened(words, most)
    left = min(columns(first), max(room // 2, room - columns(second)))
    return shortened(first, left) + arrow + shortened(second, room - left)


def alike(words: str, *names: str) -> str:
    """What a sentence says apart from numbers, ids and these names: equal for rows that say the same."""
    for name in filter(None, names):
        words = words.replace(name, "#")
    return re.sub(r"[a-z]{3,4}_[0-9a-f]{12}|\d+", "#", words)


def folded(items: Iterable[Item], key: Callable[[Item], object], *, most: int = 3) -> list[list[Item]]:
    """Groups the items by this key in their order; groups of at most `most` are taken apart again."""
    groups: dict[object, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    parts = ([group] if len(group) > most else [[item] for item in group] for group in groups.values())
    return [part for found in parts for part in found]


# Tables.

WORDS = frozenset(
    {
        "title",
        "words",
        "says",
        "purpose",
        "reason",
        "finding",
        "repair",
        "note",
        "now",
        "command",
        "question",
        "path",
        "patterns",
        "doing",
        "runs",
        "agents",
    }
)
"""The columns of free text, which take the room that the others leave."""
WRAPPED = frozenset({"now", "note", "reason", "question", "says", "runs", "agents"})
"""The columns of free text that go on in the next line instead of being cut."""
WHOLE = WRAPPED - {"says", "runs"}
"""Of these, those for which each row becomes a few lines where there is little room."""
COMMANDS = frozenset({"command"})
"""The columns with something to copy: never cut, never wrapped."""
GIVE_WAY = (
    *("until_submitted", "until_rung", "pid", "priority", "calls", "lead"),
    *("type", "messages", "received", "parent"),
)
"""The columns that are left out where there is no room for all, in this order."""
NUMBERS = frozenset(
    {
        *("unread", "progress", "messages", "calls", "sent", "received", "done"),
        *("files", "size", "for", "ago", "ahead", "behind", "changes", "queued", "conflicts"),
        *("input", "output", "cache_read", "cache_write", "cost"),
    }
)
"""The columns whose cells are aligned to the right."""
NAMED = frozenset({"delivered", "directory", "alive"})
"""The columns whose cells say nothing without their title, which each gets where a row becomes a few lines; so does
every number: `179  0  1 h` says nothing."""
_NUMBER, UNKNOWN = re.compile(r"[\W_]*\d"), "?"
LARGEST, EASY_LEAST, LEAST = 32, 28, 16
"""The most columns of a cell that is no free text, and the least of one that is: before others give way, and at all."""
EASY, TITLE = 40, 24
"""How wide text has to be that goes on in the next line, and a title that does not."""
GAP = 2
SENTENCES = COMMANDS | {"finding", "repair"}
"""The columns of text that is ours, in which ids are shortened."""
INDENT = "   "


def titled_table(texts: Texts, names: Iterable[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yields a table with column titles in the session's language."""
    names = list(names)
    heads = [texts(f"table.{name}") for name in names]
    cells = [[_sanitized(cell) for cell in row] for row in rows]
    if not is_terminal():
        return _aligned([heads, *cells])
    return chain(_laid_out(names, heads, cells), [] if cells else [Styled(texts("table.empty"), "dim")])


def column_table(texts: Texts, items: Iterable[Item], columns: Mapping[str, Callable[[Item], object]]) -> Iterator[str]:
    """Yields a table of items; `columns` maps each column's name to the function that makes an item's cell."""
    return titled_table(texts, columns, [[cell(item) for cell in columns.values()] for item in items])


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields a plain table of sanitized cells with aligned columns, suitable for `grep` and `cut`; every row is one
    line."""
    sizes = [[columns(cell) for cell in row] for row in rows]
    widths = [max(column) for column in zip(*sizes, strict=True)]
    for row, taken in zip(rows, sizes, strict=True):
        cells = zip(row, taken, widths, strict=True)
        yield "  ".join(cell + " " * (width - size) for cell, size, width in cells).rstrip()


def _sanitized(cell: object) -> str:
    words = one_line(str(cell))
    return Styled(words, cell.style) if isinstance(cell, Styled) else words


def _laid_out(names: list[str], heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Yields a table for this terminal."""
    there = _console().width
    most = LARGEST if there >= ROOMY else NARROW
    entries, rows = rows, [[_shown(name, cell, most) for name, cell in zip(names, row, strict=True)] for row in rows]
    widths = _widths(names, heads, rows)
    kept = list(names)
    for name in GIVE_WAY:
        if _needed(kept, widths, EASY_LEAST) > there and name in kept:
            kept.remove(name)
    free = [name for name in kept if name in WORDS and widths[name] > LEAST]
    fits = sum(widths[name] + GAP for name in kept) - GAP <= there
    others = sum(widths[name] for name in kept if name not in free) + GAP * (len(kept) - 1)
    room = max((there - others) // max(len(free), 1), LEAST)
    least = {**dict.fromkeys(COMMANDS, there), **dict.fromkeys(WHOLE, EASY), "title": TITLE}
    is_cut = len(free) > 1 or any(room < least.get(name, 0) for name in free)
    if rows and not fits and (is_cut or _needed(kept, widths) > there):
        whole = [[_shown(name, cell, there) for name, cell in zip(names, row, strict=True)] for row in entries]
        yield from _entries([name for name in names if name in kept], names, heads, whole, there)
        return
    yield from _table({name: names.index(name) for name in kept}, heads, rows, dict.fromkeys(free, room))


def _shown(name: str, cell: str, most: int) -> str:
    if name in SENTENCES:
        return short_id(cell)
    if name in WORDS:
        return cell
    if name == "progress" and len(words := cell.split(" ")) > 1:  # a bar; the bars of a column stand above each other
        return f"{words[0]} {words[1]:>4}"
    short = (shortened_pair if name == "from_to" else shortened)(short_id(cell), most)
    return Styled(short, cell.style) if isinstance(cell, Styled) else short


def _widths(names: Sequence[str], heads: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, int]:
    cells = zip(heads, *rows, strict=True)
    return {name: max(map(columns, column)) for name, column in zip(names, cells, strict=True)}


def _needed(kept: Sequence[str], widths: Mapping[str, int], text: int = LEAST) -> int:
    """The columns that a table needs at least, with free text cut to `text`."""
    least = (min(widths[name], text) if name in WORDS else widths[name] for name in kept)
    return sum(least) + GAP * (len(kept) - 1)


def _table(
    places: Mapping[str, int], heads: Sequence[str], rows: Iterable[Sequence[str]], room: Mapping[str, int]
) -> Iterator[str]:
    """Yields these columns, each row on one line; `room` limits the free text."""
    from rich.table import Table  # rich takes 40 ms to import

    made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for name, place in places.items():
        made.add_column(
            _text(heads[place], "bold dim"),
            no_wrap=name not in WRAPPED,
            overflow="fold" if name in WRAPPED else "ellipsis",
            max_width=room.get(name),
            justify="right" if name in NUMBERS else "left",
        )
    for row in rows:
        made.add_row(*(_text(_cut(name, row[place], room)) for name, place in places.items()))
    yield from _rendered(made)


def _cut(name: str, cell: str, room: Mapping[str, int]) -> str:
    """Cuts free text where it ends: rich pads a wide character that does not fit before it sets its ellipsis."""
    if name in WRAPPED or name not in room or isinstance(cell, Styled):
        return cell
    if name == "path" and columns(cell) > room[name]:  # the file's name is at its end
        return shortened(cell[::-1], room[name])[::-1]
    return shortened(cell, room[name])


def _entries(
    kept: Sequence[str], names: Sequence[str], heads: Sequence[str], rows: Iterable[Sequence[str]], there: int
) -> Iterator[str]:
    """Yields each row as a line of its short cells, then its free text, wrapped and indented, and what helps."""
    from rich.padding import Padding

    is_airy = any(name in WORDS for name in kept)
    for number, row in enumerate(rows):
        cells = {name: row[names.index(name)] for name in kept}
        short = [name for name in kept if name not in WORDS and cells[name] not in ("", "-")]
        if short:  # else the row belongs to the one before
            yield from ([Painted("")] if number and is_airy else [])
            yield from _short_cells({name: (heads[names.index(name)], cells[name]) for name in short}, there)
        for name in (name for name in kept if name in WORDS and cells[name] not in ("", "-")):
            if name in COMMANDS:
                yield from _rendered(_text(f"{INDENT}→ {cells[name]}", "cyan"), max(there, columns(cells[name]) + 8))
            else:
                words = _text(cells[name], "dim" if name == "repair" else "")
                yield from _rendered(Padding(words, (0, 0, 0, len(INDENT))), there)


def _short_cells(cells: Mapping[str, tuple[str, str]], there: int) -> Iterator[str]:
    """Yields these cells, each with its title if it says nothing without, on as few lines as have room for them."""
    line = _text("")
    for name, (head, cell) in cells.items():
        said = _text("")
        if name in NAMED or (line.plain and (cell == UNKNOWN or _NUMBER.match(cell))):
            said.append(f"{head} ", "dim")
        said.append(cell, getattr(cell, "style", "") or ("" if line.plain else "bold"))
        if line.plain and line.cell_len + GAP + said.cell_len > there:
            yield from _rendered(line, there)
            line = _text(INDENT)
        elif line.plain:
            line.append(" " * GAP)
        line.append_text(said)
    yield from _rendered(line, there)


def wrapped(line: str) -> Iterator[str]:
    """Yields a line in as many as this terminal needs for it: see `cli/flow.py`."""
    from multi_agent_mcp.cli.flow import flow

    for part in flow(_text(sanitize(line), getattr(line, "style", "")), _console().width):
        yield from _rendered(part)


def _text(words: str, style: str = "") -> Text:
    """`Text`, not markup, so that `[red]` in an agent's text is shown literally."""
    from multi_agent_mcp.cli.flow import Flowing

    return Flowing(words, style=getattr(words, "style", "") or style)


def _rendered(what: object, width: int | None = None) -> Iterator[str]:
    from rich.console import Group

    console = _console(width)
    with console.capture() as captured:
        console.print(Group(what))  # type: ignore[arg-type]
    return (Painted(line.rstrip()) for line in captured.get().rstrip("\n").split("\n"))


def _console(width: int | None = None) -> Console:
    """The terminal, as rich knows it: its width from COLUMNS (environ(7)) or the kernel, no colours with NO_COLOR."""
    from rich.console import Console

    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


COLOURED = 200_000
"""So many characters of a diff get colours: the rest of a large one would take seconds."""


def print_diff(text: str) -> bool:
    """Prints unified text in a terminal, with colours up to a bound, and returns whether all of it has them. What a
    terminal would obey, or hide text by, is replaced; the end of a line that is not only a line feed is to be seen."""
    from rich.syntax import Syntax

    shown = sanitize(text.removesuffix("\n").replace("\r\n", "␍\n"))
    end = len(shown) if len(shown) <= COLOURED else shown.rfind("\n", 0, COLOURED) + 1 or COLOURED
    first, rest = shown[:end].removesuffix("\n"), shown[end:]
    _console().print(Syntax(first, "diff", theme="ansi_dark", background_color="default", word_wrap=True))
    if rest:
        sys.stdout.write(f"{rest}\n")
    return not rest


def since(start: datetime, at: datetime | None) -> str:
    """Returns the time from `start` to `at`, in milliseconds; `-` for None."""
    return "-" if at is None else f"{(at - start).total_seconds() * 1000:.0f} ms"


def approval_line(approval: Approval, features: Features, texts: Texts) -> str:
    """Whether a person has approved what decides, and what helps if not."""
    from multi_agent_mcp.services.team.approvals import decided  # here: few commands need it

    if approval.state == "approved":
        return texts("checks.approved", by=approval.by, at=local_time(str(approval.at), texts))
    return texts(f"{decided(features)}.state.{approval.state}", names=", ".join(approval.changed))


def change_lines(changes: Iterable[tuple[str, Any, Any]]) -> Iterator[str]:
    """What changes in what decides, a line for each key: its value, whole, after what it was."""
    for key, before, value in changes:
        was, now = (json.dumps(one, ensure_ascii=False) if one else "-" for one in (before, value))
        yield "  " + one_line(f"{key}: {now}" if was == "-" else f"{key}: {was} → {now}")
