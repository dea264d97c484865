"""A task's history: one sequence, whose newest lines are in the task's file, and older ones in a second file, which is
read only when needed; and the change that adds a line to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from multi_agent_mcp.domain.entity import EPOCH
from multi_agent_mcp.domain.json_lines import newest_first
from multi_agent_mcp.domain.times import format_time, parse_time

Line = Mapping[str, Any]
KEPT = 20
"""The number of lines that stay in the task's file."""
NUMBER = "number"
"""The key for a line's number in the whole history, from 0, in the second file."""
QUESTION = "question_id"
"""The key of a history line that a question caused: the task waits for its answer, or waits no longer."""


def old_value(line: Line, key: str) -> Any:
    """The old value of `key`, whose value in a line is `[old, new]`; None if the line has no such pair."""
    change = line.get(key)
    return change[0] if isinstance(change, (list, tuple)) and len(change) == 2 else None


def new_value(line: Line, key: str, otherwise: Any = None) -> Any:
    """The new value of `key`, as for `old_value`, or a text in place of the pair, as people write; else `otherwise`."""
    change = line.get(key)
    if isinstance(change, str):
        return change
    return change[1] if isinstance(change, (list, tuple)) and len(change) == 2 else otherwise


class History(Sequence[Line]):
    """All lines, oldest first.

    `newest` follow after `earlier` older lines, which `older` reads as JSON lines, each with its `number`. `standing`
    holds, by number, the last of the older lines for each status, decision and assignment, so that `older` is rarely
    needed.
    """

    def __init__(
        self,
        newest: Iterable[Line] = (),
        earlier: int = 0,
        standing: Mapping[int, Line] | None = None,
        older: Callable[[], bytes] = bytes,
    ) -> None:
        self.newest = tuple(newest)
        self.earlier = earlier
        self.standing = dict(standing or {})
        self._older = older

    def __len__(self) -> int:
        return self.earlier + len(self.newest)

    def __iter__(self) -> Iterator[Line]:
        yield from reversed([line for _, line in self._older_lines()])
        yield from self.newest

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def with_line(self, line: Line) -> History:
        """The history with a further, newest line."""
        return History((*self.newest, line), self.earlier, self.standing, self._older)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, History):
            return (self.earlier, self.newest) == (other.earlier, other.newest)
        return isinstance(other, (tuple, list)) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self.earlier, len(self.newest)))

    def __repr__(self) -> str:
        return f"History({self.newest!r}, {self.earlier})"

    def before(self, number: int) -> History:
        """The history before the line with this number."""
        standing = {key: line for key, line in self.standing.items() if key < number}
        newest = self.newest[: max(number - self.earlier, 0)]
        return History(newest, min(number, self.earlier), standing, self._older)

    def since(self, number: int) -> Sequence[Line]:
        """The lines from the one with this number on, oldest first."""
        return self.newest[number - self.earlier :] if number >= self.earlier else tuple(islice(self, number, None))

    def at_hand(self) -> Iterator[tuple[int, Line]]:
        """The lines in memory, `newest` and `standing`, newest first, with their numbers."""
        yield from reversed(list(enumerate(self.newest, self.earlier)))
        yield from sorted(self.standing.items(), key=lambda item: -item[0])

    def having(self, *keys: str) -> list[Line]:
        """The lines with one of these keys, newest first."""
        needles = [f"{json.dumps(key)}:".encode() for key in keys]
        lines = (*reversed(self.newest), *(line for _, line in self._older_lines(*needles)))
        return [line for line in lines if any(key in line for key in keys)]

    def naming(self, key: str, value: str) -> list[Line]:
        """The lines whose `key` has this value, newest first."""
        needle = json.dumps({key: value}, ensure_ascii=False)[1:-1].encode(errors="surrogatepass")
        lines = (*reversed(self.newest), *(line for _, line in self._older_lines(needle)))
        return [line for line in lines if line.get(key) == value]

    def shortened(self) -> tuple[History, bytes]:
        """The history with only `KEPT` newest lines, and the bytes to append to the second file for the others; empty
        for a short history."""
        surplus = max(len(self.newest) - KEPT, 0)
        leaving = dict(enumerate(self.newest[:surplus], self.earlier))
        standing = _standing({**self.standing, **leaving}) if leaving else self.standing
        added = (json.dumps(numbered(*item), ensure_ascii=False, default=str) for item in leaving.items())
        shorter = History(self.newest[surplus:], self.earlier + surplus, standing, self._older)
        return shorter, "\n".join(added).encode(errors="surrogatepass")

    def _older_lines(self, *needles: bytes) -> Iterator[tuple[int, Line]]:
        """The older lines (only those that contain one of the `needles`), newest first, with their numbers, in whatever
        order they came: a machine gets them one by one. Each is returned once, even if a process killed before it wrote
        the task's file has left it in the second file twice."""
        found: dict[int, Line] = {}
        for line in newest_first([self._older()] if self.earlier else (), *needles):
            number = line.pop(NUMBER, None)
            if isinstance(number, int) and 0 <= number < self.earlier:
                found.setdefault(number, line)
        yield from sorted(found.items(), key=lambda item: -item[0])


def numbered(number: int, line: Line) -> Line:
    """The line with its number first; a line that a person wrote may have a key of that name."""
    return {NUMBER: number} | dict(line) | {NUMBER: number}


def _standing(lines: Mapping[int, Line]) -> dict[int, Line]:
    """The last line for each status and each decision, and the last assignment: the only older lines needed to tell
    since when a task has its present state."""
    last: dict[Any, int] = {}
    for number, line in sorted(lines.items()):
        last |= {(key, str(new_value(line, key))): number for key in ("status", "approval_status") if key in line}
        if "assignee_id" in line:
            last["assignee_id"] = number
    return {number: lines[number] for number in sorted(set(last.values()))}


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a task: when, by whom, why, and (from a chat) at whose request; in the order of a history line."""

    at: datetime
    by: str
    purpose: str | None = None
    """`chat` for a change by the author's chat session, which its task session does not know of."""
    reason: str | None = None
    requester_id: str | None = None
    message_id: str | None = None
    conversation_id: str | None = None
    intent_id: str | None = None
    question_id: str | None = None
    proof: Mapping[str, Any] | None = None
    """Why a task with conditions may become done: `receipts` and `reviews`, or `overruled`."""
    written_at: str | None = None
    """When the report was written whose message makes the change."""
    head: str | None = None
    """Where work begins: the commit that the assignee's worktree is at."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Change:
        """Parses the `facts` of a change, as they are written into an intent."""
        return cls(**{**facts, "at": parse_time(facts["at"]) or EPOCH})

    @property
    def facts(self) -> dict[str, Any]:
        return {**vars(self), "at": format_time(self.at)}

    def within(self, intent_id: str) -> Change:
        """The change with the id of its intent, by which it is recognised later."""
        return replace(self, intent_id=intent_id)

    def entry(self, **changed: Any) -> dict[str, Any]:
        """The change as a line of the task's history; unset fields are left out."""
        return {**{key: value for key, value in self.facts.items() if value is not None}, **changed}


HEAD = "head"
"""The key of a history entry with which work begins that holds the commit at which the assignee's worktree was."""
