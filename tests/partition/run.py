"""Five machines whose links are cut and slow, whose relays are stopped and killed, and whose hub dies, while writers
send messages: in the end every acknowledged one exists everywhere once, and the files are the same everywhere."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from multi_agent_mcp.services.tasks.board import NewTask
from tests.hub.support import BARN, DESK, LAPTOP, LOFT, SHED, Machines, eventually, machines
from tests.partition.accidents import restore_old_hub, wipe
from tests.partition.disturbances import WAYS, disturbances, heal
from tests.partition.hands import Hands
from tests.partition.verdict import aside, differing, faults, missing, wait_until_settled
from tests.partition.writer import NOTED
from tests.partition.writers import Writer

DELAY = 0.02
TASKS = 8
WRITERS = {DESK: "admin", LAPTOP: "worker-a", SHED: "worker-b", LOFT: "worker-c", BARN: "worker-d"}
"""The agents that write, by machine."""
MESSAGES_BETWEEN = 20
"""The number of messages to be written between two disturbances, less in a small run."""
OFFLINE_OF = 2 / 3
"""The share of the messages to be written offline; at least half of that must be."""


@dataclass
class Play:
    """One run: in every round all machines write while they are away, then while they are disturbed."""

    made: Machines
    base: Path
    messages: int
    rounds: int
    say: Callable[[str], object]
    chance: random.Random
    hands: Hands
    work_on_tasks: bool = False
    writers: list[Writer] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)

    def run(self) -> list[str]:
        """Plays it; returns what is wrong in the end."""
        self.prepare()
        self.hands.prepare()
        accidents = {self.rounds // 3: self.old_hub, 2 * self.rounds // 3: self.wiped_machine}
        number = 0
        while self.written < self.messages or number <= max(accidents):
            if number in accidents:
                accidents[number]()
            self.round(number)
            number += 1
        self.settle()
        return [*self.missed_aims(), *self.wrong(), *self.hands.wrong()]

    def settle(self) -> None:
        for writer in self.writers:
            writer.end()
        heal(self.made)
        self.tell(f"settled after {wait_until_settled(self.made):.1f} s; {dict(self.done)}")

    def prepare(self) -> None:
        services = self.made[DESK].services
        new = [NewTask(title=f"{NOTED} {number}") for number in range(TASKS)]
        tasks = services.task_creation.create(services.agents.get("admin"), new)
        for machine in self.made.members.values():
            eventually(lambda machine=machine: len(machine.services.workspace.tasks.all()) == len(tasks))  # type: ignore[misc]
        self.writers = [
            Writer(self.made[name], WRITERS[name], works_on_tasks=self.work_on_tasks) for name in self.made.members
        ]

    def round(self, number: int) -> None:
        count = max(1, self.messages // self.rounds // len(self.writers))
        way = WAYS[number % len(WAYS)]
        with way(self.made):
            self.hands.write(number)
            self.write(int(count * OFFLINE_OF) + 1, away=True)
        self.done[way.__name__] += 1
        self.write(count - int(count * OFFLINE_OF), away=False)
        self.tell(f"round {number + 1}: {self.written} messages, {self.offline} of them offline")

    def write(self, count: int, *, away: bool) -> None:
        """Lets all writers write `count` messages; unless they are away, they are disturbed meanwhile, each time when
        something was written since: on a busy machine, too, they are disturbed at work, and not only as they begin."""
        step = min(MESSAGES_BETWEEN, count * len(self.writers) // 4)
        with ThreadPoolExecutor(len(self.writers)) as pool:
            working = [pool.submit(writer.write, count, away=away) for writer in self.writers]
            try:
                due = self.written
                while not away and wait(working, timeout=self.chance.uniform(0.1, 0.4)).not_done:
                    if self.written < due:
                        continue
                    due = self.written + step
                    name, disturb = self.chance.choice(list(self.disturbances().items()))
                    disturb()
                    self.done[name] += 1
            except BaseException:
                for writer in self.writers:
                    writer.stop()
                raise
        for one in working:
            one.result()

    def disturbances(self) -> dict[str, Callable[[], None]]:
        return disturbances(self.made, self.writers, self.chance)

    def old_hub(self) -> None:
        count = max(2, self.messages // self.rounds // 8)
        restore_old_hub(
            self.made, self.base, lambda: self.write(count, away=False), lambda: self.write(count, away=True)
        )
        self.tell("an old copy of the hub was noticed, and the hub made anew")
        self.done["hub restored"] += 1

    def wiped_machine(self) -> None:
        (writer,) = [writer for writer in self.writers if writer.machine.name == SHED]
        writer.end()
        writer.machine = wipe(self.made, SHED, DELAY)
        self.hands.forget(SHED)
        self.tell("a machine that had lost its files has joined again")
        self.done["machine wiped"] += 1

    @property
    def written(self) -> int:
        return sum(len(writer.messages) for writer in self.writers)

    @property
    def offline(self) -> int:
        return sum(message.offline for writer in self.writers for message in writer.messages)

    @property
    def noted(self) -> str:
        """What else was acknowledged."""
        counts = {
            what: sum(map(len, found))
            for what, found in (
                ("lines of histories", [writer.notes for writer in self.writers]),
                ("answers", [writer.answers for writer in self.writers]),
                ("tasks created", [writer.created for writer in self.writers]),
                ("claimed", [writer.claimed for writer in self.writers]),
                ("reported", [writer.reported for writer in self.writers]),
            )
        }
        return ", ".join(f"{count} {what}" for what, count in counts.items())

    def missed_aims(self) -> list[str]:
        """The goals that the run missed: a run that was too easy proves nothing."""
        few = [f"only {self.offline} of {self.written} messages were written offline"]
        return few if 2 * self.offline < self.written else []

    def wrong(self) -> list[str]:
        return [*missing(self.made, self.writers), *differing(self.made), *faults(self.made), *aside(self.made)]

    def tell(self, line: str) -> None:
        self.say(f"{time.monotonic() - self.began:6.1f} s  {line}")


def run(
    base: Path, messages: int, rounds: int, say: Callable[[str], object] = lambda _: None, seed: int = 1, count: int = 5
) -> list[str]:
    """Plays with so many machines, at least three; returns what is wrong in the end."""
    chance = random.Random(seed)  # noqa: S311 - to be played again
    with machines(base, *[*WRITERS][1:count], delay=DELAY) as made:
        play = Play(made, base, messages, rounds, say, chance, Hands(made, rounds))
        try:
            return play.run()
        finally:
            for writer in play.writers:
                writer.kill()
