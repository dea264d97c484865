"""The harness's writers: one process on each machine, killed now and then, and the results acknowledged to it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.hub.support import Machine

REPOSITORY = Path(__file__).parents[2]


class SentMessage(NamedTuple):
    """One message that was acknowledged to its sender. `offline`: written while its machine was away, and said to be
    queued."""

    words: str
    receiver: str
    offline: bool


@dataclass
class Writer:
    """A process of one machine; killed, it is started again."""

    machine: Machine
    agent_id: str
    messages: list[SentMessage] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    """The task, and the words that were added to its history."""
    answers: dict[str, str] = field(default_factory=dict)
    """The question, and its answer."""
    works_on_tasks: bool = False
    created: list[str] = field(default_factory=list)
    """The titles of the tasks that were created."""
    claimed: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    """The tasks that were claimed, and those that were reported as completed."""
    lives: int = 0
    stopped: bool = False
    process: subprocess.Popen[str] | None = None

    def write(self, count: int, *, away: bool) -> None:
        """Returns when so many messages were acknowledged. One whose process died before it said so may be there or
        not. `away`: there is no way to the hub."""
        while count > 0 and not self.stopped:
            process = self._living()
            if process.poll() is None:
                count = self._acknowledged(process, count, away=away)

    def end(self) -> None:
        """Ends the process as its host does; if it was killed, the next one, which first mends what it left."""
        if self.process is not None:
            self._living().communicate(timeout=60)
            self.process = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        self.stopped = True
        self.kill()

    def _living(self) -> subprocess.Popen[str]:
        if self.process is None or self.process.poll() is not None:
            if self.process is not None:
                _require_killed(self.process)
            self.lives += 1
            call = [
                sys.executable,
                "-m",
                "tests.partition.writer",
                str(self.machine.root),
                self.agent_id,
                str(self.lives),
            ]
            self.process = subprocess.Popen(
                [*call, *["tasks"] * self.works_on_tasks],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=REPOSITORY,
            )
        return self.process

    def _acknowledged(self, process: subprocess.Popen[str], count: int, *, away: bool) -> int:
        """Requests `count` messages; returns how many are still missing when the process is done or has died."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
        except BrokenPipeError:
            _require_killed(process)
            return count
        for line in process.stdout:
            facts = json.loads(line)
            if "sent" in facts:
                self.messages += [SentMessage(facts["sent"], to, away and facts["queued"]) for to in facts["to"]]
                count -= 1
            elif "answered" in facts:
                self.answers[facts["answered"]] = facts["words"]
            elif "noted" in facts:
                self.notes.append((facts["task"], facts["noted"]))
            elif what := facts.keys() & {"created", "claimed", "reported"}:
                getattr(self, *what).append(*facts.values())
            else:
                return 0
        _require_killed(process)
        return count


def _require_killed(process: subprocess.Popen[str]) -> None:
    """A writer that ends of itself is a fault, not a disturbance."""
    assert process.wait() == -signal.SIGKILL, f"a writer ended with {process.returncode}"
    for pipe in (process.stdin, process.stdout):
        with suppress(BrokenPipeError):  # what it was not told any more
            pipe.close() if pipe is not None else None
