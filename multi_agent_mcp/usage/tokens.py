"""What the models of agents took, in tokens (docs/protocol.md, What it costs). The rules by which a host's own files
say so are data of the hosts (`hosts/*.yaml`, key `usage`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from multi_agent_mcp.domain.json_lines import fits, name_of, needles_of, value_at
from multi_agent_mcp.domain.times import moment_of
from multi_agent_mcp.hosts import description, host_named

COUNTED = ("input", "output", "cache_read", "cache_write")
TOKENS_MAX = 10**12
"""More in one response is damage."""


@dataclass(frozen=True)
class Tokens:
    """`input` is without what was read from a cache. `reasoning` are tokens of thinking that the host counts beside
    `output`; the others count them in it."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(*(getattr(self, spec.name) + getattr(other, spec.name) for spec in fields(Tokens)))

    @property
    def total(self) -> int:
        return sum(getattr(self, spec.name) for spec in fields(Tokens))

    @property
    def context(self) -> int:
        """How much of the context the request and its response took."""
        return self.input + self.output + self.cache_read + self.cache_write


@dataclass(frozen=True)
class Response:
    """One response of a model. `key` is the same wherever the host writes it again; `at` is None if it does not say."""

    key: str
    tokens: Tokens
    at: datetime | None = None
    model: str | None = None
    window: int | None = None


@dataclass(frozen=True)
class UnreadableUsage:
    """A line that should tell a response's tokens, and does not: the host has changed its form."""


def count_of(value: object) -> int | None:
    """A number of tokens; None if it is none."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= TOKENS_MAX
    return int(str(value)) if is_count else None


@dataclass(frozen=True)
class LineRule:
    """What one kind of line says: those with the values `when` and not `unless`. The other fields are dotted paths.
    Lines without `needs` are no responses; with `each`, the lines are the items of that list; `cached_in_input`: the
    input includes what was read from the cache."""

    when: Mapping[str, Any]
    key: Sequence[str]
    tokens: Mapping[str, str]
    at: str = "timestamp"
    model: str = "model"
    window: str = ""
    unless: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    each: str = ""
    cached_in_input: bool = False

    def read(self, line: object) -> Iterator[Response | UnreadableUsage]:
        """Yields what the line says about responses, nothing for other lines."""
        items = value_at(line, self.each) if self.each else [line]
        for item in items if isinstance(items, list) else ():
            if self._fits(item):
                yield self._response(item) or UnreadableUsage()

    def _fits(self, item: object) -> bool:
        said = fits(item, self.when) and (not self.needs or value_at(item, self.needs) is not None)
        return said and not any(value_at(item, path) == value for path, value in self.unless.items())

    def _response(self, item: object) -> Response | None:
        key = [value_at(item, path) for path in self.key]
        counts = {name: count_of(value_at(item, path)) for name, path in self.tokens.items()}
        if not any(key) or counts.get("input") is None or counts.get("output") is None:
            return None
        tokens = Tokens(**{name: count or 0 for name, count in counts.items()})
        if self.cached_in_input:
            tokens = Tokens(
                max(tokens.input - tokens.cache_read, 0),
                tokens.output,
                tokens.cache_read,
                tokens.cache_write,
                tokens.reasoning,
            )
        return Response(
            "\n".join(map(str, key)),
            tokens,
            moment_of(value_at(item, self.at)),
            name_of(value_at(item, self.model)),
            count_of(value_at(item, self.window)) if self.window else None,
        )


@dataclass(frozen=True)
class Remembered:
    """A line that says, for those that follow, the `model` or the size of the context (`window`)."""

    when: Mapping[str, Any]
    model: str = ""
    window: str = ""


@dataclass(frozen=True)
class UsageRules:
    """A host's key `usage`: its directory (`home`, or what the environment's `variable` names), the files of a
    conversation there (`transcripts`, with {id} and {id8}), those `beside` one ({dir}, {stem}), later files whose
    first line names it as their `parent`, or a `database`; then what their lines say. `windows` maps patterns of models
    to the size of their context, where the host does not say it."""

    home: str = ""
    variable: str = ""
    transcripts: str = ""
    beside: Sequence[str] = ()
    later: str = ""
    parent: str = ""
    database: str = ""
    lines: Sequence[LineRule] = ()
    remember: Sequence[Remembered] = ()
    windows: Sequence[tuple[re.Pattern[str], int]] = ()

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> UsageRules:
        """Parses the data of the package's own files."""
        given = dict(data)
        return cls(
            lines=tuple(LineRule(**rule) for rule in given.pop("lines", ())),
            remember=tuple(Remembered(**rule) for rule in given.pop("remember", ())),
            windows=tuple((re.compile(pattern), size) for pattern, size in given.pop("windows", {}).items()),
            **given,
        )

    @property
    def needles(self) -> tuple[bytes, ...]:
        """Words of which every line that says anything has one."""
        return needles_of([*(rule.when for rule in self.lines), *(rule.when for rule in self.remember)])

    def responses(self, line: object) -> Iterator[Response | UnreadableUsage]:
        for rule in self.lines:
            yield from rule.read(line)

    def window_of(self, model: str | None) -> int | None:
        """The size of a model's context; None if it is not known."""
        return next((size for pattern, size in self.windows if model and pattern.search(model)), None)


@cache
def usage_rules_of(host: str) -> UsageRules | None:
    """The rules by which the files of the host of this name tell what its responses took; None if they do not."""
    fields = {} if host_named(host) is None else description(host)
    return UsageRules.parse(fields["usage"]) if "usage" in fields else None


# What tokens cost, for those who say so in prices.yaml (docs/format.md, prices.yaml).


@dataclass(frozen=True)
class Prices:
    """Prices per million tokens, by pattern of models, the first that fits; `currency` is what people read."""

    currency: str
    models: Mapping[str, Mapping[str, float]]

    def cost(self, model: str | None, tokens: Tokens | None) -> float | None:
        """What these tokens cost; None if they, or the model's prices, are not known."""
        prices = next((of for pattern, of in self.models.items() if model and fnmatchcase(model, pattern)), None)
        if prices is None or tokens is None:
            return None
        counts: dict[str, int] = {**vars(tokens), "output": tokens.output + tokens.reasoning}
        return sum(counts[name] * prices.get(name, 0.0) for name in COUNTED) / 1_000_000


@dataclass(frozen=True)
class UsageRow:
    """The tokens of one agent, task and model in a period; `tokens` is None where they are not known. `cost` is that of
    a sum of several models."""

    agent_id: str | None
    task_id: str | None
    model: str | None
    tokens: Tokens | None
    cost: float | None = None

    @property
    def counts(self) -> dict[str, Any]:
        """The numbers as JSON values: the word `unknown` in place of those that are not known, never 0."""
        if self.tokens is None:
            return dict.fromkeys(COUNTED, "unknown")
        beside = {"reasoning": self.tokens.reasoning} if self.tokens.reasoning else {}
        return {name: getattr(self.tokens, name) for name in COUNTED} | beside

    def cost_at(self, prices: Prices | None) -> float | None:
        return self.cost if self.cost is not None or prices is None else prices.cost(self.model, self.tokens)

    def as_answer(self, prices: Prices | None = None) -> dict[str, Any]:
        """As JSON values, with what they cost where that is known."""
        who = {"agent_id": self.agent_id, "task_id": self.task_id, "model": self.model}
        cost = self.cost_at(prices)
        return who | self.counts | ({} if cost is None else {"cost": cost})


def grouped(rows: Iterable[UsageRow], name: str, prices: Prices | None = None) -> list[UsageRow]:
    """The rows of each agent, task or model as one, the largest first; a sum of which a part is unknown is unknown."""
    found: dict[str | None, list[UsageRow]] = {}
    for row in rows:
        found.setdefault(getattr(row, name), []).append(row)
    nothing: dict[str, Any] = {"agent_id": None, "task_id": None, "model": None}
    sums = [
        UsageRow(**{**nothing, name: key}, tokens=total_of(of), cost=_cost_of(of, prices)) for key, of in found.items()
    ]
    return sorted(sums, key=lambda row: -row.tokens.total if row.tokens else 0)


def _cost_of(rows: Iterable[UsageRow], prices: Prices | None) -> float | None:
    """What all of these cost; None if that of one is not known."""
    costs = [row.cost_at(prices) for row in rows]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def total_of(rows: Iterable[UsageRow]) -> Tokens | None:
    """The sum; None if a part of it is not known."""
    total = Tokens()
    for row in rows:
        if row.tokens is None:
            return None
        total += row.tokens
    return total
