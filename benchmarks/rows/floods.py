"""What one machine floods the hub with, and how long the messages and the changes of others take meanwhile."""

from __future__ import annotations

import asyncio
import json
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from nats.aio.client import Client
from nats.errors import Error

from benchmarks.bench import Bench
from benchmarks.table import Finding
from multi_agent_mcp.domain.entity import id8
from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.hub.administration import connected_once
from multi_agent_mcp.hub.server import BUFFERED_MAX
from multi_agent_mcp.hub.sizes import BEAT_BYTES
from multi_agent_mcp.hub.subjects import Names
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.store.authority import PAYLOAD_BYTES, SHARED_BYTES
from tests.hub import test_floods
from tests.hub.support import DESK, LAPTOP, SHED, Machine, Machines, eventually, machines
from tests.hub.test_floods import Value
from tests.hub.test_security import LETTER, STAMP, as_machine

FLOOD_SECONDS = 8.0
PAUSE_SECONDS = 0.2
SUBSCRIPTIONS, CONNECTIONS = 20_000, 300
MESSAGE_SECONDS, TASK_SECONDS = 2.0, 4.0
Flood = Callable[["Flooding", Client], Awaitable[None]]


@dataclass
class Flooding:
    """A machine that floods until it is told to stop."""

    machine: Machine
    names: Names
    stop: threading.Event = field(default_factory=threading.Event)


def values(make: Callable[[Names, int], Value], *, each: bool = False) -> Flood:
    """Publishes values as fast as the hub stores them. `each`: none before the one before it is acknowledged."""

    async def publish(flooding: Flooding, client: Client) -> None:
        for number in count():
            if flooding.stop.is_set():
                return
            subject, data, headers = make(flooding.names, number)
            with suppress(Error):
                if each or number % (BUFFERED_MAX // 4) == 0:
                    await client.request(subject, data, 30, headers=headers)
                else:
                    await client.publish(subject, data, headers=headers)

    return publish


def known(kind: Callable[[Names], Iterator[Value]]) -> Flood:
    """Publishes the values of a test's flood."""
    made: dict[str, Iterator[Value]] = {}
    return values(lambda names, _: next(made.setdefault(names.uuid, kind(names))))


def calls(call: str, request: object) -> Flood:
    """Asks the hub, sixteen times at once; a batch's further answers are thrown away."""

    async def ask(flooding: Flooding, client: Client) -> None:
        subject = flooding.names.api(f"{call}.{flooding.names.values[1 if call.startswith('DIRECT') else 0]}")

        async def again() -> None:
            while not flooding.stop.is_set():
                with suppress(Error, asyncio.TimeoutError):
                    await client.request(subject, json.dumps(request).encode(), 5)

        await asyncio.gather(*(again() for _ in range(16)))

    return ask


async def subscriptions(flooding: Flooding, client: Client) -> None:
    for number in range(SUBSCRIPTIONS):
        if flooding.stop.is_set():
            return
        await client.subscribe(f"_INBOX_{LAPTOP}.x{number}")
    while not flooding.stop.is_set():
        await asyncio.sleep(0.1)


async def connections(flooding: Flooding, _: Client) -> None:
    membership, share = flooding.machine.sharing.membership, flooding.machine.sharing.share
    opened: list[Client] = []
    while not flooding.stop.is_set() and len(opened) < CONNECTIONS:
        with suppress(HubUnreachable, Error, OSError):
            opened.append(await connected_once(membership.urls, share.seed(), share.certificate(), LAPTOP))
    while not flooding.stop.is_set():
        await asyncio.sleep(0.1)
    for client in opened:
        await client.close()


def message(name: str, data: bytes, owner: str = "admin") -> Callable[[Names, int], Value]:
    return lambda names, number: (names.own(LAPTOP, "msg", owner, name.format(number)), data, STAMP)


def own(kind: str, owner: str, name: str, data: str) -> Callable[[Names, int], Value]:
    return lambda names, number: (
        names.own(LAPTOP, kind, owner, name.format(number)),
        data.replace("NUMBER", f"{number:012x}").encode(),
        STAMP,
    )


def shared(key: str, data: str) -> Callable[[Names, int], Value]:
    return lambda names, number: (
        names.shared(key.format(number)),
        data.replace("NUMBER", f"{number:012x}").encode(),
        STAMP,
    )


def audit(names: Names, number: int) -> Value:
    offset = {**STAMP, "Mam-Offset": str(number * 1000)}
    return names.log(LAPTOP, "audit", "20260101"), b"x" * 1000, offset


def bomb(names: Names, number: int) -> Value:
    headers = {**STAMP, **{f"X-{each}": "x" * 60 for each in range(2_000)}}
    return names.own(LAPTOP, "msg", "admin", f"bomb{number}.md"), LETTER, headers


TASK = "---\nid: tsk_NUMBER\ntitle: Flood\nassignee_id: {}\ncreated_by: admin\n---\n\nwords"
RECORD = json.dumps({"role": "worker", "type": "ai", "parent_id": "admin", "machine": LAPTOP, "name": "NUMBER"})
NOTICE = "---\nid: ntf_NUMBER\ntarget_agent_id: admin\ntype: status_change\naction: {}\ntask_id: {}\n---\n"
TALK = "---\nid: cnv_NUMBER\ninitiator_id: worker-a\ntarget_id: admin\nstatus: {}\n---\n"
NESTED = b"---\nid: x\nmetadata: " + b"[" * 400 + b"]" * 400 + b"\n---\n\nx"
LONG_LINES = b"---\nid: x\nmetadata:\n  a: >\n" + b"    w w w w w w w w\n" * 12_000 + b"---\n\nx"
FLOODS: dict[str, Flood] = {
    "messages": known(test_floods.letters),
    "junk messages": known(test_floods.no_letters),
    "one name again and again": values(message("same.md", LETTER)),
    "messages of 4 MiB": values(message("large{}.md", LETTER + b"x" * (PAYLOAD_BYTES - 4_096))),
    "messages, slow to parse": known(test_floods.slow_letters),
    "messages, nested": values(message("nested{}.md", NESTED)),
    "messages, long folded values": values(message("folded{}.md", LONG_LINES)),
    "header bombs": values(bomb),
    "tasks": values(shared("tsk.tsk_{:012x}", TASK.format("admin"))),
    "tasks, each acknowledged": values(shared("tsk.tsk_a{:011x}", TASK.format("admin")), each=True),
    "tasks, slow to parse": known(test_floods.slow_tasks),
    "tasks of 256 KiB": values(shared("tsk.tsk_b{:011x}", TASK.format("admin") + "x" * (SHARED_BYTES - 4_096))),
    "one task handed to and fro": values(
        lambda names, number: shared("tsk.tsk_cccccccccccc", TASK.format(("admin", "worker-b")[number % 2]))(names, 0)
    ),
    "agents": known(test_floods.agents),
    "one agent's record": values(shared("agent.worker-a", RECORD)),
    "settings": values(shared("settings", '{"language": "en", "x": "NUMBER"}')),
    "logs": values(audit),
    "heartbeats": values(lambda names, _: (names.heartbeat(LAPTOP), b"{}", STAMP)),
    "heartbeats of 16 KiB": values(
        lambda names, _: (names.heartbeat(LAPTOP), b"[" + b"{}," * (BEAT_BYTES // 4), STAMP)
    ),
    "notifications": values(own("ntf", "admin", "20260101_000000_{:08x}.md", NOTICE.format("x", "null"))),
    "interrupts": values(own("ntf", "admin", "20260102_000000_{:08x}.md", NOTICE.format("pause", "tsk_0123456789ab"))),
    "notifications under one id": values(
        own("ntf", "admin", "20260103_{:06d}_00000000.md", NOTICE.format("edit_overlap", "null").replace("NUMBER", "0"))
    ),
    "marks of messages that never come": values(own("read", "worker-a", "{}.md", '{"read_at": null}')),
    "sessions": values(own("ses", "worker-a", "ses_{:012x}", "---\nid: ses_NUMBER\nagent_id: worker-a\n---\n")),
    "hand-offs": values(own("hnd", "worker-a", "20260101_000000_{:08x}", "---\nagent_id: worker-a\n---\n\nwords")),
    "conversations, a directory each": values(shared("cnv.cnv_{:012x}", TALK.format("active"))),
    "conversations that end": values(shared("cnv.cnv_a{:011x}", TALK.format("ended"))),
    "lines of a task's history": values(shared("line.tsk_0123456789ab-{}", '{"n": 1}')),
    "STREAM.INFO with all subjects": calls("STREAM.INFO", {"subjects_filter": ">"}),
    "STREAM.MSG.GET": calls("STREAM.MSG.GET", {"last_by_subj": ">"}),
    "DIRECT.GET in batches": calls("DIRECT.GET", {"seq": 1, "batch": 1024, "next_by_subj": ">"}),
    "DIRECT.GET of the last of all": calls("DIRECT.GET", {"multi_last": [">"], "batch": 1024}),
    "20 000 subscriptions": subscriptions,
    "300 connections": connections,
}
"""The floods of one machine, by what they consist of: many, large, and slow to parse, to write or to index."""


def floods(bench: Bench) -> Finding:
    """The medians of others' messages and of their changes of a task, in the worst flood; each in a line beside it."""
    worst, lines = 0.0, []
    for name, flood in FLOODS.items():
        with machines(bench.place(), LAPTOP, SHED, delay=None) as made:  # what one has filled is not the next one's
            messages, tasks = measured(made, flood)
        worst = max(worst, messages / MESSAGE_SECONDS, tasks / TASK_SECONDS)
        lines.append(f"{name} {messages:.2f} s / {tasks:.2f} s")
        print(lines[-1], flush=True)
    return Finding(worst, "; ".join(lines))


def measured(made: Machines, flood: Flood) -> tuple[float, float]:
    """Returns the medians of the seconds that others' messages and changes of a task take during a flood."""
    flooding = Flooding(made[LAPTOP], made[LAPTOP].sharing.membership.names)
    thread = threading.Thread(target=as_machine, args=(made[LAPTOP], partial(flood, flooding)))
    thread.start()
    messages, tasks, began = list[float](), list[float](), time.monotonic()
    try:
        while time.monotonic() - began < FLOOD_SECONDS or not tasks:
            messages.append(_message(made))
            tasks.append(_change(made))
            time.sleep(PAUSE_SECONDS)
    finally:
        flooding.stop.set()
        thread.join()
    _message(made)
    return statistics.median(messages), statistics.median(tasks)


def _message(made: Machines) -> float:
    services, mailbox = made[SHED].services, made[DESK].path / "ipc" / "admin"
    began = time.perf_counter()
    draft = Draft(content="x" * 1000, receiver_id="admin")
    sent = services.messages.send(services.agents.get("worker-b"), draft)
    eventually(lambda: any(mailbox.glob(f"*_{id8(sent.message_id)}.md")))
    return time.perf_counter() - began


def _change(made: Machines) -> float:
    """Adds a task, and changes it, until both are on the other machine; what is refused for the moment is tried again,
    which counts. Returns half of that."""
    services, there = made[SHED].services, made[DESK].services.workspace.tasks
    creator, began, made_ids = services.agents.get("worker-b"), time.perf_counter(), list[str]()

    def adds() -> bool:
        with suppress(HubUnreachable):
            made_ids.append(services.task_creation.create(creator, [NewTask(title="in between")])[0].id)
        return bool(made_ids)

    def changes() -> bool:
        with suppress(HubUnreachable):
            services.workspace.tasks.update(made_ids[0], lambda found: replace(found, priority="high"))
            return True
        return False

    eventually(adds)
    eventually(changes)
    eventually(lambda: (found := there.find(made_ids[0])) is not None and found.priority == "high")
    return (time.perf_counter() - began) / 2
