"""Problems between machines: the descriptions and the remedies that people are shown."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.hub.sharing import join
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
    """Subject → the problem that `doctor` reports between machines or with the disk."""
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
    help_ = "multi-agent-mcp relay --start"
    late = ("agent", "add", "late", "--parent", "admin")
    refused = command(laptop, *late)
    assert (refused.returncode, help_ in refused.stderr) == (1, True)
    assert help_ in command(laptop, "machines").stdout
    (item,) = waiting(laptop)
    assert (item.command, problems(laptop)[LAPTOP]["repair"]) == (help_, help_)
    assert command(laptop, *shlex.split(item.command)[1:]).returncode == 0
    eventually(lambda: seen(laptop).exchange == "connected")
    assert waiting(laptop) == []
    assert command(laptop, *late).returncode == 0


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Machines]:
    """A desk, and a laptop whose disk has eight megabytes."""
    place = tmp_path / LAPTOP
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mount is not allowed here")
    try:
        with machines(tmp_path, LAPTOP) as made:
            yield made
    finally:
        subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)


def test_a_full_disk_ends_no_relay_and_is_in_every_doctor(full: Machines) -> None:
    desk, laptop = full[DESK], full[LAPTOP]
    pid, filler = laptop.relay_pid, laptop.root / "filler"
    with suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(bytes(1 << 12))
    sent(desk, "admin", "worker-a", "x" * (1 << 16))
    eventually(lambda: row(desk, LAPTOP).troubles == ("disk",))
    found = problems(desk)[LAPTOP]
    assert "its disk does not take what other machines write" in found["finding"]
    assert found["repair"] == "on laptop: multi-agent-mcp doctor"
    assert "laptop: its disk does not take" in command(desk, "machines").stdout
    assert any("No space left on device" in item["finding"] for item in problems(laptop).values())
    assert is_alive(pid, None)
    filler.unlink()
    eventually(lambda: laptop.has("worker-a", "x" * (1 << 16)))
    eventually(lambda: row(desk, LAPTOP).troubles == ())
    assert laptop.relay_pid == pid


def test_what_the_disk_does_not_take_is_named_with_the_reason(desk: Machine, laptop: Machine) -> None:
    place = laptop.path / "ipc" / "worker-a"
    aside = place.rename(place.with_name(".aside"))
    place.write_text("where a directory should be")
    try:
        message_id = sent(desk, "admin", "worker-a", "nowhere to put it")
        eventually(lambda: seen(laptop).unwritten is not None)
        found = problems(laptop)[LAPTOP]
        assert "Not a directory" in found["finding"]
        eventually(lambda: row(desk, LAPTOP).troubles == ("disk",))
    finally:
        place.unlink()
        aside.rename(place)
    eventually(lambda: laptop.services.tracking.trace(message_id))
    eventually(lambda: seen(laptop).unwritten is None and row(desk, LAPTOP).troubles == ())


def test_a_message_too_large_to_travel_is_named_and_not_said_to_be_queued(desk: Machine, laptop: Machine) -> None:
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


def test_a_hub_that_was_replaced_is_one_problem_with_its_repair(tmp_path: Path) -> None:
    with machines(tmp_path) as made:
        desk = made[DESK]
        task_for(desk, "admin")
        eventually(lambda: not desk.sharing.status()["pending"])
        desk.sharing.stop_relay()
        shutil.rmtree(desk.path / ".share" / "hub" / "data")
        desk.sharing.start_relay()
        eventually(lambda: seen(desk).exchange == "replaced")
        ((subject, found),) = problems(desk).items()
        assert (subject, found["repair"]) == (DESK, "multi-agent-mcp share --reseed, where the hub runs")


def test_of_an_agent_whose_machine_is_away_nothing_is_said_that_nobody_knows(desk: Machine, laptop: Machine) -> None:
    task_id = task_for(desk, "worker-a")
    eventually(lambda: laptop.services.workspace.tasks.find(task_id))
    session = laptop.services.sessions.open("worker-a", "task")
    try:
        laptop.services.task_changes.set_status(laptop.services.agents.get("worker-a"), task_id, "in_progress")
        eventually(lambda: desk.services.sessions.alive("worker-a"))
        eventually(lambda: desk.services.workspace.tasks.get(task_id).status == "in_progress")
        message_id = sent(desk, "admin", "worker-a", "before it left")
        eventually(lambda: trace(desk, message_id).get("reason") == "other_machine")
        laptop.sharing.stop_relay()
        eventually(lambda: row(desk, LAPTOP).state == "away")
        since = format_time(row(desk, LAPTOP).since or desk.services.clock())
        assert f"active, last known {since}" in command(desk, "sessions").stdout
        (known,) = json.loads(command(desk, "sessions", "--json").stdout)["sessions"]
        assert (known["alive"], known["last_known_at"]) == (None, since)
        assert trace(desk, message_id)["reason"] == "machine_away"
        stopped = command(desk, "task", "status", task_id, "blocked", "--reason", "stop")
        assert "worker-a is interrupted when its machine laptop, which is away, is back" in stopped.stdout
        paused = command(desk, "interrupt", "worker-a", "--action", "pause", "--reason", "lunch")
        assert "the machine laptop is away: worker-a is notified when it is back" in paused.stdout
        laptop.start()
        eventually(lambda: trace(desk, message_id)["reason"] == "other_machine")
    finally:
        laptop.start()
        session.end()
    eventually(lambda: "last known" not in command(desk, "sessions").stdout)


def test_a_relay_that_has_just_begun_does_not_say_that_the_others_are_away(desk: Machine, laptop: Machine) -> None:
    laptop.sharing.stop_relay()
    eventually(lambda: row(desk, LAPTOP).state == "away")
    desk.sharing.stop_relay()
    told = set()

    def is_away() -> bool:
        found = row(desk, LAPTOP)
        told.add((found.state, found.since is not None))
        return found.state == "away"

    desk.start()
    eventually(lambda: seen(desk).relay_pid == desk.relay_pid)
    eventually(is_away)
    laptop.start()
    assert told == {("unknown", False), ("away", True)}
    eventually(lambda: row(desk, LAPTOP).state == "up")


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


def test_two_relays_with_the_key_of_one_machine_are_noticed_and_a_copy_takes_no_agents(
    two: Machines, tmp_path: Path
) -> None:
    desk, laptop = two[DESK], two[LAPTOP]
    shutil.copytree(laptop.root, tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock"))
    copy = Machine(LAPTOP, tmp_path / "copy")
    try:
        copy.sharing.start_relay()
        for machine in (laptop, copy, desk):
            eventually(lambda machine=machine: row(machine, LAPTOP).troubles == ("double",))  # type: ignore[misc]
            found = problems(machine)[LAPTOP]
            assert "two relays say that they are this machine" in found["finding"]
            assert "multi-agent-mcp leave" in found["repair"]
        send(copy, "worker-a", "admin", "from the copy")
        eventually(lambda: desk.has("admin", "from the copy") and laptop.has("admin", "from the copy"))
    finally:
        assert command(copy, "leave").returncode == 0
    eventually(lambda: row(laptop, LAPTOP).troubles == () and states(desk)[LAPTOP] == "up")
    join(two.token(), copy.root, "copied", adopt=True)
    try:
        copy.start()
        for machine in (desk, laptop, copy):
            assert machine.services.agents.get("worker-a").machine == LAPTOP
    finally:
        copy.sharing.leave()
