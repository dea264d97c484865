"""Machines for the tests: directories of this computer, each with its own relay, and one with a real hub.

The connection between a machine and the hub is a wire that the tests can cut and slow down.
"""

from __future__ import annotations

import os
import random
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.hub.admission import Token
from multi_agent_mcp.hub.server import CERTIFICATES, new_certificate
from multi_agent_mcp.hub.share_directory import Membership
from multi_agent_mcp.hub.sharing import Sharing, join
from multi_agent_mcp.services.team.setup import TeamFile, add_missing, create_session
from multi_agent_mcp.system.process import is_alive
from multi_agent_mcp.wiring import Services
from tests.programs import pauses

SESSION = "demo"
PATIENCE_SECONDS = 60.0
DESK, LAPTOP, SHED, LOFT, BARN = "desk", "laptop", "shed", "loft", "barn"
HOMES = {DESK: ("owner", "admin"), LAPTOP: ("worker-a",), SHED: ("worker-b",), LOFT: ("worker-c",), BARN: ("worker-d",)}


def eventually(condition: Callable[[], object], what: str = "") -> None:
    """Waits until it holds; fails after a minute."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    for pause in pauses():
        if condition():
            return
        assert time.monotonic() < deadline, what or "it never happened"
        time.sleep(pause)


def certificate_of() -> str:
    """The certificate of a hub that nobody knows."""
    found = CERTIFICATES.search(new_certificate())
    assert found is not None
    return found[0].decode()


def free_port() -> int:
    """Returns a port below those of outgoing connections (ip(7), ip_local_port_range): one of these would take it while
    the hub is down."""
    while True:
        port = random.randrange(15_000, 32_000)  # noqa: S311 - any of them
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Wire:
    """A TCP proxy on loopback: every piece arrives `delay` seconds later; `cut` ends all connections and refuses new
    ones; while it is `mute`, nothing of the machine arrives, while it is `deaf`, nothing arrives there, and nobody is
    told: a `cut` must follow."""

    def __init__(self, target: int, delay: float = 0.0) -> None:
        self.target = target
        self.delay = delay
        self.is_cut = self.is_mute = self.is_deaf = False
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self.is_cut = True
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        self.is_cut = self.is_mute = self.is_deaf = False

    @contextmanager
    def slower(self, delay: float) -> Iterator[None]:
        before, self.delay = self.delay, delay
        try:
            yield
        finally:
            self.delay = before

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.is_cut:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.target), 2)
            except OSError:
                near.close()
                continue
            for end in (near, far):  # else a piece waits for the other side's delayed acknowledgement (RFC 9293, 3.7.4)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ends += [near, far]
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        """Forwards both directions in one thread, each piece after its delay."""
        waiting: list[tuple[float, socket.socket, bytes]] = []
        with selectors.DefaultSelector() as selector, near, far, suppress(OSError):
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            while True:
                pause = max(waiting[0][0] - time.monotonic(), 0) if waiting else None
                for key, _ in selector.select(pause):
                    end = key.fileobj
                    assert isinstance(end, socket.socket)
                    if not (data := end.recv(65536)):
                        return
                    if self.is_mute if end is near else self.is_deaf:
                        continue
                    waiting.append((time.monotonic() + self.delay, key.data, data))
                while waiting and waiting[0][0] <= time.monotonic():
                    _, target, data = waiting.pop(0)
                    target.sendall(data)


@dataclass
class Machine:
    """One directory that acts as a machine of the team."""

    name: str
    root: Path
    wire: Wire | None = None
    recorder: Recorder = field(default_factory=Recorder)

    @property
    def path(self) -> Path:
        return self.root / SESSION

    @property
    def sharing(self) -> Sharing:
        return Sharing(self.path)

    @property
    def services(self) -> Services:
        """The services as a new process of this machine would see them."""
        return open_session(self.root, SESSION, notifier=self.recorder)

    @property
    def relay_pid(self) -> int:
        return int(self.sharing.status()["pid"])

    def start(self) -> None:
        self.sharing.start_relay()
        self.sharing.wait_until_complete(lambda _: None, PATIENCE_SECONDS)

    def signal(self, number: int) -> None:
        """Sends a signal to the relay; after SIGKILL it waits for its end."""
        pid = self.relay_pid
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        if number == signal.SIGKILL:
            eventually(lambda: not is_alive(pid, None))

    def has(self, agent_id: str, content: str) -> bool:
        """Whether a message with this content lies in an agent's mailbox here."""
        return any(item.content == content for item in self.services.workspace.mailbox(agent_id).history())


@dataclass
class Machines:
    """A desk with the Owner, the admin and the hub; a laptop with worker-a; a shed with worker-b."""

    base: Path
    port: int
    language: str = "en"
    host: str = "127.0.0.1"
    members: dict[str, Machine] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Machine:
        return self.members[name]

    def begin(self, before: Callable[[Machine], object] = lambda _: None) -> None:
        """Makes the desk; calls `before` with it before it is shared."""
        desk = self.members[DESK] = Machine(DESK, self.base / DESK)
        agents = (Agent(id="owner", role="owner", type="human"), Agent(id="admin", role="admin", parent_id="owner"))
        create_session(desk.root, SESSION, TeamFile(agents), self.language)
        add_missing(desk.services.agents, TeamFile(agents))
        before(desk)
        desk.sharing.begin(DESK, f"{self.host}:{self.port}")
        desk.start()

    def token(self, *, replaces: str | None = None, wire: Wire | None = None) -> Token:
        token = self[DESK].sharing.invite(replaces=replaces)
        urls = token.urls if wire is None else (f"nats://127.0.0.1:{wire.port}",)
        return Token(
            uuid=token.uuid,
            session=token.session,
            urls=urls,
            certificate=token.certificate,
            id=token.id,
            seed=token.seed,
        )

    def add(self, name: str, *, delay: float | None = 0.0, replaces: str | None = None) -> Machine:
        """Adds a machine with the agents whose home it is, and starts its relay."""
        machine = self.joined(name, delay=delay, replaces=replaces)
        machine.start()
        for agent_id in HOMES.get(name, ()):
            if agent_id not in machine.services.agents.all():
                machine.services.agents.add(Agent(id=agent_id, parent_id="admin"))
        return machine

    def joined(self, name: str, *, delay: float | None = 0.0, replaces: str | None = None) -> Machine:
        """Adds a machine without starting its relay. With `delay` None it is connected without a wire."""
        wire = None if delay is None else Wire(self.port, delay)
        machine = self.members[name] = Machine(name, self.base / name, wire)
        join(self.token(replaces=replaces, wire=wire), machine.root, name, adopt=False)
        return machine

    def complete(self) -> None:
        """Waits until every machine knows every agent."""
        everybody = {agent for name in self.members for agent in HOMES.get(name, ())}
        for machine in self.members.values():
            eventually(lambda machine=machine: everybody <= set(machine.services.agents.all()))  # type: ignore[misc]

    def close(self) -> None:
        for machine in reversed(self.members.values()):
            with suppress(Exception):
                os.kill(machine.relay_pid, signal.SIGCONT)
            with suppress(Refusal):  # it never joined
                machine.sharing.stop_relay()
            if machine.wire is not None:
                machine.wire.close()


@contextmanager
def machines(base: Path, *names: str, delay: float | None = 0.0, language: str = "en") -> Iterator[Machines]:
    """The desk and these others, all of them running."""
    made = Machines(base, free_port(), language)
    try:
        made.begin()
        for name in names:
            made.add(name, delay=delay)
        made.complete()
        yield made
    finally:
        made.close()


def move_hub(machine: Machine, port: int) -> None:
    """Makes this machine use the hub at another port."""
    known = machine.sharing.membership
    machine.sharing.share.record("machine").write(
        {"uuid": known.uuid, "machine": known.machine, "urls": [f"nats://127.0.0.1:{port}"], "serves": known.serves}
    )


__all__ = ["DESK", "LAPTOP", "SHED", "Machine", "Machines", "Membership", "Wire", "eventually", "machines"]
