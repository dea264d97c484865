"""The picture of the live screen: tables fitted to the size of the terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from multi_agent_mcp.cli.watch.rows import Row, heading, tables
from multi_agent_mcp.domain.times import local_zone

if TYPE_CHECKING:
    from multi_agent_mcp.services.attention import Item
    from multi_agent_mcp.services.overview.snapshot import Snapshot
    from multi_agent_mcp.texts import Texts

STATES = {
    "alive": "green",
    "off": "dim",
    "waiting": "yellow",
    "interrupted": "bold red",
    "stuck": "bold red",
}
"""The style of an agent's state, whose text is `watch.{name}` in the catalogue."""
STYLES = {
    "in_progress": "cyan",
    "blocked": "bold red",
    "todo": "",
    "backlog": "dim",
    "read": "green",
    "submitted": "cyan",
    "rung": "cyan",
    "stored": "yellow",
}
"""The style of other cells by their first word, which is a code."""
STYLED = {"state", "task"}
FRAME = 2  # the first line and the last one
LARGEST = {"agent": 24, "assignee": 16, "from_to": 30, "type": 13, "state": 22}


def screen(seen: Snapshot, items: Collection[Item], texts: Texts, height: int) -> RenderableType:
    """Returns the whole picture, at most `height` lines as wide as the terminal; `items` wait for the human."""
    everything = list(tables(seen, items, texts))[: max(height - FRAME, 0)]  # each has a line of head
    wanted = [len(rows) for *_, rows in everything]
    room = height - FRAME - len(everything)
    airy = sum(wanted) + len(everything) + 1 <= room
    parts: list[RenderableType] = [_line(heading(seen, items, texts), "bold")]
    for (title, head, rows), lines in zip(everything, shares(wanted, room), strict=True):
        parts += [Text("")] * airy
        parts.append(_table(texts, title, head, rows, lines))
    parts += [Text("")] * airy
    parts.append(_line(texts("watch.quits", time=f"{seen.at.astimezone(local_zone()):%H:%M:%S}"), "dim"))
    return Group(*parts)


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """Divides `room` lines: each table gets as many as it wants if they suffice, else an equal share."""
    given = [0] * len(wanted)
    for _ in range(max(room, 0)):
        unsatisfied = [index for index, count in enumerate(given) if count < wanted[index]]
        if not unsatisfied:
            break
        given[min(unsatisfied, key=given.__getitem__)] += 1
    return given


def _table(texts: Texts, title: str, head: Row, rows: list[Row], lines: int) -> Table:
    """Returns a table with one line of head and at most `lines` rows, the last with the number of omitted rows."""
    found = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="bold")
    for index, name in enumerate(head):
        last = index == len(head) - 1
        found.add_column(
            Text(texts(f"table.{name}"), style="dim")
            if index
            else Text(texts(f"watch.{title}"), style="bold underline"),
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if last else None,
            max_width=LARGEST.get(name),
            justify="right" if name in ("unread", "for") else "left",
        )
    fits = len(rows) <= lines
    shown = rows if fits else rows[: max(lines - 1, 0)]
    styles = STYLES | {texts(f"watch.{name}"): style for name, style in STATES.items()}
    for row in shown:
        found.add_row(*(_cell(name, cell, styles) for name, cell in zip(head, row, strict=True)))
    if not fits and lines:
        more = texts("watch.more", count=len(rows) - len(shown))
        found.add_row(*(Text(more if index == 0 else "", style="dim") for index in range(len(head))))
    return found


def _cell(name: str, cell: str, styles: Mapping[str, str]) -> Text:
    """Returns a cell as `Text`, not markup, so that `[red]` in an agent's text is shown literally."""
    word = cell.split(maxsplit=1)[0].rstrip(":") if name in STYLED and cell.strip() else ""
    return Text(cell, style=styles.get(word, ""), no_wrap=True, overflow="ellipsis")


def _line(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
