"""What people are told when something is wrong between machines, and what they are told to do about it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.system.process import is_alive
from tests.hub.support import DESK, LAPTOP, Machine, Machines, eventually, machines
from tests.hub.test_looking import command, row, seen, sent, states, trace, waiting
from tests.hub.test_machines import send, task_for

LONG_AGO = (1_000_000_000, 1_000_000_000)


@contextmanager
def hanging(machine: Machine) -> Iterator[int]:
    """The machine's relay is stopped (it goes on afterwards, if it is still there), and has noted nothing for long."""
    pid = machine.relay_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: has_hung(machine))
        yield pid
    finally:
        if is_alive(pid, None):
            os.kill(pid, signal.SIGCONT)


def has_hung(machine: Machine) -> bool:
    os.utime(machine.path / ".share" / "state.json", LONG_AGO)
    return seen(machine).exchange == "relay_hangs"


def problems(machine: Machine) -> dict[str, dict[str, Any]]:
    """What `doctor` calls a problem between machines or with the disk, by its subject."""
    found = json.loads(command(machine, "doctor", "--json").stdout)["findings"]
    return {item["subject"]: item for item in found if item["level"] == "problem"}


def test_a_relay_that_hangs_is_said_to_do_so_everywhere_with_its_process_and_what_helps(laptop: Machine) -> None:
    help_ = "multi-agent-mcp relay --stop; multi-agent-mcp relay --start"
    with hanging(laptop) as pid:
        words = f"The relay of this machine (process {pid}) does not answer"
        refused = command(laptop, "relay", "--start")
        assert (refused.returncode, words in refused.stderr) == (1, True)
        assert words in command(laptop, "machines").stdout
        assert help_ in command(laptop, "machines").stdout
        found = problems(laptop)[LAPTOP]
        assert (words.lower() in found["finding"].lower(), found["repair"]) == (True, help_)
        (item,) = waiting(laptop)
        assert (words.lower() in item.text.lower(), item.command) == (True, help_)
        assert send(laptop, "worker-a", "admin", "while it hangs") == ("queued", "relay_hangs")
        assert (seen(laptop).exchange, seen(laptop).relay_pid) == ("relay_hangs", pid)
    eventually(lambda: seen(laptop).exchange == "connected")


def test_a_relay_that_hangs_is_ended_and_another_one_started(laptop: Machine) -> None:
    with hanging(laptop) as pid:
        stopped = command(laptop, "relay", "--stop")
        assert (stopped.returncode, stopped.stdout) == (0, "The relay has ended.\n")
        assert not is_alive(pid, None)
    assert seen(laptop).exchange == "no_relay"
    assert command(laptop, "relay", "--start").returncode == 0
    eventually(lambda: seen(laptop).exchange == "connected")


def test_a_letter_too_large_to_travel_is_named_and_not_said_to_be_queued(desk: Machine, laptop: Machine) -> None:
    name = "ipc/worker-a/long.md"
    letter = desk.path / name
    letter.write_text("---\nsender_id: admin\n---\n" + "x" * (5 << 20), encoding="utf-8")
    eventually(lambda: trace(desk, "long").get("reason") == "hub_too_large")
    assert trace(desk, "long")["state"] == "stored"
    found = problems(desk)[name]
    assert "5.0 MiB, and the hub accepts at most 4 MiB" in found["finding"]
    assert found["repair"]
    assert "larger than the 4 MiB" in command(desk, "trace", "long").stdout
    letter.write_text("---\nsender_id: admin\n---\nshorter", encoding="utf-8")
    eventually(lambda: laptop.has("worker-a", "shorter"))
    eventually(lambda: trace(desk, "long")["reason"] == "other_machine")
    assert name not in problems(desk)


def test_an_edit_that_keeps_size_and_time_travels_like_any_other(desk: Machine, laptop: Machine) -> None:
    task_id = task_for(desk, "worker-a")
    eventually(lambda: laptop.services.workspace.tasks.find(task_id))
    path = laptop.path / "tasks" / "worker-a" / f"{task_id}.md"
    eventually(lambda: not laptop.sharing.status()["pending"])
    before = path.stat()
    with path.open("r+b") as file:
        data = file.read()
        file.seek(data.index(b"title: Build"))
        file.write(b"title: Paint")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    eventually(lambda: desk.services.workspace.tasks.get(task_id).title.startswith("Paint"))
