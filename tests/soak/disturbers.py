"""Disturbances of the agents: kills, a tmux server that dies, programs that write files as a person might, a human."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.end_to_end.support import COMMAND, Terminal
from tests.soak.host import Host
from tests.soak.ledger import tagged
from tests.soak.stage import Stage

BROKEN = ("no front matter at all", "---\nid: [\n---\n\nbody", "---\n- a list\n---\n\n", "---\nnever closed\n")


class Disturber(threading.Thread):
    """Calls `disturb` repeatedly, at random intervals within the given range in seconds."""

    pause = (0.1, 1.0)

    def __init__(self, stage: Stage, seed: str) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.stage = stage
        self.random = random.Random(f"{seed}-{self.name}")  # noqa: S311 - to be played again, no secret

    def run(self) -> None:
        while not self.stage.over.wait(self.random.uniform(*self.pause)):
            try:
                self.disturb()
            except Exception as error:  # noqa: BLE001 - a finding like any other
                self.stage.ledger.complain(f"{self.name}: {type(error).__name__}: {error}")
                return

    def disturb(self) -> None:
        raise NotImplementedError


class Killer(Disturber):
    """Kills a random server with SIGKILL, mostly in the middle of a call; not more than one in so many calls, so that a
    machine that is loaded gets on."""

    pause = (0.02, 0.6)
    calls = 12

    def __init__(self, stage: Stage, seed: str, hosts: Sequence[Host]) -> None:
        super().__init__(stage, seed)
        self.hosts = hosts

    def disturb(self) -> None:
        counts = self.stage.ledger.counts
        if counts["kills"] * self.calls <= counts["operations"]:
            self.random.choice(self.hosts).kill()


class Tmux(Disturber):
    """A tmux server of our own in which some agents have a pane with `cat`; now and then it dies with all of them."""

    pause = (5.0, 15.0)
    panes = 4
    servers = 0

    def __init__(self, stage: Stage, seed: str, directory: Path) -> None:
        super().__init__(stage, seed)
        self.directory = directory
        self._terminal = self._opened()

    def disturb(self) -> None:
        self._terminal("kill-server")
        self.stage.ledger.count("deaths of tmux")
        if not self.stage.over.wait(self.random.uniform(0.0, 3.0)):
            self._terminal = self._opened()

    def end(self) -> None:
        self._terminal.end()

    def _opened(self) -> Terminal:
        self.servers += 1
        directory = self.directory / str(self.servers)  # a dying server answers at its socket for a while
        directory.mkdir(parents=True)
        terminal = Terminal(directory, self.stage.team.env)
        for agent_id in self.random.sample(self.stage.agents, min(self.panes, len(self.stage.agents))):
            terminal.pane("exec cat").belongs_to(self.stage.team, agent_id)
        return terminal


class Stranger(Disturber):
    """Writes files as a person might: messages as `cp` would put them there, and some that nobody can read."""

    pause = (0.2, 1.5)
    written = 0

    def disturb(self) -> None:
        self.written += 1
        box = self.random.choice(("ipc", "ipc", "notifications"))
        directory = self.stage.team.path / box / self.random.choice(self.stage.agents)
        if self.random.random() < 0.3:
            name = f"broken-{self.written}.md"
            self.stage.ledger.broken.add(name)
            (directory / name).write_text(self.random.choice(BROKEN), encoding="utf-8")
        elif box == "ipc":
            self._letter(directory)
        self.stage.ledger.count("files by hand")

    def _letter(self, directory: Path) -> None:
        tag = f"stranger-{self.written}"
        header = self.random.choice(
            ("sender_id: owner\n", "subject: 12:30\npriority: urgent\n", "created_at: 2026-11-21\n")
        )
        path = directory / f"{tag}.md"
        data = f"---\n{header}---\n\n{tagged(tag, 1)}".encode()
        if self.random.random() < 0.5:
            path.write_bytes(data)
        else:
            scratch = path.with_suffix(".part")
            scratch.write_bytes(data)
            scratch.rename(path)
        self.stage.ledger.send(tag, [directory.name], "acked")


class Registrar(Disturber):
    """Another program that keeps a field of its own in agents.json, while panes and threads are registered there."""

    pause = (0.2, 1.0)

    def disturb(self) -> None:
        agent_id = self.random.choice(self.stage.agents)
        number = self.stage.ledger.notes.get(agent_id, 0) + 1
        self.stage.team.services.workspace.registry.update(agent_id, soak_note=number)
        self.stage.ledger.notes[agent_id] = number


class Human(Disturber):
    """The Owner at a terminal: a command line per deed."""

    pause = (0.5, 2.0)
    deeds = 0

    def disturb(self) -> None:
        self.deeds += 1
        deeds = (self._move, self._move, self._interrupt, self._resume, self._task, self._send, self._read)
        self.random.choice(deeds)()
        self.stage.ledger.count("commands")

    def _move(self) -> None:
        if self.stage.known_tasks:
            task_id = self.random.choice(self.stage.known_tasks[-40:])
            status = self.random.choice(("blocked", "blocked", "todo", "cancelled"))
            answer = self._ask("task", "status", task_id, status)
            if answer:
                self.stage.ledger.moved(task_id, "owner", answer["previous_status"], answer["new_status"])
                self.stage.ledger.count("status changes")

    def _interrupt(self) -> None:
        answer = self._ask("interrupt", self.random.choice(self.stage.agents), "--action", "pause")
        if answer:
            self.stage.ledger.keep("notification", answer["notification_id"])

    def _resume(self) -> None:
        answer = self._ask("resume", self.random.choice(self.stage.agents))
        if answer:
            self.stage.ledger.keep("notification", answer["notification_id"])

    def _task(self) -> None:
        title = f"human {self.deeds}"
        answer = self._ask("task", "add", title, "--assignee", self.random.choice(self.stage.agents))
        if answer:
            self.stage.ledger.tasks[title] = "acked"
            self.stage.known_tasks.append(answer["task_id"])

    def _send(self) -> None:
        tag, receiver = f"human-{self.deeds}", self.random.choice(self.stage.agents)
        if self._ask("send", receiver, tagged(tag, 2)):
            self.stage.ledger.send(tag, [receiver], "acked")

    def _read(self) -> None:
        answer = self._ask("read", "owner")
        self.stage.ledger.hand_out("owner", [message["id"] for message in answer.get("messages", ())])

    def _ask(self, *arguments: str) -> dict[str, Any]:
        """Runs a command; returns {} for a refusal. Waits without a limit: a command that was abandoned may still take
        effect."""
        team = self.stage.team
        command = [*COMMAND, *arguments, "--root", str(team.root), "--json"]
        done = subprocess.run(command, env=team.env, cwd=team.base, capture_output=True, check=False)
        answer: dict[str, Any] = json.loads(done.stdout)
        if not answer["success"] and answer["error"] == "storage_error":
            self.stage.ledger.complain(f"{arguments[0]} was answered {answer}")
        return answer if answer["success"] else {}


@contextmanager
def disturbed(disturbers: Sequence[Disturber]) -> Iterator[None]:
    for disturber in disturbers:
        disturber.start()
    yield
    for disturber in disturbers:
        disturber.join()
