"""A machine joins a session that has lived for long: everything comes from the hub into its files."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from itertools import islice

from nats.aio.client import Client

from benchmarks.bench import Bench
from benchmarks.floors import python_started
from benchmarks.past import Past
from benchmarks.table import Finding
from benchmarks.timing import ms, processor_seconds
from multi_agent_mcp.hub import subjects
from multi_agent_mcp.hub.administration import connected_once
from multi_agent_mcp.hub.server import BUFFERED_MAX, HubServer, find_program
from multi_agent_mcp.hub.sharing import join
from multi_agent_mcp.hub.stream import MACHINE, OP, TIME
from tests.hub.support import DESK, LAPTOP, Machine, eventually, machines

IN_FLIGHT = BUFFERED_MAX // 2
"""The hub refuses more."""
MARK = re.compile(rb"^read_at: '(.*)'$", re.MULTILINE)
SECONDS = 1800
"""A machine that misses the bound by far is waited for all the same."""


def joining(bench: Bench) -> Finding:
    """From the start of the new machine's relay until it has everything, in starts of an interpreter: its time is spent
    in Python, on all cores."""
    floor = python_started(bench.place())
    with machines(bench.place()) as made:
        desk, laptop = made[DESK], Machine(LAPTOP, made.base / LAPTOP)
        join(made.token(), laptop.root, LAPTOP, adopt=False)
        eventually(lambda: len(desk.sharing.server.users()["machines"]) == 2)  # type: ignore[union-attr]
        desk.sharing.stop_relay()
        live(desk, bench.scale.entities)
        brought = bring(desk)
        made.members[LAPTOP] = laptop
        return measure(laptop, brought, floor)


def live(desk: Machine, entities: int) -> None:
    """Mail and notifications that were read, and tasks that are done."""
    past, share = Past(desk.services.workspace), entities // 10
    past.archived_mail(6 * share, receiver_id="admin", sender_id="owner")
    past.notifications(share, agent_id="admin")
    past.finished_tasks(2 * share, assignee_id="admin")
    past.open_tasks(share, assignee_id="admin")


def bring(desk: Machine) -> int:
    """Puts all files on the hub, in seconds: it does not sync meanwhile. Returns the revision of the last."""
    server = desk.sharing.server
    assert server is not None
    configuration = (server.path / "server.conf").read_text(encoding="utf-8")
    careless = server.path / "careless.conf"
    careless.write_text(configuration.replace('sync_interval: "always"', 'sync_interval: "2m"'), encoding="utf-8")
    with subprocess.Popen([find_program(), "-c", str(careless)], stderr=subprocess.DEVNULL) as process:
        last = asyncio.run(_bring(server, desk))
        process.terminate()
    server.start()
    return last


async def _bring(server: HubServer, desk: Machine) -> int:
    client = await connected_once([server.local_url], server.admin_seed, server.certificate, "admin")
    values, last = _values(server, desk), 0
    while some := list(islice(values, IN_FLIGHT)):
        answers = await asyncio.gather(*(_put(client, subject, data) for subject, data in some))
        last = max(last, *answers)
    await client.close()
    return last


async def _put(client: Client, subject: str, data: bytes) -> int:
    headers = {OP: os.urandom(8).hex(), MACHINE: DESK, TIME: str(time.time_ns())}
    answer = json.loads((await client.request(subject, data, 60, headers=headers)).data)
    assert "error" not in answer, answer
    return int(answer["seq"])


def _values(server: HubServer, desk: Machine) -> Iterator[tuple[str, bytes]]:
    names = server.names
    for kind, mark, directory in (
        (subjects.MESSAGE, subjects.READ, "ipc"),
        (subjects.NOTIFICATION, subjects.SEEN, "notifications"),
    ):
        for path in (desk.path / directory / "admin").rglob("*.md"):
            data = path.read_bytes()
            read = MARK.search(data)
            assert read is not None
            yield names.own(DESK, kind, "admin", path.name), MARK.sub(b"read_at: null", data)
            at = json.dumps({"read_at": read[1].decode()}).encode()
            yield names.own(DESK, mark, "admin", path.name), at
    for path in (desk.path / "tasks").rglob("*.md"):
        yield names.stored(names.shared(f"tsk.{path.stem}"), "desk"), path.read_bytes()


def measure(laptop: Machine, brought: int, floor: float) -> Finding:
    before = os.getloadavg()[0]
    began = time.monotonic()
    laptop.sharing.start_relay()
    laptop.sharing.wait_until_complete(lambda _: None, SECONDS)
    took, status = time.monotonic() - began, laptop.sharing.status()
    assert status["position"] >= brought
    processor = processor_seconds(laptop.relay_pid)
    files = sum(1 for _ in laptop.path.rglob("*.md"))
    words = f"{took:.0f} s, {processor:.0f} s of processor, {files} files; load before {before:.1f}"
    return Finding(took / floor, words, f"{ms(floor)} python -c pass")
