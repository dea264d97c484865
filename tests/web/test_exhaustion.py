"""Strangers on this machine cannot lock the Owner out, fill the disk with errors or the memory with bodies."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from starlette.requests import Request

from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.web import request as asking
from multi_agent_mcp.web.security import STRANGER_SECONDS
from tests.end_to_end.support import PATIENCE_SECONDS, Team
from tests.web.support import Visitor, Web

HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
ERRORS_BYTES = 2000
MIB = 1 << 20


@contextmanager
def crowd(web: Web, number: int) -> Iterator[None]:
    """Holds this many connections with half a request each open. The server may close them."""
    with ExitStack() as context:
        for _ in range(number):
            context.enter_context(connected(web)).send(HALF)
        yield


def connected(web: Web) -> socket.socket:
    return socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE_SECONDS)


@pytest.fixture
def _many_files() -> Iterator[None]:
    """Allows this process enough open files for its ends of the connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < 4096:
        pytest.skip("this user may open too few files")
    if 0 <= soft < 4096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_many_files")
@pytest.mark.parametrize(("open_files", "number"), [(1024, 1100), (256, 300)])
def test_half_sent_requests_leave_room_for_the_owner(team: Team, open_files: int, number: int) -> None:
    with Web(team, open_files=open_files) as web:
        visitor = web.visitor()
        with visitor.listen() as events:
            next(events)
            with crowd(web, number):
                assert visitor.see("/session")["session"] == "demo"
                assert visitor.get("/").status == 200
                team.post("worker-a")
                assert next(topics for _, topics in events if topics) == ["messages"], "the open page stays connected"
        assert web.errors.stat().st_size < ERRORS_BYTES


def test_the_owner_comes_in_while_strangers_keep_coming(web: Web, visitor: Visitor) -> None:
    over = threading.Event()
    strangers = [threading.Thread(target=_keep_coming, args=(web, over)) for _ in range(4)]
    for stranger in strangers:
        stranger.start()
    try:
        for _ in range(20):
            assert visitor.see("/session")["session"] == "demo"
    finally:
        over.set()
        for stranger in strangers:
            stranger.join()


def _keep_coming(web: Web, over: threading.Event) -> None:
    """Opens fifty half-sent requests at a time, repeatedly, until `over` is set."""
    while not over.is_set():
        with crowd(web, 50):
            pass


def test_what_a_stranger_does_slowly_ends(web: Web) -> None:
    """Headers and bodies byte by byte, and answers that nobody reads."""
    host = f"Host: 127.0.0.1:{web.port}\r\n".encode()
    with connected(web) as headers, connected(web) as body, connected(web) as deaf:
        headers.sendall(b"GET / HTTP/1.1\r\n" + host + b"X: ")
        body.sendall(b"POST /api/tasks HTTP/1.1\r\n" + host + b"Content-Length: 1000000\r\n\r\n")
        deaf.setblocking(False)
        began = time.monotonic()
        alive = {headers: b"x", body: b"x", deaf: b"GET /static/console.css HTTP/1.1\r\n" + host + b"\r\n"}
        while alive and time.monotonic() - began < STRANGER_SECONDS + PATIENCE_SECONDS:
            alive = {one: data for one, data in alive.items() if _goes_on(one, data)}
            time.sleep(0.1)  # the slowness is what is tested
        assert not alive


def _goes_on(one: socket.socket, data: bytes) -> bool:
    try:
        one.send(data)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def test_a_descriptor_shortage_is_waited_for_quietly(web: Web, visitor: Visitor) -> None:
    if not hasattr(resource, "prlimit"):
        pytest.skip("another process's limits can be changed on Linux only")
    limits = resource.prlimit(web.pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{web.pid}/fd"))  # noqa: PTH208 - only their number matters
    resource.prlimit(web.pid, resource.RLIMIT_NOFILE, (used + 3, limits[1]))
    with crowd(web, 50):
        busy = _processor_seconds(web.pid)
        time.sleep(3)  # its behaviour meanwhile is tested
        assert _processor_seconds(web.pid) - busy < 1.5
    resource.prlimit(web.pid, resource.RLIMIT_NOFILE, limits)
    assert visitor.see("/session")["session"] == "demo"
    said = web.errors.read_text(encoding="utf-8")
    assert said.count("connections cannot be accepted") == 1
    assert len(said) < ERRORS_BYTES


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_body_without_end_is_refused_while_it_comes_in(web: Web, visitor: Visitor) -> None:
    """300 MiB in chunks, so that nothing announces its size."""
    told = {"Host": f"127.0.0.1:{web.port}", "Origin": web.address, "X-CSRF-Token": str(visitor.token)}
    told |= {"Cookie": "; ".join("=".join(pair) for pair in visitor.cookies.items()), "Transfer-Encoding": "chunked"}
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    chunk = f"{MIB:x}\r\n".encode() + b"x" * MIB + b"\r\n"
    with connected(web) as one:
        one.sendall(f"POST /api/tasks HTTP/1.1\r\n{head}\r\n".encode())
        before = _peak_bytes(web.pid)
        sent = 0
        while sent < 300 and not select.select([one], [], [], 0)[0]:
            one.sendall(chunk)
            sent += 1
        assert one.recv(65_536).startswith(b"HTTP/1.1 413 ")
    assert sent < 100
    assert _peak_bytes(web.pid) - before < 40 * MIB


def _peak_bytes(pid: int) -> int:
    """The peak memory use of a process in bytes (proc(5), `VmHWM`); 0 where it is not available."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "BODY_SECONDS", 0.01)

    async def never() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(InvalidArguments):
        asyncio.run(asking.read_body(Request({"type": "http", "method": "POST", "headers": []}, never)))


def test_nonsense_is_not_logged(web: Web) -> None:
    for _ in range(20):
        with connected(web) as one:
            one.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
            assert one.recv(65_536).startswith(b"HTTP/1.1 400 ")
    assert web.errors.stat().st_size == 0
