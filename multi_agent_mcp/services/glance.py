"""How the team is, at a glance: who works, who asks, what is to be reviewed or merged, what it costs. Each of these is
one part of a line on the console's first page, of the bare command and of `watch --once`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from multi_agent_mcp.domain.times import duration_words, format_time, moment_in_words
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.session import Service
from multi_agent_mcp.system.file_status import Memory

if TYPE_CHECKING:
    from multi_agent_mcp.services.attention import Item
    from multi_agent_mcp.services.team.limited import LimitedAgents

GOOD_FOR = timedelta(seconds=30)
"""How long what is dear to find out (tokens, merges) is said again."""
ASKING, REVIEWS = ("question", "dialog", "login"), ("review", "request")
HELD = ("stuck", "paused")
URGENT = frozenset({"asking", "stuck"})
"""The parts that keep somebody from working."""


class GlancePart(NamedTuple):
    """A part of the line: its name, its words, the kinds of items that it counts, and tasks that it is about. Of words
    with a time, `exact` are those that have it as files have it: whoever shows them says it by the reader's clock."""

    name: str
    words: str
    kinds: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    exact: str = ""

    def as_answer(self) -> dict[str, Any]:
        answer = self._asdict() | {"words": self.exact or self.words, "urgent": self.name in URGENT}
        del answer["exact"]
        return answer


def line_of(states: Sequence[GlancePart]) -> str:
    """The parts as one line; empty where there is nothing to say."""
    return " · ".join(state.words for state in states)


@dataclass(eq=False)
class Glances(Service):
    """The line of one session."""

    limited: LimitedAgents
    _dear: Memory = field(default_factory=Memory, init=False)

    def of(self, items: Sequence[Item]) -> list[GlancePart]:
        """The parts of the line that are not zero, for a person for whom these items wait."""
        spent, merges = self._dear.get((), self._found_out, clock=self.clock, good_for=GOOD_FOR)
        counts = [
            ("working", self._working(items), ()),
            ("reviews", sum(item.kind in REVIEWS and not item.approved for item in items), REVIEWS),
            ("stuck", sum(item.kind == "stuck" for item in items), ("stuck",)),
        ]
        states = [GlancePart(name, self._say(name, count=count), kinds) for name, count, kinds in counts if count]
        asking = [GlancePart("asking", words, ASKING) for words in self._asking(items)]
        limited = [GlancePart("limited", words, ("limited",), exact=exact) for words, exact in self._limited()]
        merge = [GlancePart("merge", self._say("merge", count=len(merges)), tasks=tuple(merges))] if merges else []
        paid = [GlancePart("spent", self._say("spent", cost=spent))] if spent else []
        return [*states[:1], *asking, *states[1:], *limited, *paid, *merge]

    def line(self, items: Sequence[Item]) -> str:
        """The whole line; empty where there is nothing to say."""
        return line_of(self.of(items))

    def _say(self, name: str, **facts: object) -> str:
        return self.session.people(f"glance.{name}", **facts)

    def _working(self, items: Sequence[Item]) -> int:
        """Who has work in hand and is neither stuck nor paused; these are counted, or told, by themselves."""
        tasks, held = self.workspace.tasks, {item.agent_id for item in items if item.kind in HELD}
        return sum(
            any(task.is_worked_on for task in tasks.in_progress(name))
            for name in self.workspace.registry.active()
            if name not in held
        )

    def _asking(self, items: Sequence[Item]) -> Iterator[str]:
        """How many ask, how many of them are overdue, and when the next one is."""
        now, found = self.clock(), [item for item in items if item.kind in ASKING]
        due = [item.question.deadline for item in found if item.question is not None and item.question.deadline]
        overdue, ahead = sum(at <= now for at in due), [at for at in due if at > now]
        more = [self._say("overdue", count=overdue)] if overdue else []
        more += [self._say("next", time=duration_words(min(ahead) - now, self.session.people))] if ahead else []
        if found:
            words = self._say("asking", count=len(found))
            yield self._say("with", said=words, more=", ".join(more)) if more else words

    def _limited(self) -> Iterator[tuple[str, str]]:
        found = self.limited.all() if "usage" in self.session.features else {}
        until = [limit.until for limit in found.values() if limit.until is not None]
        if until:
            words = partial(self._say, "limited", count=len(found))
            at = moment_in_words(min(until), self.clock(), self.session.zone, self.session.people)
            yield words(at=at), words(at=format_time(min(until)))
        elif found:
            yield self._say("limited_unknown", count=len(found)), ""

    def _found_out(self) -> tuple[str | None, list[str]]:
        """What was spent today, as far as it is known and has a price, and the tasks to be merged."""
        try:
            merges = list(self.contributions.ask("to_merge") or ())
        except Refusal:  # git says why wherever it is asked for by itself
            merges = []
        return self.contributions.ask("spent_today") if "usage" in self.session.features else None, merges
