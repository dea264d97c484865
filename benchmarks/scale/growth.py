"""The growth of a cost: one case measured alternately at a small and at a large size, and the evaluation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.floors import Floor
from benchmarks.table import Finding
from benchmarks.timing import in_turns

Cost = Callable[[], float]
Case = Callable[[Bench, int], AbstractContextManager[Cost]]
"""Prepares a session of a size; what it yields does the thing once and returns what that cost (seconds, or bytes)."""


@dataclass(frozen=True)
class Growth:
    """The `measure` of a row: `case` from the `small` to the `large` size."""

    case: Case
    small: int
    large: int
    rounds: int = 5
    unit: str = "s"
    floor: Floor | None = None
    """What `each` and `added` compare a time with; of a size in memory there is none."""

    def times(self, bench: Bench) -> Finding:
        """The large one's cost, as a multiple of the small one's."""
        few, many = self._costs(bench)
        return Finding(many / few, *self._told(bench, many, few))

    def each(self, bench: Bench) -> Finding:
        """The cost of each additional item: as a multiple of the floor, or in bytes of a megabyte."""
        small, large = self._sizes(bench)
        few, many = self._costs(bench)
        return self._over_floor(bench, (many - few) / (large - small), many, few)

    def added(self, bench: Bench) -> Finding:
        """The additional cost of all items together, as a multiple of the floor."""
        few, many = self._costs(bench)
        return self._over_floor(bench, many - few, many, few)

    def _over_floor(self, bench: Bench, cost: float, many: float, few: float) -> Finding:
        measured, least = self._told(bench, many, few)
        if self.floor is None:
            return Finding(cost * 1e6, measured, least)
        floor = self.floor(bench.place())
        return Finding(cost / floor, measured, f"{least}; {floor * 1e6:.3g} us {self.floor.__name__}")

    def _costs(self, bench: Bench) -> tuple[float, float]:
        small, large = self._sizes(bench)
        with self.case(bench, small) as of_few, self.case(bench, large) as of_many:
            few, many = in_turns(self.rounds, of_few, of_many)
        return few, many

    def _sizes(self, bench: Bench) -> tuple[int, int]:
        large = min(self.large, bench.scale.largest)
        return min(self.small, large // 10), large

    def _told(self, bench: Bench, many: float, few: float) -> tuple[str, str]:
        small, large = self._sizes(bench)
        return f"{self._cost(many)} ({large:,})", f"{self._cost(few)} ({small:,})"

    def _cost(self, value: float) -> str:
        if self.unit == "s" and value < 1:
            return f"{value * 1000:.3g} ms"
        return f"{value:.2f} {self.unit}"
