"""The stage of a crash: a prepared tree is copied, a process works on the copy and is killed, a new one checks it.

This process has one thread, so it may fork: a child per moment costs a few milliseconds instead of a second.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.server.binding import Binding
from multi_agent_mcp.server.calls import Middleware
from multi_agent_mcp.server.tools import TOOLS
from multi_agent_mcp.services.sessions.confirmation import Confirmation
from multi_agent_mcp.services.team.setup import add_missing, create_session
from multi_agent_mcp.wiring import Services
from tests.conftest import TEAM
from tests.crash.killer import Killer

Facts = dict[str, Any]
MEMORY = Path("/dev/shm")  # noqa: S108 - unlike a power cut, a kill loses nothing written to memory


class Seat:
    """An agent's server without its pipe: the calls of a host, answered as `serve` answers them."""

    def __init__(self, services: Services, agent_id: str, purpose: str = "task") -> None:
        self.binding = Binding(services, purpose=purpose)
        self.binding.bind_process(agent_id, None)
        self.middleware = Middleware(self.binding, TOOLS)

    def call(self, tool: str, **arguments: Any) -> Facts:
        """Returns the answer that the host receives; raises for anything but a success."""
        confirmation = Confirmation()
        result = self.middleware.answer(tool, arguments, confirmation)
        confirmation.written()
        answer: Facts | None = result.structured_content
        if result.is_error or answer is None:
            raise AssertionError(f"{tool} was not done: {result.content}")
        return answer


@dataclass
class Deed:
    """The context of the process to be killed. `acknowledge` records an answer that its host has received."""

    services: Services
    told: Facts
    root: Path
    seats: dict[tuple[str, str], Seat] = field(default_factory=dict)
    channel: int = -1
    _write: Callable[[int, bytes], int] = os.write

    def seat(self, agent_id: str, purpose: str = "task") -> Seat:
        if (agent_id, purpose) not in self.seats:
            self.seats[agent_id, purpose] = Seat(self.services, agent_id, purpose)
        return self.seats[agent_id, purpose]

    def acknowledge(self, answer: Facts) -> None:
        self._write(self.channel, json.dumps(answer).encode() + b"\n")


@dataclass(frozen=True)
class Aftermath:
    """The state that a fresh process finds: the tree, the prepared items, the host's answers before the kill."""

    services: Services
    told: Facts
    answers: list[Facts]
    root: Path

    @property
    def answer(self) -> Facts | None:
        return self.answers[-1] if self.answers else None


@dataclass(frozen=True)
class Operation:
    """`act` is killed at every moment; `look` yields complaints afterwards. `seats` are bound before the killing
    begins; `bare` operations begin without a session directory."""

    name: str
    act: Callable[[Deed], None]
    look: Callable[[Aftermath], Iterable[str]]
    prepare: Callable[[Services], Facts] = lambda _: {}
    seats: tuple[tuple[str, str], ...] = ()
    bare: bool = False


@dataclass(frozen=True)
class Run:
    """The result of one process's life. `moments` is only known for a process that was not killed."""

    killed: bool
    answers: list[Facts]
    moments: list[str]
    error: str = ""


def without_links() -> None:
    """Makes hard links fail in this process from now on, as on FAT and some network mounts."""

    def link(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    os.link = link


def context(root: Path) -> Services:
    return open_session(root, "demo", notifier=Recorder())


@contextmanager
def prepared(operation: Operation) -> Iterator[tuple[Path, Facts, Path]]:
    """Yields a template tree, the facts returned by `prepare`, and a path for its copies."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as base:
        template = Path(base) / "template"
        template.mkdir()
        told: Facts = {}
        if not operation.bare:
            create_session(template, "demo", TEAM, "en")
            services = context(template)
            add_missing(services.agents, TEAM)
            told = operation.prepare(services)
        yield template, told, Path(base) / "copy"


def live(operation: Operation, root: Path, told: Facts, at: int | None) -> Run:
    """Runs the operation on this tree in a process that dies at the given moment (None: survives)."""

    def work(channel: int) -> None:
        deed = Deed(context(root) if not operation.bare else None, told, root, channel=channel)  # type: ignore[arg-type]
        for agent_id, purpose in operation.seats:
            deed.seat(agent_id, purpose)
        killer = Killer(at)
        killer.arm()
        operation.act(deed)
        deed.acknowledge({"moments": killer.moments})
        if killer.unseen:
            raise AssertionError(f"changes of the disk that nobody was killed at: {killer.unseen}")

    lines, status, error = forked(work)
    answers = [line for line in lines if "moments" not in line]
    moments = [moment for line in lines for moment in line.get("moments", ())]
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return Run(killed, answers, moments, error)


def looked(operation: Operation, root: Path, told: Facts, run: Run) -> list[str]:
    """The complaints of a fresh process about the tree."""
    from tests.crash.invariants import complaints  # it knows what an operation is, too

    def work(channel: int) -> None:
        for complaint in complaints(operation, root, told, run.answers):
            os.write(channel, json.dumps({"complaint": complaint}).encode() + b"\n")

    lines, _, error = forked(work)
    return [line["complaint"] for line in lines] + ([error] if error else [])


def forked(work: Callable[[int], None]) -> tuple[list[Facts], int, str]:
    """Runs `work` in a child with a pipe; the JSON lines it wrote, its wait status, its traceback."""
    reading, channel = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            work(channel)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - said, and then the child ends whatever it was
            os.write(channel, json.dumps({"error": traceback.format_exc()}).encode() + b"\n")
            os._exit(1)
    os.close(channel)
    with os.fdopen(reading, "rb") as pipe:
        lines = [json.loads(line) for line in pipe]
    _, status = os.waitpid(pid, 0)
    errors = [line["error"] for line in lines if "error" in line]
    return [line for line in lines if "error" not in line], status, "".join(errors)


def copied(template: Path, copy: Path) -> Path:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(template, copy, symlinks=True)
    return copy
