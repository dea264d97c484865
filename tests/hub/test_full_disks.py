"""A disk that is full for a while: relays wait, say why, and go on by themselves; nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from multi_agent_mcp.errors import HubUnreachable, StorageError
from multi_agent_mcp.hub.sharing import join
from multi_agent_mcp.system.process import is_alive
from tests.hub.support import DESK, LAPTOP, Machine, Machines, Wire, eventually, machines
from tests.hub.test_machines import send

SIZE = "40m"
LETTERS = 40
Mounted = Callable[[str], Path]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Mounted]:
    """Gives a machine's directory, under `tmp_path`, a small file system of its own."""
    places: list[Path] = []

    def mount(name: str) -> Path:
        place = tmp_path / name
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "tmpfs", str(place)],
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"mount is not allowed here: {done.stderr.decode().strip()}")
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def full(place: Path) -> Iterator[None]:
    """Fills the file system of this directory to the last block."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1 << 20)):
            pass
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    try:
        yield
    finally:
        filler.unlink()


def waits_for_room(machine: Machine) -> bool:
    return bool(machine.sharing.status().get("unwritten"))


def letters_of(machine: Machine) -> list[str]:
    return sorted(message.content for message in machine.services.workspace.mailbox("admin").history())


def test_a_relay_whose_disk_is_full_waits_and_goes_on_by_itself(tmp_path: Path, small: Mounted) -> None:
    place = small(LAPTOP)
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        pid = laptop.relay_pid
        with full(place):
            for number in range(LETTERS):
                send(desk, "admin", "worker-a", f"letter {number}")
            eventually(lambda: waits_for_room(laptop))
            assert "No space left" in laptop.sharing.status()["unwritten"]["reason"]
            noted = laptop.services.workspace.relay_state  # which has no room either
            eventually(lambda: noted.read()["relay"] and noted.read()["unwritten"])
            with pytest.raises(StorageError):
                send(laptop, "worker-a", "admin", "there is no room for this")
            assert is_alive(pid, None)
        eventually(lambda: laptop.has("worker-a", f"letter {LETTERS - 1}"))
        eventually(lambda: not waits_for_room(laptop))
        assert laptop.relay_pid == pid
        send(laptop, "worker-a", "admin", "after")
        eventually(lambda: desk.has("admin", "after"))


def test_a_relay_on_the_hubs_machine_outlives_a_full_disk_and_so_does_the_team(tmp_path: Path, small: Mounted) -> None:
    place = small(DESK)
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        pid = desk.relay_pid
        with full(place):
            for number in range(LETTERS):
                send(laptop, "worker-a", "admin", f"{number:02}" + "x" * 4096)
            eventually(lambda: waits_for_room(desk))
            assert is_alive(pid, None)
        eventually(lambda: len(letters_of(desk)) == LETTERS)
        assert letters_of(desk) == letters_of(laptop)
        assert desk.relay_pid == pid
        send(desk, "admin", "worker-a", "after")
        eventually(lambda: laptop.has("worker-a", "after"))


def test_a_hub_that_ends_while_its_disk_is_full_is_started_again(tmp_path: Path, small: Mounted) -> None:
    place = small(DESK)
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        server, relay = desk.sharing.server, desk.relay_pid
        assert server is not None
        hub = server.pid()
        assert hub is not None
        with full(place):
            os.kill(hub, 9)
            eventually(lambda: waits_for_room(desk))
        eventually(lambda: server.pid() not in (None, hub))
        assert desk.relay_pid == relay
        send(laptop, "worker-a", "admin", "after")
        eventually(lambda: desk.has("admin", "after"))


def test_a_relay_that_is_told_to_end_while_its_disk_is_full_ends(tmp_path: Path, small: Mounted) -> None:
    place = small(LAPTOP)
    with machines(tmp_path, LAPTOP) as made:
        laptop = made[LAPTOP]
        with full(place):
            send(made[DESK], "admin", "worker-a", "x" * 65536)
            eventually(lambda: waits_for_room(laptop))
            assert laptop.sharing.stop_relay()
        laptop.start()
        eventually(lambda: laptop.has("worker-a", "x" * 65536))


def test_a_machine_that_joins_on_a_full_disk_gets_the_rest_once_there_is_room(tmp_path: Path, small: Mounted) -> None:
    place = small(LAPTOP)
    with machines(tmp_path) as made:
        desk = made[DESK]
        for number in range(LETTERS):
            send(desk, "owner", "admin", f"letter {number}")
        laptop = made.joined(LAPTOP)
        laptop.sharing.start_relay()
        eventually(lambda: laptop.sharing.share.relay_runs)
        with full(place):
            for number in range(LETTERS):
                send(desk, "owner", "admin", f"more {number}")
            eventually(lambda: waits_for_room(laptop))
        laptop.sharing.wait_until_complete(lambda _: None, 30)
        eventually(lambda: letters_of(laptop) == letters_of(desk))


def test_a_token_that_a_full_disk_refused_can_be_used_again(tmp_path: Path, small: Mounted) -> None:
    place = small(DESK)
    with machines(tmp_path) as made:
        token = made.token()
        with full(place), pytest.raises(HubUnreachable, match="hub_disk"):
            join(token, tmp_path / "later", LAPTOP, adopt=False)
        assert join(token, tmp_path / "later", LAPTOP, adopt=False).membership.machine == LAPTOP


@contextmanager
def joining(made: Machines, machine: Machine, errors: Path) -> Iterator[tuple[subprocess.Popen[bytes], Wire]]:
    """`join`, over a wire that is cut before anything has come; its relay runs."""
    wire = machine.wire = Wire(made.port)
    made.members[machine.name] = machine
    command = [sys.executable, "-m", "multi_agent_mcp", "join", str(made.token(wire=wire)), "--json"]
    arguments = ["--name", machine.name, "--root", str(machine.root)]
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "LC_ALL": "C"},
            # A shell starts background jobs with SIGINT ignored, which children inherit (POSIX, 2.11).
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        ) as process,
    ):
        eventually(lambda: machine.sharing.share.membership() is not None)
        wire.cut()
        eventually(lambda: machine.sharing.status()["relay"])
        try:
            yield process, wire
        finally:
            process.kill()


def test_join_ends_with_one_sentence_when_its_relay_dies(tmp_path: Path) -> None:
    with machines(tmp_path) as made:
        send(made[DESK], "owner", "admin", "for everybody")
        laptop = Machine(LAPTOP, tmp_path / LAPTOP)
        errors = tmp_path / "errors"
        with joining(made, laptop, errors) as (process, wire):
            eventually(lambda: "no connection to the hub" in errors.read_text())
            laptop.signal(signal.SIGKILL)
            output, _ = process.communicate(timeout=60)
            wire.heal()
        assert process.returncode == 1
        answer = json.loads(output)
        assert answer["error"] == "hub_unreachable"
        assert "multi-agent-mcp relay --start" in answer["message"]
        laptop.start()
        assert laptop.has("admin", "for everybody")


def test_join_that_is_interrupted_says_that_the_rest_still_comes(tmp_path: Path) -> None:
    with machines(tmp_path) as made:
        send(made[DESK], "owner", "admin", "for everybody")
        laptop, errors = Machine(LAPTOP, tmp_path / LAPTOP), tmp_path / "errors"
        with joining(made, laptop, errors) as (process, wire):
            eventually(lambda: "no connection to the hub" in errors.read_text())
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
            wire.heal()
        assert f"{LAPTOP} has joined" in errors.read_text()
        eventually(lambda: laptop.has("admin", "for everybody"))


def test_join_says_that_it_waits_for_room_and_ends_once_there_is(tmp_path: Path, small: Mounted) -> None:
    place = small(LAPTOP)
    with machines(tmp_path) as made:
        send(made[DESK], "owner", "admin", "x" * 65536)
        errors = tmp_path / "errors"
        with joining(made, laptop := Machine(LAPTOP, place), errors) as (process, wire):
            with full(place):
                wire.heal()
                eventually(lambda: "No space left on device" in errors.read_text())
            output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        assert laptop.has("admin", "x" * 65536)
