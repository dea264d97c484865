"""Many processes that write to one mailbox at once, beside as many that only write files."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median

from benchmarks.bench import Bench, Scale
from benchmarks.durable import durable_write
from benchmarks.table import Finding
from benchmarks.team import KILOBYTE, Team
from multi_agent_mcp.services.validation import Draft

START_SECONDS = 60.0  # then a process has died before it began, and nobody waits for it for ever

Action = Callable[[str], object]
"""Writes one text of one kilobyte, which begins with a name of its own."""


def sends(bench: Bench) -> Finding:
    """Nobody serves the mailbox: each sender looks itself whether there is anything to ring."""
    return _sends(bench, served=False)


def sends_served(bench: Bench) -> Finding:
    """The recipient's server takes notice of every file meanwhile."""
    return _sends(bench, served=True)


def _sends(bench: Bench, *, served: bool) -> Finding:
    floors, rates, once = [], [], True
    for _ in range(bench.scale.rounds):
        floors.append(_rate(bench.scale, _writing, bench.place()))
        team = bench.team()
        with ExitStack() as stack:
            if served:
                stack.enter_context(team.server("admin")).settle()
            rates.append(_rate(bench.scale, _sending, team.root))
        once = once and _arrived_once(team, bench.scale)
    measured, floor = median(rates), median(floors)
    told = "0 lost, 0 twice" if once else "LOST OR TWICE"
    return Finding(measured / floor, f"{measured:.0f} /s, {told}", f"{floor:.0f} /s", once)


def _writing(directory: Path) -> Action:
    return lambda text: durable_write(directory, text.encode())


def _sending(root: Path) -> Action:
    services = Team(root).services
    worker = services.agents.get("worker")
    services.messages.send(worker, Draft(content=KILOBYTE, receiver_id="owner"))  # loads what is loaded late
    return lambda text: services.messages.send(worker, Draft(content=text, receiver_id="admin"))


def _rate(scale: Scale, prepare: Callable[[Path], Action], directory: Path) -> float:
    """Texts per second, from the first process's begin to the last one's end."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(scale.processes)
    spans: SimpleQueue[tuple[float, float]] = context.SimpleQueue()
    workers = [
        context.Process(target=_work, args=(prepare, directory, _texts(number, scale), barrier, spans))
        for number in range(scale.processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not any(worker.exitcode for worker in workers)
    measured = [spans.get() for _ in workers]
    took = max(ended for _, ended in measured) - min(began for began, _ in measured)
    return scale.processes * scale.sends / took


def _work(
    prepare: Callable[[Path], Action],
    directory: Path,
    texts: list[str],
    barrier: Barrier,
    spans: SimpleQueue[tuple[float, float]],
) -> None:
    action = prepare(directory)
    barrier.wait(START_SECONDS)
    began = time.perf_counter()
    for text in texts:
        action(text)
    spans.put((began, time.perf_counter()))


def _texts(process: int, scale: Scale) -> list[str]:
    return [f"{process}-{number} {KILOBYTE}"[: len(KILOBYTE)] for number in range(scale.sends)]


def _arrived_once(team: Team, scale: Scale) -> bool:
    """Whether the mailbox holds every text exactly once, under ids of their own."""
    arrived = [message for _, message in Team(team.root).services.workspace.mailbox("admin").hot.each()]
    expected = [text for process in range(scale.processes) for text in _texts(process, scale)]
    ids = {message.id for message in arrived}
    return len(ids) == len(arrived) and sorted(message.content for message in arrived) == sorted(expected)
