"""A process with several concurrent senders: `python -m tests.conformance.sender ROOT FIRST COUNT THREADS PAUSE QUIET`.

Each delivery is one line with a unique sender's name, rung under the recipient's lock repeatedly until it is submitted,
as a mailbox is rung until it is read. A stranger is rung beside each of them. Prints a JSON object: the reasons and
their counts, the outcomes for strangers, lines that were never submitted, milliseconds from the ring to the key.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.entity import session_name
from multi_agent_mcp.doorbell.tmux.learning import UnknownScreens
from multi_agent_mcp.doorbell.tmux.notifier import TmuxNotifier
from multi_agent_mcp.doorbell.tmux.profiles import load_profiles
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.store.workspace import Workspace
from tests.conformance.reader import Log
from tests.conformance.strangers import PREFIX

PATIENCE_SECONDS = 120.0


class Senders:
    """The state shared by the threads of one process."""

    def __init__(self, root: Path, first: int, count: int, pause: float, quiet: float) -> None:
        self.workspace = Workspace(root, session_name("conformance"))
        unknown = UnknownScreens(self.workspace.files, self.workspace.path / "unknown_screens")
        self.notifier = TmuxNotifier(pause, load_profiles(), unknown.save, quiet_seconds=quiet)
        agents = sorted(self.workspace.registry.all())
        self.agents = [agent_id for agent_id in agents if not agent_id.startswith(PREFIX)]
        self.strangers = [agent_id for agent_id in agents if agent_id.startswith(PREFIX)]
        self.waiting = list(range(first, first + count))
        self.lock = threading.Lock()
        self.reasons: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.given_up: list[str] = []
        self.entered: list[float] = []

    def work(self) -> None:
        """Delivers one after the other until none is left."""
        logs: dict[str, Log] = {}
        chance = random.Random()  # noqa: S311 - a simulation
        while True:
            with self.lock:
                if not self.waiting:
                    return
                number = self.waiting.pop()
            line = f"[IPC] 新しいメッセージ: request from s{number:05}"
            self._ring_stranger(chance.choice(self.strangers), line)
            agent_id = chance.choice(self.agents)
            log = logs.setdefault(agent_id, Log(self.workspace.root / f"{agent_id}.log"))
            self._deliver(agent_id, line, log, chance)

    def _ring_stranger(self, agent_id: str, line: str) -> None:
        """Rings a stranger, which must have no effect; input that reaches strangers is detected separately."""
        outcome = self.notifier.ring(self.workspace.registry.get(agent_id), line)
        with self.lock:
            self.refused[f"{outcome.state} {outcome.reason or ''}".strip()] += 1

    def _deliver(self, agent_id: str, line: str, log: Log, chance: random.Random) -> None:
        end, tried = time.monotonic() + PATIENCE_SECONDS, 0
        while time.monotonic() < end:
            try:
                with self.workspace.locks.held(f"doorbell-{agent_id}"):
                    if tried and log.holds(line):
                        return
                    outcome = self.notifier.ring(self.workspace.registry.get(agent_id), line)
            except Refusal as refusal:  # others had the pane for ten seconds
                outcome = Delivery("stored", refusal.code)
            with self.lock:
                self.reasons[f"{outcome.state} {outcome.reason or ''}".strip()] += 1
                if outcome.entered_after is not None:
                    self.entered.append(outcome.entered_after.total_seconds() * 1000)
            if outcome.state == "submitted" and outcome.reason is None:
                return
            tried += 1
            time.sleep(chance.uniform(0.05, 0.4))
        self.given_up.append(line)


def main(root: str, first: str, count: str, threads: str, pause: str, quiet: str) -> None:
    senders = Senders(Path(root), int(first), int(count), float(pause), float(quiet))
    running = [threading.Thread(target=senders.work) for _ in range(int(threads))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    names = ("reasons", "refused", "given_up", "entered")
    answer = {name: getattr(senders, name) for name in names}
    sys.stdout.write(json.dumps(answer, ensure_ascii=False))


if __name__ == "__main__":
    main(*sys.argv[1:7])
