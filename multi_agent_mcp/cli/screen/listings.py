"""What the screen shows: the lists of `watch`, each row with what it is about, and the particulars of one row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from rich.text import Text

from multi_agent_mcp.cli import watch
from multi_agent_mcp.cli.looking import entity_lines
from multi_agent_mcp.cli.rendering import Painted, Styled, local_times, shortened_pair
from multi_agent_mcp.cli.screen.actions import Subject
from multi_agent_mcp.domain.text import columns, display_id, one_line, sanitize, shortened
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.glance import line_of

if TYPE_CHECKING:
    from multi_agent_mcp.cli.watch import Row
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.attention import Item
    from multi_agent_mcp.services.glance import GlancePart
    from multi_agent_mcp.services.overview.snapshot import Snapshot
    from multi_agent_mcp.texts import Texts
    from multi_agent_mcp.wiring import Services


def comparable(text: str) -> str:
    """A text as it is compared: without regard to case and width."""
    return normalize("NFKC", text).casefold()


_BLANK = re.compile(r"\s")
GAP = 2
LARGEST = 22
LEAST, READABLE = 8, 14
"""The least columns of a cell, and those that the last one, which is words, has at least if others can give way."""
LEASTS = {"progress": 4}
GIVE_WAY = ("for", "type", "unread")
"""The columns that are left out where there is no room for all, in this order; the particulars have them."""
GOOD_FOR = timedelta(minutes=1)
"""How long what was read is shown although nothing changes: time itself makes agents stuck."""


@dataclass(frozen=True, eq=False)
class Listing:
    """A list: its name, which has the title `watch.{name}`, its columns, what each row is about, and what makes a row.
    Rows are made when the list is shown."""

    name: str
    columns: Row
    subjects: Sequence[Subject | None]
    make: Callable[[int], Row]

    @cached_property
    def rows(self) -> list[Row]:
        return [self.make(number) for number in range(len(self.subjects))]

    def position(self, subject: Subject | None) -> int | None:
        """Where the row about the same thing is now; None if it is gone."""
        return None if subject is None else self._places.get(subject.id)

    def narrowed(self, words: str) -> Listing:
        """Only the rows that have all these words."""
        sought = comparable(words).split()
        kept = [at for at, row in enumerate(self.rows) if all(word in comparable(" ".join(row)) for word in sought)]
        return replace(self, subjects=[self.subjects[at] for at in kept], make=lambda number: self.rows[kept[number]])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {subject.id: at for at, subject in enumerate(self.subjects) if subject is not None}

    @cached_property
    def _widest(self) -> list[int]:
        """The width of the widest cell of each column but the last."""
        return [max((columns(row[at]) for row in self.rows), default=0) for at in range(len(self.columns) - 1)]

    def widths(self, width: int, heads: Sequence[str]) -> list[int]:
        """The widths of the columns in a line of this width: the last one takes the rest. Where that is little, others
        are narrower, or give way with a width of 0."""
        most = [watch.LARGEST.get(name, LARGEST) for name in self.columns]
        taken = [min(max(found, columns(heads[at])), most[at]) for at, found in enumerate(self._widest)]
        least = [min(now, LEASTS.get(name, LEAST)) for now, name in zip(taken, self.columns, strict=False)]

        def rest() -> int:
            return width - sum(now + GAP for now in taken if now)

        while rest() < READABLE and taken != least:
            widest = max((at for at, now in enumerate(taken) if now > least[at]), key=taken.__getitem__)
            taken[widest] -= 1
        for name in GIVE_WAY:
            if rest() < READABLE and name in self.columns[:-1]:
                taken[self.columns.index(name)] = 0
        return [*taken, max(rest(), 0)]


@dataclass(frozen=True)
class Picture:
    """The session at one moment."""

    heading: str
    glance: str
    at: datetime
    listings: tuple[Listing, ...]

    def listing(self, name: str) -> Listing:
        """The list of this name; the first one if there is none by now."""
        return next((listing for listing in self.listings if listing.name == name), self.listings[0])


def take(services: Services, messages: int) -> Picture:
    """The session now; `messages` is the number of the last messages. Of a session in which nothing changes, little is
    read again."""
    items = watch.waiting_for_owner(services, partial(services.recent_attention.of, good_for=GOOD_FOR))

    def look() -> tuple[Snapshot, list[watch.Part]]:
        return services.snapshots.take(messages=messages), watch.parts_of(services)

    seen, parts = services.unchanged.get("watch", look, of=messages, good_for=GOOD_FOR)
    about = tuple((item.kind, item.agent_id, item.id) for item in items)
    states = services.unchanged.get("glance", partial(services.glances.of, items), of=about, good_for=GOOD_FOR)
    merges = services.board.existing(task_id for state in states for task_id in state.tasks)
    return picture(replace(seen, at=services.clock()), items, parts, services.people, states, merges)


def picture(
    seen: Snapshot,
    items: Sequence[Item],
    parts: Sequence[watch.Part],
    texts: Texts,
    states: Sequence[GlancePart] = (),
    merges: Sequence[Task] = (),
) -> Picture:
    """The picture of a snapshot; `parts` are the tables of the features, `states` the parts of the line
    that says how the team is, `merges` the tasks to be merged."""
    waiting = Listing(
        "attention", watch.ATTENTION, _waiting(seen, items), lambda at: next(watch.waiting([items[at]], seen.at, texts))
    )
    to_merge = [
        Listing(
            "merge",
            watch.TASKS,
            [Subject(id=task.id, task=task, is_merge=True) for task in merges],
            lambda at: watch.task(merges[at], seen.at, texts),
        )
    ]
    tables = [Listing(part.name, part.columns, _subjects(part), part.rows.__getitem__) for part in parts if part.rows]
    lists = (waiting, *_of_the_session(seen, texts), *(to_merge if merges else ()), *tables)
    return Picture(watch.heading(seen, items, texts), one_line(line_of(states)), seen.at, lists)


def _waiting(seen: Snapshot, items: Iterable[Item]) -> list[Subject | None]:
    """What each item that waits is about."""
    agents, tasks = {row.agent.id: row for row in seen.agents}, {task.id: task for task in seen.tasks}
    return [
        Subject(
            id=f"{item.kind} {item.agent_id} {item.id or item.text}",
            agent=agents.get(item.agent_id or ""),
            task=tasks.get(item.id or ""),
            item=item,
        )
        for item in items
    ]


def _subjects(part: watch.Part) -> list[Subject | None]:
    """What the rows of a feature's table are about, if something can be done about that."""
    return [Subject(id=one, listed=one) for one in part.ids] or [None] * len(part.rows)


def _of_the_session(seen: Snapshot, texts: Texts) -> Iterator[Listing]:
    """The lists that every session has: agents, tasks, messages."""
    agents, at = {row.agent.id: row for row in seen.agents}, seen.at
    yield Listing(
        "agents",
        watch.AGENTS,
        [Subject(id=row.agent.id, agent=row) for row in seen.agents],
        lambda number: watch.agent(seen.agents[number], at, texts),
    )
    yield Listing(
        "tasks",
        watch.TASKS,
        [Subject(id=task.id, agent=agents.get(task.assignee_id or ""), task=task) for task in seen.tasks],
        lambda number: watch.task(seen.tasks[number], at, texts),
    )
    yield Listing(
        "messages",
        watch.MESSAGES,
        [Subject(id=row.id, agent=agents.get(row.sender_id), message=row) for row in seen.messages],
        lambda number: watch.message(seen.messages[number], at, texts),
    )


def row_text(row: Sequence[str], widths: Sequence[int], names: Row) -> Text:
    """A row as a line; what is too long ends with an ellipsis."""
    line = Text(no_wrap=True)
    for name, cell, width in zip(names, row, widths, strict=True):
        if not width and name != names[-1]:
            continue  # it has given way
        text = watch.styled_cell(cell)
        text.plain = _cut(name, sanitize(_BLANK.sub(" ", cell)), width)
        text.truncate(width, pad=True)
        line.append_text(text).append(" " * GAP)
    line.right_crop(GAP)
    return line


def _cut(name: str, words: str, width: int) -> str:
    if name == "progress" and columns(words) > width:
        return watch.number_of(words).rjust(width)
    return shortened_pair(words, width) if name == "from_to" else shortened(words, width)


# The particulars of a row.


def particulars(services: Services, subject: Subject) -> list[Text]:
    """Everything about what a row is about. Another's words are text, never markup or control characters."""
    texts, parts = services.people, list[list[Text]]()
    if subject.item is not None:
        parts.append([*_of_item(subject.item, texts)])
    if subject.entity_id is not None:
        with suppress(Refusal):  # it is no id of ours, or the file is gone
            entity = services.lookup.find(subject.entity_id).place.entity
            parts.append([*map(_line, entity_lines(entity, texts))])
    if shows_pane(subject) and subject.agent is not None:
        parts.append([*_pane(services, subject.agent.agent, texts)])
    return [line for part in parts for line in ([Text("")] if part is not parts[0] else []) + part]


def shows_pane(subject: Subject | None) -> bool:
    """Whether an agent's pane is among the particulars: they change although no file does."""
    row = None if subject is None or subject.entity_id is not None else subject.agent
    return row is not None and not row.agent.may_be_human


def title_of(subject: Subject, texts: Texts) -> str:
    """What a row is about, on one line."""
    words: tuple[str | None, ...] = (subject.entity_id or subject.id,)
    if (item := subject.item) is not None:
        kind = texts.word("attention.kind", item.kind)
        words = kind, item.agent_id and display_id(item.agent_id), item.id
    elif subject.entity_id is None and subject.agent is not None:
        agent = subject.agent.agent
        above = agent.parent_id and f"↑ {display_id(agent.parent_id)}"
        words = display_id(agent.id), texts.word("role", agent.role), above, agent.host, agent.pane_id
    return " · ".join(filter(None, words))


def _line(line: str) -> Text:
    if isinstance(line, Painted):
        return Text.from_ansi(line)
    return Text(sanitize(line), style=line.style if isinstance(line, Styled) else "")


def _of_item(item: Item, texts: Texts) -> Iterator[Text]:
    yield Text(sanitize(local_times(item.text, texts)))
    if item.dialog is not None:
        yield from (Text(f"  {sanitize(line)}", style="bold") for line in item.dialog.text.split("\n"))
        yield Text("")
        for choice in item.dialog.choices:
            yield Text(f"  {one_line(choice.key)}  {watch.choice_words(choice, texts)}")
    if item.question is not None:
        yield Text("")
        for number, words in enumerate(item.question.choices, 1):
            yield Text(
                f"  {number}  {one_line(words)}{texts('question.default') if words == item.question.default else ''}"
            )
    yield Text("")
    command = (
        item.command if item.machine is None else texts("attention.there", machine=item.machine, command=item.command)
    )
    yield Text(f"→ {one_line(command)}", style="cyan")


def _pane(services: Services, agent: Agent, texts: Texts) -> Iterator[Text]:
    """The screen of an agent's pane, without the empty rows below, or why it cannot be seen."""
    if (home := services.agents.elsewhere(agent)) is not None:
        yield Text(texts("steer.elsewhere", machine=home))
        return
    view, _ = services.panes.look(agent)
    if isinstance(view, str):
        yield Text(sanitize(texts.words_of(view)), style="dim")
        return
    rows = [Text.assemble(*map(_piece, row)) for row in view.rows]
    while rows and not rows[-1].plain.strip():
        rows.pop()
    yield from rows


STYLES = {"bold": "bold", "faint": "dim", "italic": "italic", "underline": "underline", "inverse": "reverse"}
"""The attributes of a piece of a pane, and what rich calls them."""


def _piece(piece: Mapping[str, Any]) -> tuple[str, str]:
    colours = (("", piece.get("fg")), ("on ", piece.get("bg")))
    words = [style for name, style in STYLES.items() if piece.get(name)]
    words += [f"{way}{f'color({colour})' if colour.isdecimal() else colour}" for way, colour in colours if colour]
    return sanitize(piece["text"]), " ".join(words)
