"""The scene on several machines, which are simulated on one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.cli.context import print_line
from multi_agent_mcp.cli.rendering import titled_table
from multi_agent_mcp.doorbell.tmux.client import Server
from multi_agent_mcp.programs import child_environment, python
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.hub.sharing import Sharing


SESSION = "demo"
SECONDS = 90.0
AGENT = "{python} -E {examples}/agents/%s.py"
"""The command of a scripted agent; `up` fills in the braces."""
HOMES = {"desk": ("admin", "admin"), "laptop": ("worker-a", "worker"), "shed": ("worker-b", "worker")}
"""Machine → the agent whose home it is, and its script."""
TEAM = """\
session: demo
language: {language}
agents:
  - {{id: owner, role: owner, type: human}}
  - {{id: admin, role: admin, parent: owner, host: plain, command: "{command}"}}
"""


@dataclass(frozen=True)
class SimulatedMachine:
    """One simulated machine."""

    name: str
    path: Path
    socket: Path

    def run(self, *arguments: str) -> dict[str, Any]:
        """Runs a command on this machine and returns its JSON answer. Raises `CalledProcessError`."""
        call = [*python(), *arguments, "--json"]
        environment = child_environment(HOME=str(self.path))
        done = subprocess.run(call, cwd=self.path, env=environment, capture_output=True, text=True, check=True)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    @property
    def sharing(self) -> Sharing:
        from multi_agent_mcp.hub.sharing import Sharing  # of an extra, which the other scenes do without

        return Sharing(self.path / ".multi-agent-mcp" / SESSION)


class MachinesDemo:
    """`demo machines`: a team on three machines, simulated on one: three directories, each with its own HOME and tmux
    server, relays and a hub. Scripted agents do the main job across them; then the hub dies, a machine is cut off, an
    agent is interrupted and a conversation is held between machines.

    Plays in `directory`, and stops everything at the end."""

    def __init__(self, directory: Path, texts: Texts) -> None:
        self.texts = texts
        self.sockets = Path(tempfile.mkdtemp(prefix="mam-"))
        self.places = {name: SimulatedMachine(name, directory / name, self.sockets / name) for name in HOMES}
        self.desk, self.laptop, self.shed = self.places.values()
        self.missing: list[str] = []

    def play(self) -> list[str]:
        """Plays all steps and returns the names of those that failed."""
        try:
            self._gather()
            for step in (self._job, self._hub_dies, self._cut_off, self._interrupt, self._conversation):
                step()
            for line in self._table():
                print_line(line)
        finally:
            self._close()
        return self.missing

    def _gather(self) -> None:
        for place in self.places.values():
            place.path.mkdir(parents=True)
        team = TEAM.format(language=self.texts.language, command=AGENT % "admin")
        (self.desk.path / "team.yaml").write_text(team, encoding="utf-8")
        self.desk.run("init")
        token = self.desk.run("share", "--name", "desk", "--listen", f"127.0.0.1:{_free_port()}")["token"]
        for place in (self.laptop, self.shed):
            agent_id, script = HOMES[place.name]
            place.run("join", token, "--name", place.name)
            place.run("agent", "add", agent_id, "--parent", "admin", "--host", "plain", "--command", AGENT % script)
            token = self.desk.run("share")["token"]
        self._step("gathered", lambda: len(self.desk.run("agent", "list")["agents"]) == len(HOMES) + 1)
        for place in self.places.values():
            place.run("up", "--socket", str(place.socket), "--no-watch", "--no-supervisor", "--no-attach")

    def _job(self) -> None:
        title = self.texts("demo.machines.job")
        self.desk.run("send-task", "admin", title, title)
        reports = self.desk.sharing.path / "ipc" / "owner"
        self._step("job", lambda: any("message_type: task_complete" in text for text in _texts(reports)))
        self.desk.run("read")  # which ends the Owner's wait

    def _hub_dies(self) -> None:
        server = self.desk.sharing.server
        if server is not None and (pid := server.pid()) is not None:
            os.kill(pid, signal.SIGKILL)
        self.laptop.run("send", "owner", "hub", "--as", "worker-a")
        self._step("hub", lambda: self._has_mail("hub"))

    def _cut_off(self) -> None:
        self.laptop.sharing.stop_relay()
        sent = self.laptop.run("send", "owner", "train", "--as", "worker-a")
        self._step("queued", lambda: sent["delivery"]["owner"]["state"] == "queued")
        self.laptop.sharing.start_relay()
        self._step("returned", lambda: self._has_mail("train"))

    def _interrupt(self) -> None:
        task = self.desk.run("task", "add", self.texts("demo.refactoring"), "--assignee", "worker-b")["task_id"]
        self._step("given", lambda: any(item["task_id"] == task for item in self.shed.run("task", "list")["tasks"]))
        self.shed.run("task", "status", task, "in_progress", "--as", "worker-b")
        self.desk.run("interrupt", "worker-b", "--task", task, "--reason", self.texts("demo.refactoring.reason"))
        notices = self.shed.sharing.path / "notifications" / "worker-b"
        self._step("stopped", lambda: any("action: blocked" in text for text in _texts(notices)))

    def _conversation(self) -> None:
        begun = self.desk.run("conversation", "start", "worker-a", "?")["conversation_id"]
        self._step("asked", lambda: (self.laptop.sharing.path / "conversations" / begun).exists())
        self.laptop.run("say", begun, "!", "--as", "worker-a")
        self._step("answered", lambda: len(_texts(self.desk.sharing.path / "conversations" / begun)) == 3)
        self.desk.run("end", begun)

    def _step(self, key: str, holds: Callable[[], bool]) -> None:
        """Waits until `holds` is true and prints the time it took; after `SECONDS` the step counts as failed."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > SECONDS:
                self.missing.append(self.texts(f"demo.machines.{key}"))
                return
            time.sleep(0.05)
        print_line(f"{time.monotonic() - began:6.2f} s  {self.texts(f'demo.machines.{key}')}")

    def _has_mail(self, words: str) -> bool:
        return any(text.endswith(f"\n{words}") for text in _texts(self.desk.sharing.path / "ipc" / "owner"))

    def _table(self) -> Iterator[str]:
        """Yields a table of all messages with the machines they were sent from and to."""
        rows = [
            [arrow["sent_at"], f"{_at(arrow['sender_id'])} → {_at(arrow['receiver_id'])}", arrow["message_type"]]
            for arrow in self.desk.run("timeline")["arrows"]
        ]
        yield ""
        yield from titled_table(self.texts, ("ago", "from_to", "type"), rows)

    def _close(self) -> None:
        for place in reversed(self.places.values()):
            if place.sharing.share.membership() is not None:
                place.sharing.stop_relay()
            Server(place.socket).cmd("kill-server")
        shutil.rmtree(self.sockets, ignore_errors=True)


def _texts(directory: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in directory.glob("*.md")]


def _at(agent_id: str) -> str:
    """Returns an agent's id with its machine: `worker-a@laptop`."""
    machines = {agent: place for place, (agent, _) in HOMES.items()}
    return f"{agent_id}@{machines.get(agent_id, 'desk')}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
