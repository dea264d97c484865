"""Several machines, on this one: relays and a hub of their own, beside what the hub and the disk cost without us."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.durable import durable_write
from benchmarks.table import Finding
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.hub.stream import Hub, connected_once
from multi_agent_mcp.hub.subjects import Names
from multi_agent_mcp.services.tasks.creation import NewTask
from multi_agent_mcp.services.validation import Draft
from tests.hub.support import DESK, LAPTOP, Machine, Machines, eventually, machines

TIMES = 60
KILOBYTE = b"x" * 1000
QUEUED = 1000
IDLE_SECONDS = 20.0


def send(bench: Bench) -> Finding:
    """From the call of `send` on one machine until the file is on the other."""
    with _two(bench) as made:
        floor = _floor(bench, made)
        services = made[DESK].services
        sender, mailbox = services.agents.get("admin"), made[LAPTOP].path / "ipc" / "worker-a"

        def once(_: int) -> None:
            before = _count(mailbox)
            services.messages.send(sender, Draft(content=KILOBYTE.decode(), receiver_id="worker-a"))
            _spin(lambda: _count(mailbox) > before)

        return _finding(_median(once), floor)


def update(bench: Bench) -> Finding:
    """One change of a task on the machine without the hub."""
    with _two(bench) as made:
        floor = _floor(bench, made)
        tasks = made[LAPTOP].services.workspace.tasks
        task = _task(made)

        def once(number: int) -> None:
            tasks.update(task, lambda found: _noted(found, number))

        return _finding(_median(once), floor)


def interrupt(bench: Bench) -> Finding:
    """From a change on one machine until the other's file of the task has it, which is when its agent is stopped."""
    with _two(bench) as made:
        floor = _floor(bench, made)
        tasks = made[DESK].services.workspace.tasks
        task = _task(made)
        there = made[LAPTOP].path / "tasks" / "worker-a" / f"{task}.md"

        def once(number: int) -> None:
            before = there.stat().st_ino
            tasks.update(task, lambda found: _noted(found, number))
            _spin(lambda: there.stat().st_ino != before)

        return _finding(_median(once), floor)


def queued(bench: Bench) -> Finding:
    """A thousand messages written offline, from the return of the link until all are on the other machine."""
    with _two(bench) as made:
        laptop = made[LAPTOP]
        assert laptop.wire is not None
        laptop.wire.cut()
        eventually(lambda: not laptop.sharing.status()["connected"])
        services = laptop.services
        sender = services.agents.get("worker-a")
        mailbox = made[DESK].path / "ipc" / "admin"
        for _ in range(QUEUED):
            services.messages.send(sender, Draft(content=KILOBYTE.decode(), receiver_id="admin"))
        began = time.perf_counter()
        laptop.wire.heal()
        eventually(lambda: mailbox.exists() and _count(mailbox) >= QUEUED)
        took = time.perf_counter() - began
        return Finding(took, f"{took:.1f} s")


def relay_memory(bench: Bench) -> Finding:
    """The private memory of an idle relay."""
    with _two(bench) as made:
        lines = Path(f"/proc/{made[LAPTOP].relay_pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        private = sum(int(line.split()[1]) for line in lines if line.startswith("Private"))
        return Finding(private / 1024, f"{private / 1024:.0f} MB")


def relay_idle(bench: Bench) -> Finding:
    """The processor time of an idle relay."""
    with _two(bench) as made:
        before, began = _processor(made[LAPTOP]), time.monotonic()
        time.sleep(IDLE_SECONDS)
        share = (_processor(made[LAPTOP]) - before) / (time.monotonic() - began) * 100
        return Finding(share, f"{share:.2f} %")


@contextmanager
def _two(bench: Bench) -> Iterator[Machines]:
    with machines(bench.place(), LAPTOP) as made:
        yield made


def _floor(bench: Bench, made: Machines) -> float:
    """One value brought to the same hub, and one durable file."""
    membership, share = made[LAPTOP].sharing.membership, made[LAPTOP].sharing.share
    directory = bench.place()

    async def publish() -> float:
        client = await connected_once(membership.urls, share.seed(), None, LAPTOP)
        hub = Hub(Names(membership.uuid), LAPTOP, client=client)
        took = []
        for number in range(TIMES):
            began = time.perf_counter()
            await hub.put(hub.names.own(LAPTOP, "floor", "x", str(number)), KILOBYTE, str(number), {}, expected=0)
            took.append(time.perf_counter() - began)
        await client.close()
        return statistics.median(took)

    written = _median(lambda _: durable_write(directory, KILOBYTE))
    return asyncio.run(publish()) + written


def _median(once: Callable[[int], object]) -> float:
    took = []
    for number in range(TIMES):
        began = time.perf_counter()
        once(number)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def _spin(condition: Callable[[], bool]) -> None:
    """Waits without the pauses of a poll: a millisecond counts."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.0002)


def _count(directory: Path) -> int:
    return sum(1 for _ in directory.iterdir())


def _task(made: Machines) -> str:
    services = made[DESK].services
    (task,) = services.task_creation.create(
        services.agents.get("admin"), [NewTask(title="Build", assignee_id="worker-a")]
    )
    eventually(lambda: (made[LAPTOP].path / "tasks" / "worker-a" / f"{task.id}.md").exists())
    return task.id


def _noted(task: Task, number: int) -> Task:
    return replace(task, progress=number, description=f"{number}")


def _processor(machine: Machine) -> float:
    """Seconds of processor time of the relay so far (proc(5))."""
    fields = Path(f"/proc/{machine.relay_pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _finding(measured: float, floor: float) -> Finding:
    return Finding(measured / floor, f"{measured * 1000:.1f} ms", f"{floor * 1000:.1f} ms")
