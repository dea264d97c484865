"""The books of the hosts: all acknowledged effects, those that may or may not exist, and all items handed out.

The hosts keep them, so that nothing in them is taken from the files with which they are compared.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

PIECE = "本文\r\n---\n#{x} \u2028"


def tagged(tag: str, size: int) -> str:
    """Returns a content from which its owner and its completeness can be verified."""
    return f"{tag} {size}\n" + PIECE * size + f"end {tag}"


def tag_of(content: str) -> str | None:
    """The tag of a message; None if it has no tag or is incomplete."""
    tag, _, size = content.partition("\n")[0].rpartition(" ")
    if not size.isdecimal() or int(size) > len(content):  # somebody else's number, perhaps too large to be a length
        return None
    return tag if content == tagged(tag, int(size)) else None


@dataclass(frozen=True)
class Sent:
    """A message under way. `state`: `acked`, `maybe` (its sender's server died first) or `never` (it was refused)."""

    receivers: frozenset[str]
    state: str


@dataclass
class Ledger:
    """The books; many threads write to them, only through the methods."""

    messages: dict[str, Sent] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=dict)
    """Title → `acked` or `maybe`."""
    moves: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    """Acknowledged changes of status: task, by whom, from, to."""
    kept: dict[str, set[str]] = field(default_factory=dict)
    """Kind → ids of acknowledged items."""
    handed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Agent and id of every message and notification that a host was handed → how often, not counting readers that
    died before their next answer."""
    broken: set[str] = field(default_factory=set)
    """Names of files that were broken on purpose."""
    notes: dict[str, int] = field(default_factory=dict)
    """The last value written into each agent's record of agents.json."""
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    killed: set[int] = field(default_factory=set)
    started: set[int] = field(default_factory=set)
    _mutex: threading.RLock = field(default_factory=threading.RLock)

    def hand_out(self, agent_id: str, ids: Iterable[str]) -> None:
        """Records an answer that arrived."""
        with self._mutex:
            for item in ids:
                self.counts["handed out again"] += (agent_id, item) in self.handed
                self.handed[agent_id, item] += 1

    def may_return(self, agent_id: str, ids: Iterable[str]) -> None:
        """A reader died before its next answer: what it was handed last may be handed out once more, even before its
        host notices the death."""
        with self._mutex:
            for item in ids:
                self.handed[agent_id, item] -= 1

    def keep(self, kind: str, entity_id: str) -> None:
        with self._mutex:
            self.kept.setdefault(kind, set()).add(entity_id)

    def send(self, tag: str, receivers: Iterable[str], state: str) -> None:
        with self._mutex:
            self.messages[tag] = Sent(frozenset(receivers), state)

    def count(self, what: str, number: int = 1) -> None:
        with self._mutex:
            self.counts[what] += number

    def complain(self, text: str) -> None:
        with self._mutex:
            self.wrong.append(text)

    def moved(self, task_id: str, by: str, before: str, after: str) -> None:
        """Notes a move that was acknowledged; none if the task stays, as one does whose checks have to pass first."""
        if before == after:
            return
        with self._mutex:
            self.moves[task_id, by, before, after] += 1
