"""Rare accidents of a team: a hub that is restored from an old copy, a machine that loses its files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from multi_agent_mcp.errors import HubReplaced
from tests.hub.support import DESK, HOMES, Machine, Machines, eventually
from tests.partition.disturbances import restart
from tests.partition.verdict import wait_until_settled


def restore_old_hub(made: Machines, base: Path, online: Callable[[], None], away: Callable[[], None]) -> None:
    """Restores an old copy of the hub, after `online` has written something that the copy lacks; `away` writes while
    everybody knows that the hub is too old."""
    desk = made[DESK]
    data = desk.path / ".share" / "hub" / "data"
    wait_until_settled(made)
    desk.sharing.stop_relay()
    shutil.copytree(data, base / "copy")
    desk.sharing.start_relay()
    online()
    wait_until_settled(made)
    desk.sharing.stop_relay()
    shutil.rmtree(data)
    shutil.move(base / "copy", data)
    desk.sharing.start_relay()
    for machine in made.members.values():
        eventually(lambda machine=machine: machine.sharing.status().get("replaced"), "nobody noticed it")  # type: ignore[misc]
        with pytest.raises(HubReplaced):
            machine.services.workspace.authority.require()
    away()
    desk.sharing.reseed()
    desk.sharing.start_relay()
    wait_until_settled(made)
    assert not any(machine.sharing.status()["replaced"] for machine in made.members.values())


def wipe(made: Machines, name: str, delay: float) -> Machine:
    """Deletes the machine's files; it joins again, and its relay is killed before it has everything. Items that only
    this machine had would be lost."""
    wait_until_settled(made)
    old = made[name]
    old.sharing.stop_relay()
    assert old.wire is not None
    old.wire.close()
    shutil.rmtree(old.root)
    machine = made.joined(name, delay=delay, replaces=name)
    machine.sharing.start_relay()
    eventually(lambda: (machine.sharing.share.record("position").read() or {}).get("sequence"))
    restart(machine)  # in the midst of getting everything back
    wait_until_settled(made)
    for agent_id in HOMES[name]:
        eventually(lambda agent_id=agent_id: (machine.path / "secrets" / f"{agent_id}.key").exists())  # type: ignore[misc]
    return machine
