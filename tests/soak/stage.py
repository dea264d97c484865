"""The stage of a soak: a team's directory, the books, the running processes, and the end time."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.end_to_end.support import Team
from tests.soak.ledger import Ledger
from tests.soak.lives import Life, Nursery, Served

if TYPE_CHECKING:
    from tests.soak.worktrees import Work


class Stage:
    """`served`: how many servers may run as `serve` over stdio at once; the others are seats of the nursery."""

    def __init__(self, team: Team, agents: list[str], nursery: Nursery, work: Work, served: int) -> None:
        self.team = team
        self.agents = agents
        self.nursery = nursery
        self.work = work
        self.ledger = Ledger()
        self.over = threading.Event()
        self.known_tasks: list[str] = []
        self._served = threading.Semaphore(served)

    def born(self, agent_id: str, purpose: str) -> Life:
        """The agent's next server. Raises `Died` when it is killed before it can be talked to."""
        if self._served.acquire(blocking=False):
            return self._serve(agent_id, purpose)
        life = self.nursery.seat(self.team.root, agent_id, purpose, bell=True)
        self._note(life.pid)
        return life

    def kill(self, pid: int) -> None:
        """Records the process as killed, then sends SIGKILL."""
        self.ledger.killed.add(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.ledger.count("kills")

    def _serve(self, agent_id: str, purpose: str) -> Life:
        where = ["--root", str(self.team.root), "--session", self.team.session]
        where += ["--agent", agent_id, "--purpose", purpose]
        env, stage = self.team.env, self

        class Place(Served):
            """Frees its place when it is gone."""

            def gone(self) -> None:
                super().gone()
                stage._served.release()

        errors = self.team.base / f"serve-{agent_id}.stderr"
        try:
            return Place(env, errors, where, self._note)
        except BaseException:
            self._served.release()
            raise

    def _note(self, pid: int) -> None:
        self.ledger.started.add(pid)
        self.ledger.count("servers started")
