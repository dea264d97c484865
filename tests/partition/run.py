"""Three machines whose links are cut and slow, whose relays are stopped and killed, and whose hub dies, while writers
send letters: what was acknowledged is everywhere once, and the files are the same everywhere in the end."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from multi_agent_mcp.services.tasks.creation import NewTask
from tests.hub.support import DESK, HOMES, LAPTOP, SHED, Machine, Machines, eventually, machines

DELAY = 0.02
TASKS = 8
SETTLING_SECONDS = 120.0
WRITERS = {DESK: "admin", LAPTOP: "worker-a", SHED: "worker-b"}
SAME_EVERYWHERE = ("ipc", "notifications", "tasks", "conversations", "delegations")
MARK = re.compile(rb"^hub: .*\n", re.MULTILINE)


@dataclass
class Writer:
    """A process of one machine that sends its letters; killed now and then and started again where it was."""

    machine: Machine
    agent_id: str
    letters: int
    acknowledged: list[str] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None

    def work(self, stop: threading.Event) -> None:
        """Until all letters are sent. A letter whose process died before it said so may be there or not."""
        while self._next < self.letters and not stop.is_set():
            call = [sys.executable, "-m", "tests.partition.writer", str(self.machine.root), self.agent_id]
            call += [str(self._next), str(self.letters)]
            with subprocess.Popen(call, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
                self.process = process
                assert process.stdout is not None
                for line in process.stdout:
                    self.acknowledged.append(line.rstrip("\n"))

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()

    @property
    def _next(self) -> int:
        """After a death one number is left out: nobody knows whether it was sent."""
        return max((int(words.split()[1]) for words in self.acknowledged), default=-1) + 1 + bool(self.process)


def run(base: Path, letters: int, say: Callable[[str], object] = lambda _: None, seed: int = 1) -> list[str]:
    """Plays it; returns what is wrong in the end."""
    chance = random.Random(seed)  # noqa: S311 - to be played again
    with machines(base, LAPTOP, SHED, delay=DELAY) as made:
        services = made[DESK].services
        tasks = services.task_creation.create(
            services.agents.get("admin"), [NewTask(title=f"task {number}") for number in range(TASKS)]
        )
        for machine in made.members.values():
            eventually(lambda machine=machine: len(machine.services.workspace.tasks.all()) == len(tasks))  # type: ignore[misc]
        writers = [Writer(made[name], agent_id, letters // len(WRITERS)) for name, agent_id in WRITERS.items()]
        stop = threading.Event()
        threads = [threading.Thread(target=writer.work, args=(stop,)) for writer in writers]
        for thread in threads:
            thread.start()
        done: Counter[str] = Counter()
        try:
            while any(thread.is_alive() for thread in threads):
                name, disturb = chance.choice(list(disturbances(made, writers, chance)))
                disturb()
                done[name] += 1
                time.sleep(chance.uniform(0.1, 0.4))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        say(f"disturbances: {dict(done)}")
        heal(made)
        settled = wait_until_settled(made)
        say(
            f"{sum(len(writer.acknowledged) for writer in writers)} letters acknowledged; settled after {settled:.1f} s"
        )
        return [*missing(made, writers), *differing(made), *faults(made)]


def disturbances(
    made: Machines, writers: list[Writer], chance: random.Random
) -> Iterator[tuple[str, Callable[[], None]]]:
    away = made[chance.choice([LAPTOP, SHED])]
    machine = made[chance.choice([DESK, LAPTOP, SHED])]
    yield "link cut", lambda: cut(away, chance.uniform(0.2, 1.5))
    yield "relay stopped", lambda: pause(machine, chance.uniform(0.2, 1.0))
    yield "relay killed", lambda: restart(machine)
    yield "hub killed", lambda: kill_hub(made[DESK])
    yield "writer killed", chance.choice(writers).kill


def cut(machine: Machine, seconds: float) -> None:
    assert machine.wire is not None
    machine.wire.cut()
    time.sleep(seconds)
    machine.wire.heal()


def pause(machine: Machine, seconds: float) -> None:
    pid = machine.relay_pid
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)


def restart(machine: Machine) -> None:
    machine.signal(signal.SIGKILL)
    machine.sharing.start_relay()


def kill_hub(machine: Machine) -> None:
    server = machine.sharing.server
    if server is not None and (pid := server.pid()) is not None:
        os.kill(pid, signal.SIGKILL)


def heal(made: Machines) -> None:
    for machine in made.members.values():
        if machine.wire is not None:
            machine.wire.heal()
        machine.sharing.start_relay()


def wait_until_settled(made: Machines) -> float:
    """Until every machine has sent and received everything, seconds."""
    began = time.monotonic()
    while time.monotonic() - began < SETTLING_SECONDS:
        states = [machine.sharing.status() for machine in made.members.values()]
        quiet = all(state.get("synchronised") and not state.get("pending") for state in states)
        if quiet and not differing(made):
            break
        time.sleep(0.2)
    return time.monotonic() - began


def missing(made: Machines, writers: list[Writer]) -> list[str]:
    """Letters that were acknowledged and are not once in their mailbox, on any machine."""
    wrong = []
    acknowledged = [words for writer in writers for words in writer.acknowledged]
    for machine in made.members.values():
        mailboxes = [machine.services.workspace.mailbox(agent) for agents in HOMES.values() for agent in agents]
        found = Counter(message.content for mailbox in mailboxes for message in mailbox.history())
        wrong += [
            f"{machine.name}: {words!r} is there {found[words]} times" for words in acknowledged if found[words] != 1
        ]
        wrong += [f"{machine.name}: {words!r} is there {times} times" for words, times in found.items() if times > 1]
    return wrong


def differing(made: Machines) -> list[str]:
    """Files that are not the same on all machines, but for the hub's mark."""
    replicas = {name: contents(machine.path) for name, machine in made.members.items()}
    names = set().union(*replicas.values())
    return [
        f"{name} differs: {sorted(machine for machine, files in replicas.items() if name in files)}"
        for name in sorted(names)
        if len({files.get(name) for files in replicas.values()}) > 1
    ]


def faults(made: Machines) -> list[str]:
    """What a relay did not expect."""
    logs = {name: (machine.path / ".share" / "relay.log").read_text() for name, machine in made.members.items()}
    return [f"{name}: {log[log.index('Traceback') :][-2000:]}" for name, log in logs.items() if "Traceback" in log]


def contents(base: Path) -> dict[str, bytes]:
    found = {}
    for directory in SAME_EVERYWHERE:
        for path in (base / directory).rglob("*.md"):
            with suppress(FileNotFoundError):
                found[str(path.relative_to(base))] = MARK.sub(b"", path.read_bytes())
    return found
