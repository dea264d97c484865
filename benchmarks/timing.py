"""Clocks: what is compared is measured in turns, because a machine is never the same a minute later."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median


def in_turns(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """The median of what each measure returns, taken in turns; every second round goes backwards."""
    found: list[list[float]] = [[] for _ in measures]
    for number in range(rounds):
        order = range(len(measures)) if number % 2 == 0 else reversed(range(len(measures)))
        for index in order:
            found[index].append(measures[index]())
    return [median(values) for values in found]


def seconds(action: Callable[[], object]) -> float:
    """How long one action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def ms(value: float) -> str:
    return f"{value * 1000:.1f} ms"


def wait_until(condition: Callable[[], bool], *, within: float = 15.0, every: float = 0.02) -> None:
    """Looks until it holds; raises TimeoutError after `within` seconds."""
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {within} s")
        time.sleep(every)
