"""The rows' bounds, their measured values, and the table of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.bench import Bench

HEAD = ("row", "measured", "floor", "must reach", "reached", "", "elsewhere")


@dataclass(frozen=True)
class Finding:
    """The result of one row. `reached` is compared with the row's bound; if `sound` is False the row fails anyway."""

    reached: float
    measured: str
    floor: str = "-"
    sound: bool = True


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table. A row without a bound only tells. `title` may name the sizes of `Scale`. One that takes
    a quarter of an hour is measured `by_name_only`."""

    name: str
    title: str
    measure: Callable[[Bench], Finding]
    unit: str = "x floor"
    at_most: float | None = None
    at_least: float | None = None
    elsewhere: str = ""
    by_name_only: bool = False

    @property
    def must(self) -> str:
        """The bound in words."""
        if self.at_most is not None:
            return f"<= {self.at_most:g} {self.unit}"
        return "-" if self.at_least is None else f">= {self.at_least:g} {self.unit}"

    def holds(self, finding: Finding) -> bool:
        """Whether the bound is kept and nothing was wrong."""
        kept_above = self.at_most is None or finding.reached <= self.at_most
        kept_below = self.at_least is None or finding.reached >= self.at_least
        return finding.sound and kept_above and kept_below


@dataclass(frozen=True)
class Line:
    """A row and what became of it in one run."""

    title: str
    row: Row
    finding: Finding

    @property
    def verdict(self) -> str:
        if self.row.must == "-" and self.finding.sound:
            return ""
        return "ok" if self.row.holds(self.finding) else "MISSED"

    def cells(self) -> Sequence[str]:
        finding = self.finding
        reached = f"{finding.reached:.2f} {self.row.unit}"
        return (self.title, finding.measured, finding.floor, self.row.must, reached, self.verdict, self.row.elsewhere)

    def as_json(self) -> dict[str, Any]:
        told = {"row": self.row.name, "title": self.title, "must": self.row.must, "unit": self.row.unit}
        return {**told, **asdict(self.finding), "verdict": self.verdict}


def markdown(lines: Iterable[Line]) -> Iterator[str]:
    """The table: Markdown that is also aligned, so that it reads the same in a terminal and in docs/."""
    rows = [list(HEAD), *(list(line.cells()) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for number, row in enumerate(rows):
        yield "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        if number == 0:
            yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"
