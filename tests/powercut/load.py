"""The load during a power cut: agents that write to each other, read, report, delegate and converse."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.crash.stage import Seat, context

AGENTS = ("admin", "worker-a", "worker-b")
SIZES = (10, 300, 3_000, 20_000, 100_000)


class Host:
    """One agent's host: calls tools, and tells the disk's log what it was answered."""

    def __init__(self, root: Path, agent_id: str, address: Path, seed: int) -> None:
        self.random = random.Random(f"{seed}-{agent_id}")  # noqa: S311 - repeatable
        self.agent_id = agent_id
        self.others = [other for other in AGENTS if other != agent_id]
        self.seat = Seat(context(root), agent_id)
        self._log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._log.connect(str(address))

    def work(self) -> None:
        """Works until the process is stopped."""
        acts = (self.send, self.send, self.send, self.broadcast, self.task, self.read, self.look)
        while True:
            self.random.choice(acts)()

    def send(self) -> None:
        content, receiver = self._words(), self.random.choice(self.others)
        answer = self.seat.call("send_message", content=content, receiver_id=receiver)
        self._acknowledged([receiver], answer["message_id"], content)

    def broadcast(self) -> None:
        content = self._words()
        answer = self.seat.call("send_message", content=content)
        self._acknowledged(answer["receiver_ids"], answer["message_id"], content)

    def task(self) -> None:
        if self.agent_id != "admin":
            self.seat.call("request_task", title="Build", description=self._words())
            return
        content, receiver = self._words(), self.random.choice(self.others)
        answer = self.seat.call("send_task", agent_id=receiver, title="Build", content=content)
        self._acknowledged([receiver], answer["message_id"], None)

    def read(self) -> None:
        self.seat.call("read_messages", limit=5)

    def look(self) -> None:
        self.seat.call("get_next_action")

    def _words(self) -> str:
        return self.random.randbytes(self.random.choice(SIZES) // 2).hex()

    def _acknowledged(self, receivers: list[str], message_id: str, content: str | None) -> None:
        digest = None if content is None else hashlib.sha256(content.encode()).hexdigest()
        self._log.send(json.dumps({"id": message_id, "receivers": receivers, "digest": digest}).encode())


@contextmanager
def hosts_at_work(root: Path, address: Path, seed: int, *, unsynced: bool) -> Iterator[Callable[[], bool]]:
    """Runs every agent's host in a separate process; yields a function that tells whether all of them still work.
    `unsynced` disables fsync, as in a program that omits it."""
    children = [_forked(root, agent_id, address, seed, unsynced=unsynced) for agent_id in AGENTS]
    try:
        yield lambda: all(os.waitpid(child, os.WNOHANG) == (0, 0) for child in children)
    finally:
        for child in children:
            with suppress(ProcessLookupError, ChildProcessError):  # it has ended by itself
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _forked(root: Path, agent_id: str, address: Path, seed: int, *, unsynced: bool) -> int:
    child = os.fork()
    if child == 0:
        try:
            if unsynced:
                os.fsync = lambda fd: None  # noqa: ARG005 - fsync(2) by its name
            Host(root, agent_id, address, seed).work()
        except BaseException:  # noqa: BLE001 - the process ends with it, as on a full disk
            traceback.print_exc()
        finally:
            os._exit(1)
    return child
