"""A host: starts its agent's server, calls its tools, and restarts it whenever it has died."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from typing import Any

from tests.soak.ledger import Ledger, tagged
from tests.soak.lives import Died, Life, Reply
from tests.soak.stage import Stage

CALLS_IN_A_LIFE = (3, 80)
HANDED_OUT_BY = {"read_messages": "messages", "get_notifications": "notifications"}
BREAKDOWNS = ("storage_error", "invalid_session")


class Host(threading.Thread):
    """A host of one agent, with one live server at a time, of this purpose or of any. `act` performs one random
    action."""

    def __init__(
        self, stage: Stage, agent_id: str, seed: str, act: Callable[[Host], object], only: str | None = None
    ) -> None:
        super().__init__(name="-".join(filter(None, (agent_id, only))), daemon=True)
        self.stage = stage
        self.agent_id = agent_id
        self.random = random.Random(f"{seed}-{self.name}")  # noqa: S311 - to be played again, not to be kept secret
        self.purpose = "task"
        self._only = only
        self.tasks: list[str] = []
        self.conversations: list[str] = []
        self.reviews: list[str] = []
        self._act = act
        self._life: Life | None = None
        self._unconfirmed: list[str] = []
        self._letters = 0

    @property
    def ledger(self) -> Ledger:
        return self.stage.ledger

    @property
    def role(self) -> str:
        return "admin" if self.agent_id.startswith("admin") else "worker"

    def run(self) -> None:
        while not self.stage.over.is_set():
            try:
                self._live()
            except Exception as error:  # noqa: BLE001 - whatever it was, it is what the soak looks for
                self.ledger.complain(f"{self.agent_id}: {type(error).__name__}: {error}")
                return

    def kill(self) -> bool:
        """Kills the server with SIGKILL, whatever it is doing. Returns False when none is alive."""
        life = self._life
        if life is None:
            return False
        self.stage.kill(life.pid)
        return True

    def call(self, tool: str, **arguments: Any) -> Reply:
        """Calls a tool, records the reply in the books and returns it. Raises `Died`."""
        assert self._life is not None
        reply = self._life.call(tool, **arguments)
        self._unconfirmed = []
        self.ledger.count("operations")
        self.ledger.count(f"answered: {reply.error or ('replaced' if reply.answer is None else 'done')}")
        if reply.error in BREAKDOWNS:
            self.ledger.complain(f"{self.agent_id}: {tool} was answered {dict(reply.answer or {})}")
        if reply.done and reply.answer is not None and (key := HANDED_OUT_BY.get(tool)):
            self._unconfirmed = [item["id"] for item in reply.answer[key]]
            self.ledger.hand_out(self.agent_id, self._unconfirmed)
        return reply

    def send(self, receivers: list[str], tool: str = "send_message", key: str = "content", **arguments: Any) -> Reply:
        """A message of its own to these, by a tool that takes words under this key."""
        self._letters += 1
        tag = f"{self.name}-{self._letters}"
        self.ledger.send(tag, receivers, "maybe")
        size = self.random.choice((0, 1, 1, 5, 30, 300))
        reply = self.call(tool, **{key: tagged(tag, size)}, **arguments)
        if reply.done:
            self.ledger.send(tag, receivers, "acked")
            self.ledger.count("messages acknowledged")
        elif reply.answer is not None or not reply.executed:
            self.ledger.send(tag, receivers, "never")
        return reply

    def _live(self) -> None:
        self.purpose = self._only or self.random.choice(("task", "task", "chat"))
        self._unconfirmed = []
        try:
            self._life = self.stage.born(self.agent_id, self.purpose)
            for _ in range(self.random.randint(*CALLS_IN_A_LIFE)):
                if self.stage.over.is_set():
                    break
                self._act(self)
        except Died:
            self._died()
        else:
            self._ended()

    def _died(self) -> None:
        self.ledger.may_return(self.agent_id, self._unconfirmed)
        life, self._life = self._life, None
        if life is not None:
            life.gone()
            if life.pid not in self.ledger.killed:
                self.ledger.complain(f"the server of {self.agent_id} ended by itself")

    def _ended(self) -> None:
        """The regular end confirms what was answered last, by signal as by the end of its input."""
        life, self._life = self._life, None
        assert life is not None
        if self.random.random() < 0.3 and life.ends_by_signal:
            life.kill(signal.SIGTERM)
        life.end()
        if life.gave_up_closing:
            self.ledger.killed.add(life.pid)
            self.ledger.count("ends that took too long")
        if life.pid in self.ledger.killed:  # the killer was faster than the end
            self.ledger.may_return(self.agent_id, self._unconfirmed)
        self.ledger.count("regular ends")
