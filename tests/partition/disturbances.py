"""Disturbances of the machines: short ones while all agents write, and ways of being cut off from the hub."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from nats.errors import Error

from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.hub.administration import connected_once
from tests.hub.support import DESK, Machine, Machines, eventually
from tests.partition.writers import Writer

FLOOD = 300
"""The number of values of each kind in a flood."""


def disturbances(made: Machines, writers: list[Writer], chance: random.Random) -> dict[str, Callable[[], None]]:
    """Kind → a function that makes one disturbance of it."""
    away = chance.choice([machine for machine in made.members.values() if machine.wire is not None])
    machine = chance.choice(list(made.members.values()))
    return {
        "link cut": lambda: cut(away, chance.uniform(0.2, 1.5)),
        "link deaf or mute": lambda: cut_one_way(away, chance),
        "relay stopped": lambda: pause(machine.relay_pid, chance.uniform(0.2, 1.0)),
        "relay killed": lambda: restart(machine),
        "hub stopped": lambda: pause(hub_pid(made), chance.uniform(0.2, 1.0)),
        "hub killed": lambda: kill(hub_pid(made)),
        "flood": lambda: flood(away, chance),
        **({"writer killed": chance.choice(writers).kill} if writers else {}),
    }


def flood(machine: Machine, chance: random.Random) -> None:
    """Floods the hub with this machine's key: messages, records and parts of logs that are none."""
    membership, share = machine.sharing.membership, machine.sharing.share
    names, mark = membership.names, chance.randrange(1 << 32)
    junk = [names.own(machine.name, "msg", "admin", f"{mark}-{number}.md") for number in range(FLOOD)]
    junk += [names.shared(f"agent.ghost{mark}-{number}") for number in range(FLOOD)]
    junk += [names.log(machine.name, "audit", "20260101")] * FLOOD

    async def publish() -> None:
        client = await connected_once(membership.urls, share.seed(), share.certificate(), machine.name)
        for subject in junk:
            await client.publish(subject, b"\xff", headers={"Mam-Time": "0", "Mam-Offset": str(10**9)})
        await client.close()

    with suppress(HubUnreachable, Error, OSError):  # it may be away
        asyncio.run(publish())


def cut(machine: Machine, seconds: float) -> None:
    assert machine.wire is not None
    machine.wire.cut()
    time.sleep(seconds)
    machine.wire.heal()


def cut_one_way(machine: Machine, chance: random.Random) -> None:
    """Loses what comes from one side, while the other side hears no end."""
    assert machine.wire is not None
    setattr(machine.wire, chance.choice(("is_deaf", "is_mute")), True)
    cut_after = chance.uniform(0.2, 6.0)  # up to longer than an answer is waited for
    time.sleep(cut_after)
    cut(machine, 0.0)


def pause(pid: int | None, seconds: float) -> None:
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)


def restart(machine: Machine) -> None:
    machine.signal(signal.SIGKILL)
    assert machine.sharing.start_relay()


def kill(pid: int | None) -> None:
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, signal.SIGKILL)


def hub_pid(made: Machines) -> int | None:
    server = made[DESK].sharing.server
    return None if server is None else server.pid()


# Ways of being away: within, no machine reaches the hub.


@contextmanager
def links_cut(made: Machines) -> Iterator[None]:
    """The hub's own machine has no link that could be cut: its relay dies."""
    made[DESK].signal(signal.SIGKILL)
    for machine in made.members.values():
        if machine.wire is not None:
            machine.wire.cut()
    eventually(lambda: not any(machine.sharing.status()["connected"] for machine in made.members.values()))
    try:
        yield
    finally:
        heal(made)


@contextmanager
def relays_killed(made: Machines) -> Iterator[None]:
    for machine in made.members.values():
        machine.signal(signal.SIGKILL)
    try:
        yield
    finally:
        heal(made)


@contextmanager
def hub_stopped(made: Machines) -> Iterator[None]:
    """Stops the hub: it keeps its connections open but answers nothing."""
    eventually(lambda: hub_pid(made), "the hub was not started again")
    pid = hub_pid(made)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def hub_dead(made: Machines) -> Iterator[None]:
    """The relay that would start it again died just before."""
    made[DESK].signal(signal.SIGKILL)
    kill(hub_pid(made))
    try:
        yield
    finally:
        heal(made)


WAYS = (links_cut, relays_killed, hub_stopped, hub_dead)


def heal(made: Machines) -> None:
    for machine in made.members.values():
        if machine.wire is not None:
            machine.wire.heal()
        machine.sharing.start_relay()
