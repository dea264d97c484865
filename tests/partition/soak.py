"""Machines at work for minutes: agents write, ask, create tasks, claim and report them, while one machine floods the
hub, links are cut, whole or for one side, relays are stopped and killed, and the hub dies. In the end every
acknowledged item exists everywhere once, and the files are the same everywhere."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

from nats.aio.client import Client
from nats.errors import Error

from benchmarks.rows.floods import FLOODS, Flooding
from multi_agent_mcp.errors import HubUnreachable
from tests.hub.support import LAPTOP, Machines, machines
from tests.hub.test_security import as_machine
from tests.partition.hands import Hands
from tests.partition.run import DELAY, WRITERS, Play

BATCH = 40
"""The messages that each agent writes between two lines of output, and answers and tasks beside them."""
FLOOD_SECONDS, SHORT_SECONDS, PAUSE_SECONDS = 0.5, 0.05, 2.0
LONGEST_SECONDS = 60.0
"""When a flood ends whose link was cut: the client may wait for ever then."""
LONG_TO_READ = ("messages, slow to parse", "messages, long folded values", "tasks, slow to parse")
"""The floods of which a few values keep all machines' relays busy, which share this computer: they are short."""
LEFT_OUT = {
    "agents": "every broadcast would go to a thousand of them",
    **dict.fromkeys(
        ("logs", "sessions", "hand-offs"), "its home alone writes it, and takes none of its own from the hub"
    ),
}
"""The floods that would change what the verdict is about, and how."""


def soak(
    base: Path,
    seconds: float,
    say: Callable[[str], object] = lambda _: None,
    seed: int = 1,
    count: int = 5,
    batch: int = BATCH,
) -> list[str]:
    """Plays so long with so many machines, at least three; returns what is wrong in the end."""
    chance = random.Random(seed)  # noqa: S311 - to be played again
    with machines(base, *[*WRITERS][1:count], delay=DELAY) as made:
        play = Play(made, base, 0, 0, say, chance, Hands(made, 0), work_on_tasks=True)
        try:
            play.prepare()
            with flooded(play, seed):
                while time.monotonic() - play.began < seconds:
                    play.write(batch, away=False)
                    play.tell(f"{play.written} messages")
            play.settle()
            play.tell(f"{play.written} messages, {play.noted}")
            return play.wrong()
        finally:
            for writer in play.writers:
                writer.kill()


@contextmanager
def flooded(play: Play, seed: int) -> Iterator[None]:
    """Lets the laptop flood the hub meanwhile, in one way after the other."""
    stop = threading.Event()
    kinds = [kind for kind in FLOODS if kind not in LEFT_OUT]
    random.Random(seed).shuffle(kinds)  # noqa: S311 - to be played again

    def work() -> None:
        for kind in cycle(kinds):
            flood(play.made, kind)
            play.done[f"flood of {kind}"] += 1
            if stop.wait(PAUSE_SECONDS):
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def flood(made: Machines, kind: str) -> None:
    flooding = Flooding(made[LAPTOP], made[LAPTOP].sharing.membership.names)
    timer = threading.Timer(SHORT_SECONDS if kind in LONG_TO_READ else FLOOD_SECONDS, flooding.stop.set)

    async def publish(client: Client) -> None:
        timer.start()
        await asyncio.wait_for(FLOODS[kind](flooding, client), LONGEST_SECONDS)

    with suppress(HubUnreachable, Error, OSError, TimeoutError):  # it may be away
        as_machine(made[LAPTOP], publish)
