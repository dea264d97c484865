"""A relay ends when it is told to, whatever it is doing: SIGTERM at every moment of its life."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.hub.administration import connected_once
from multi_agent_mcp.hub.server import new_seed
from multi_agent_mcp.hub.share_directory import Membership
from multi_agent_mcp.hub.sharing import Sharing, join
from multi_agent_mcp.services.team.setup import TeamFile, create_session
from multi_agent_mcp.system.process import is_alive
from tests.hub.support import DESK, LAPTOP, SESSION, certificate_of, eventually, machines

UUID = "0" * 32
PATIENCE_SECONDS = 60
MOMENTS = (0.1, 0.3, 0.5, 0.8, 1.2, 2.5)
"""Seconds after the start of a relay: while it imports, opens the session, connects, waits."""
LIVES = 4
INFO = {"server_id": "x", "version": "2.15.1", "max_payload": 1 << 20, "nonce": "x", "headers": True}
GREETINGS = {
    "a hub that was stopped": b"",
    "one that says its first word only": b"INFO " + json.dumps(INFO).encode() + b"\r\n",
    "one that wants TLS and does not speak it": b"INFO "
    + json.dumps({**INFO, "tls_required": True}).encode()
    + b"\r\n",
}


def relay(root: Path, environment: Mapping[str, str] = os.environ) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "multi_agent_mcp", "relay", "--root", str(root)], env=environment)


def ends(process: subprocess.Popen[bytes]) -> bool:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def member(root: Path, port: int, certificate: str | None = None, *, serves: bool = False) -> Sharing:
    """A machine whose hub is to be at this port."""
    create_session(root, SESSION, TeamFile((Agent(id="owner", role="owner", type="human"),)), "en")
    sharing = Sharing(root / SESSION)
    membership = Membership(UUID, DESK, (f"nats://127.0.0.1:{port}",), serves=serves)
    sharing.share.join(membership, new_seed(), certificate)
    return sharing


@contextmanager
def greeting(greeting: bytes) -> Iterator[int]:
    """Listens as a hub that sends this greeting and nothing else; yields its port."""
    connections: list[socket.socket] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connections.append(listener.accept()[0])
                    with suppress(OSError):  # it has ended just now
                        connections[-1].sendall(greeting)

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in connections:
        connection.close()


def end_at_every_moment(base: Path, port: int, certificate: str | None) -> list[float]:
    """Starts one relay for each moment, all at once; returns the moments at which one did not end."""
    for moment in MOMENTS:
        member(base / str(moment), port, certificate)
    began = time.monotonic()
    started = {moment: relay(base / str(moment)) for moment in MOMENTS}
    stayed = []
    for moment, process in started.items():
        time.sleep(max(began + moment - time.monotonic(), 0))
        if not ends(process):
            stayed.append(moment)
    return stayed


@pytest.mark.parametrize("kind", GREETINGS)
def test_while_it_looks_for(tmp_path: Path, kind: str) -> None:
    certificate = certificate_of() if "TLS" in kind else None
    with greeting(GREETINGS[kind]) as port:
        assert end_at_every_moment(tmp_path, port, certificate) == []


def test_while_its_hub_is_nowhere(tmp_path: Path) -> None:
    assert end_at_every_moment(tmp_path, 1, None) == []


def test_while_it_starts_a_hub_that_never_comes_up(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    slow = programs / "nats-server"
    slow.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "nats-server: v2.11.0" && exit\nexec sleep 100\n')
    slow.chmod(0o700)
    sharing = member(tmp_path, 1, serves=True)
    assert sharing.server is not None
    sharing.server.make("127.0.0.1:1")
    process = relay(tmp_path, {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})
    eventually(lambda: sharing.server is not None and sharing.server.pid())
    assert ends(process)
    pid = sharing.server.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_alive(pid, None))


def test_while_it_is_told_news_all_the_time(tmp_path: Path) -> None:
    """A cancellation that coincides with an answer may be mistaken for it (see `hub.relay`)."""
    with machines(tmp_path) as made:
        desk, stop = made[DESK], threading.Event()
        laptop = join(made.token(), tmp_path / LAPTOP, LAPTOP, adopt=False)
        talking = threading.Thread(target=lambda: asyncio.run(talk(laptop, stop)))
        talking.start()
        try:
            desk.signal(signal.SIGTERM)
            eventually(lambda: not desk.sharing.share.relay_runs)
            for _ in range(LIVES):
                process = relay(desk.root)
                eventually(lambda: desk.sharing.status().get("synchronised"))
                assert ends(process)
        finally:
            stop.set()
            talking.join()


async def talk(sharing: Sharing, stop: threading.Event) -> None:
    """Heartbeats that say all the time that there is something new."""
    membership, share = sharing.membership, sharing.share
    client = await connected_once(membership.urls, share.seed(), share.certificate(), membership.machine)
    subject = membership.names.heartbeat(membership.machine)
    last = 1000
    while not stop.is_set():
        last += 1
        await client.publish(subject, json.dumps({"position": 0, "last": last, "time": time.time()}).encode())
        await asyncio.sleep(0.001)
    await client.close()
