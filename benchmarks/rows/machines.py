"""Several machines, on this one: relays and a hub of their own, beside what the hub and the disk cost without us."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.durable import durable_write
from benchmarks.table import Finding
from benchmarks.timing import in_turns, ms, processor_seconds, seconds
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.entity import id8
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.hub.administration import connected_once
from multi_agent_mcp.hub.stream import Hub
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from tests.hub import test_floods
from tests.hub.support import DESK, LAPTOP, SHED, Machine, Machines, eventually, machines
from tests.hub.test_security import as_machine

TIMES = 60
KILOBYTE = b"x" * 1000
QUEUED = 1000
MACHINES, AGENTS = 20, 11
IDLE_SECONDS = 20.0
FLOOD_LETTER_SECONDS = 0.5
FLOWS = 20
"""So many values between two messages are still of the flood."""


def send(bench: Bench) -> Finding:
    """From the call of `send` on one machine until the file is on the other."""
    with _two(bench) as made:
        services = made[DESK].services
        sender, mailbox = services.agents.get("admin"), made[LAPTOP].path / "ipc" / "worker-a"

        def once(_: int) -> float:
            before, began = _count(mailbox), time.perf_counter()
            services.messages.send(sender, Draft(content=KILOBYTE.decode(), receiver_id="worker-a"))
            _spin(lambda: _count(mailbox) > before)
            return time.perf_counter() - began

        return _beside_floor(bench, made, once)


def update(bench: Bench) -> Finding:
    """One change of a task on the machine without the hub."""
    with _two(bench) as made:
        change = _change(made, LAPTOP, DESK)
        return _beside_floor(bench, made, lambda number: change(number)[0])


def interrupt(bench: Bench) -> Finding:
    """From a change on one machine until the other's file of the task has it, which is when its agent is stopped."""
    with _two(bench) as made:
        change = _change(made, DESK, LAPTOP)
        return _beside_floor(bench, made, lambda number: change(number)[1])


def _change(made: Machines, here: str, there: str) -> Callable[[int], tuple[float, float]]:
    """Changes a task; returns how long that took, and how long until the other machine had it."""
    tasks, task = made[here].services.workspace.tasks, _task(made)
    file = made[there].path / "tasks" / "worker-a" / f"{task}.md"

    def change(number: int) -> tuple[float, float]:
        before, began = file.stat().st_ino, time.perf_counter()
        tasks.update(task, lambda found: _noted(found, number))
        changed = time.perf_counter() - began
        _spin(lambda: file.stat().st_ino != before)
        return changed, time.perf_counter() - began

    return change


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


def to_many(bench: Bench) -> Finding:
    """A broadcast to 220 agents on 20 machines: from the call until each has it at home."""
    with _many(bench) as made:
        services, homes = made[DESK].services, _homes(made)
        began = time.perf_counter()
        sent = services.messages.send(services.agents.get("admin"), Draft(content=KILOBYTE.decode()))
        called, part = time.perf_counter() - began, id8(sent.message_id)
        eventually(lambda: all(_holds(mailbox, part) for mailbox in homes))
        took = time.perf_counter() - began
        return Finding(took, f"{len(homes)} receivers {took:.1f} s, the call {called:.1f} s")


def across_many(bench: Bench) -> Finding:
    """From the call of `send` until the file is at its receiver's home, among 20 machines beside among two."""
    with _many(bench) as made, _two(bench) as two:
        measured, least = in_turns(TIMES, lambda: _across(made, "m19-1"), lambda: _across(two, "worker-a"))
    return Finding(measured / least, ms(measured), ms(least))


def _across(made: Machines, receiver: str) -> float:
    services = made[DESK].services
    home = made[services.agents.get(receiver).machine or ""]
    began = time.perf_counter()
    sent = services.messages.send(services.agents.get("admin"), Draft(content=KILOBYTE.decode(), receiver_id=receiver))
    _spin(lambda: _holds(home.path / "ipc" / receiver, id8(sent.message_id)))
    return time.perf_counter() - began


@contextmanager
def _many(bench: Bench) -> Iterator[Machines]:
    """Twenty machines with eleven agents each."""
    with machines(bench.place(), *(f"m{number}" for number in range(1, MACHINES)), delay=None) as made:
        for name, machine in made.members.items():
            for number in range(AGENTS):
                machine.services.agents.add(Agent(id=f"{name}-{number}", parent_id="admin"))
        for machine in made.members.values():
            eventually(lambda machine=machine: len(machine.services.agents.all()) >= MACHINES * AGENTS + 2)  # type: ignore[misc]
        yield made


def _homes(made: Machines) -> list[Path]:
    return [made[name].path / "ipc" / f"{name}-{number}" for name in made.members for number in range(AGENTS)]


def relay_memory(bench: Bench) -> Finding:
    """The private memory of an idle relay."""
    with _two(bench) as made:
        lines = Path(f"/proc/{made[LAPTOP].relay_pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        private = sum(int(line.split()[1]) for line in lines if line.startswith("Private"))
        return Finding(private / 1024, f"{private / 1024:.0f} MB")


def relay_idle(bench: Bench) -> Finding:
    """The processor time of an idle relay."""
    with _two(bench) as made:
        before, began = processor_seconds(made[LAPTOP].relay_pid), time.monotonic()
        time.sleep(IDLE_SECONDS)
        share = (processor_seconds(made[LAPTOP].relay_pid) - before) / (time.monotonic() - began) * 100
        return Finding(share, f"{share:.2f} %")


def flood(bench: Bench) -> Finding:
    """The longest way of another machine's message while one floods the hub, with junk, with messages and with agents'
    records, as fast as it takes them."""
    many, worst = bench.scale.flood, {}
    with machines(bench.place(), LAPTOP, SHED, delay=None) as made:
        for kind in (test_floods.no_letters, test_floods.letters, test_floods.agents):
            values = kind(made[LAPTOP].sharing.membership.names)
            flooding = threading.Thread(target=as_machine, args=(made[LAPTOP], test_floods.flood(values, many)))
            flooding.start()
            worst[kind.__name__] = max(_ways(made[SHED], made[DESK], flooding))
    return Finding(max(worst.values()), ", ".join(f"{name} {took:.2f} s" for name, took in worst.items()))


def _ways(there: Machine, here: Machine, flooding: threading.Thread) -> Iterator[float]:
    """Yields the seconds that messages from there to here take, one after the other, until the flood is dealt with."""
    services, mailbox = there.services, here.path / "ipc" / "admin"
    sender, position, passed = services.agents.get("worker-b"), 0, FLOWS
    while flooding.is_alive() or passed >= FLOWS:
        began = time.perf_counter()
        sent = services.messages.send(sender, Draft(content=KILOBYTE.decode(), receiver_id="admin"))
        eventually(partial(_holds, mailbox, id8(sent.message_id)))
        yield time.perf_counter() - began
        time.sleep(FLOOD_LETTER_SECONDS)
        before, position = position, here.sharing.status()["position"]
        passed = position - before


def _holds(mailbox: Path, part: str) -> bool:
    return any(part in name for name in os.listdir(mailbox))  # noqa: PTH208 - 20 000 names


@contextmanager
def _two(bench: Bench) -> Iterator[Machines]:
    with machines(bench.place(), LAPTOP) as made:
        yield made


def _beside_floor(bench: Bench, made: Machines, once: Callable[[int], float]) -> Finding:
    """Measures `once` alternately with the floor: one value published to the same hub and one durable file."""
    numbers, directory = itertools.count(), bench.place()
    with _publishing(made) as publish:

        def floor() -> None:
            publish()
            durable_write(directory, KILOBYTE)

        measured, least = in_turns(TIMES, lambda: once(next(numbers)), lambda: seconds(floor))
    return Finding(measured / least, ms(measured), ms(least))


@contextmanager
def _publishing(made: Machines) -> Iterator[Callable[[], object]]:
    membership, share = made[LAPTOP].sharing.membership, made[LAPTOP].sharing.share
    numbers = itertools.count()
    with asyncio.Runner() as runner:
        client = runner.run(connected_once(membership.urls, share.seed(), None, LAPTOP))
        hub = Hub(membership.names, LAPTOP, client=client)

        async def publish() -> None:
            name = str(next(numbers))
            await hub.put(hub.names.own(LAPTOP, "ses", "x", name), KILOBYTE, name, {}, expected=0)

        yield lambda: runner.run(publish())
        runner.run(client.close())


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
