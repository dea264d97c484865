"""What one machine floods the hub with delays its own mail and no other machine's, and what is no entity is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from nats.aio.client import Client

from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.hub.administration import HEADERS_BYTES
from multi_agent_mcp.hub.server import BUFFERED_MAX
from multi_agent_mcp.hub.sizes import BEAT_BYTES, STRUCTURE_MAX
from multi_agent_mcp.hub.subjects import Names
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.store.authority import SHARED_BYTES
from multi_agent_mcp.store.registry import AGENTS_MAX
from tests.hub.support import DESK, LAPTOP, SHED, Machines, eventually, machines
from tests.hub.test_machines import send
from tests.hub.test_security import LETTER, STAMP, as_machine, attempt

MANY, VERY_MANY, SLOWLY = 600, 2_500, 60
TOO_LARGE_FOR_STREAM = 10054
Value = tuple[str, bytes, dict[str, str]]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("three"), LAPTOP, SHED, delay=None) as made:
        yield made


def letters(names: Names) -> Iterator[Value]:
    return ((names.own(LAPTOP, "msg", "admin", f"flood{number}.md"), LETTER, STAMP) for number in count())


def no_letters(names: Names) -> Iterator[Value]:
    return ((names.own(LAPTOP, "msg", "admin", f"no{number}.md"), b"\xff", STAMP) for number in count())


def agents(names: Names) -> Iterator[Value]:
    record = json.dumps({"role": "worker", "type": "ai", "parent_id": "admin", "machine": LAPTOP}).encode()
    return ((names.shared(f"agent.ghost{number}"), record, STAMP) for number in count())


SLOW = b"---\nid: x\nmetadata:\n" + b"".join(b"- {a: b}\n" for _ in range(STRUCTURE_MAX // 4)) + b"---\n\nx"
"""As slow to parse as a value can be that is accepted."""


def slow_letters(names: Names) -> Iterator[Value]:
    return ((names.own(LAPTOP, "msg", "admin", f"slow{number}.md"), SLOW, STAMP) for number in count())


def slow_tasks(names: Names) -> Iterator[Value]:
    return ((names.shared(f"tsk.tsk_{number:012x}"), SLOW, STAMP) for number in count())


def flood(
    values: Iterator[Value], many: int, meanwhile: Callable[[int], object] = lambda _: None
) -> Callable[[Client], Awaitable[None]]:
    """Publishes so many values as fast as the hub takes them, and calls `meanwhile` with the number of each."""

    async def publish(client: Client) -> None:
        for number in range(many):
            subject, data, headers = next(values)
            if number % (BUFFERED_MAX // 4):
                await client.publish(subject, data, headers=headers)
            else:  # those before it are stored then: the hub refuses what comes faster
                await client.request(subject, data, 30, headers=headers)
            meanwhile(number)

    return publish


@pytest.mark.parametrize(
    ("kind", "many"),
    [(letters, MANY), (no_letters, VERY_MANY), (agents, MANY), (slow_letters, SLOWLY), (slow_tasks, SLOWLY)],
)
def test_a_flood_delays_only_the_machine_that_sends_it(three: Machines, kind: Any, many: int) -> None:
    """The letter of another one, sent while most of the flood was not, is there before the flood is."""
    names, desk, words = three[LAPTOP].sharing.membership.names, three[DESK], f"during {kind.__name__}"

    def meanwhile(number: int) -> None:
        if number == many // 10:
            send(three[SHED], "worker-b", "admin", words)

    before = desk.sharing.status()["position"]
    as_machine(three[LAPTOP], flood(kind(names), many, meanwhile))
    eventually(lambda: desk.sharing.status()["position"] - before > many, "the flood is dealt with")
    dealt_with = time.time()
    eventually(lambda: desk.has("admin", words))
    (letter,) = (path for path in (desk.path / "ipc" / "admin").glob("2*.md") if words.encode() in path.read_bytes())
    assert letter.stat().st_ctime < dealt_with
    assert len(desk.services.agents.registry.all()) <= AGENTS_MAX


def test_what_all_share_is_changed_while_one_machine_sends_there_what_is_slow_to_read(three: Machines) -> None:
    """Who has written a shared value is in its subject: its values wait for each other, and no others do."""
    names, desk, services = three[LAPTOP].sharing.membership.names, three[DESK], three[SHED].services
    creator, changed = services.agents.get("worker-b"), []

    def meanwhile(number: int) -> None:
        if number == SLOWLY - 1:
            changed.extend(services.task_creation.create(creator, [NewTask(title="in between")]))

    before = desk.sharing.status()["position"]
    as_machine(three[LAPTOP], flood(slow_tasks(names), SLOWLY, meanwhile))
    eventually(lambda: desk.services.workspace.tasks.find(changed[0].id))
    assert desk.sharing.status()["position"] - before < SLOWLY  # the flood is not dealt with
    eventually(lambda: desk.sharing.status()["position"] - before > SLOWLY)


@pytest.mark.parametrize(
    ("kind", "size"),
    [("all.tsk.tsk_00000000beef", SHARED_BYTES), ("hb.laptop", BEAT_BYTES)],
    ids=["shared", "heartbeat"],
)
def test_the_hub_itself_refuses_what_is_too_large(three: Machines, kind: str, size: int) -> None:
    names = three[LAPTOP].sharing.membership.names
    answer, _ = as_machine(three[LAPTOP], attempt(f"{names.root}.{kind}", b"x" * (size + HEADERS_BYTES + 1)))
    assert json.loads(answer)["error"]["err_code"] == TOO_LARGE_FOR_STREAM


def test_what_comes_faster_than_the_hub_stores_it_is_refused_and_others_change_what_all_share(three: Machines) -> None:
    names, shed, many = three[LAPTOP].sharing.membership.names, three[SHED], 8 * BUFFERED_MAX
    services = shed.services
    (task,) = services.task_creation.create(services.agents.get("worker-b"), [NewTask(title="to be changed")])

    def is_changed() -> bool:
        with suppress(HubUnreachable):  # a slow disk: it is said at once, and tried again
            services.workspace.tasks.update(task.id, lambda found: replace(found, priority="high"))
            return True
        return False

    async def last(client: Client) -> int:
        answer = await client.request(names.api(f"STREAM.INFO.{names.stream}"), b"{}", 30)
        return int(json.loads(answer.data)["state"]["last_seq"])

    async def publish(client: Client) -> int:
        before = await last(client)
        for number in range(many):
            await client.publish(names.shared(f"agent.fast{number}"), b"{}", headers=STAMP)
        await client.flush(30)
        await asyncio.to_thread(eventually, is_changed)
        return await last(client) - before

    stored, _ = as_machine(three[LAPTOP], publish)
    assert stored < many
    eventually(lambda: three[DESK].services.workspace.tasks.get(task.id).priority == "high")


def test_an_agent_without_a_key_whom_no_machine_has_added_gets_none_where_it_is_said_to_be(three: Machines) -> None:
    names, laptop = three[SHED].sharing.membership.names, three[LAPTOP]
    record = json.dumps({"role": "worker", "type": "ai", "parent_id": "admin", "machine": LAPTOP}).encode()

    async def publish(client: Client) -> None:
        await client.request(names.shared("agent.nobody"), record, 30, headers=STAMP)

    as_machine(three[SHED], publish)
    eventually(lambda: "nobody" in laptop.services.agents.registry.all())
    words = "all that came before is done with"
    send(three[DESK], "admin", "worker-a", words)
    eventually(lambda: laptop.has("worker-a", words))
    (letter,) = [item for item in laptop.services.workspace.mailbox("worker-a").history() if item.content == words]
    eventually(lambda: letter.id in laptop.services.workspace.travel_log.steps())
    assert not laptop.services.workspace.key_path("nobody").exists()


def test_a_part_of_a_log_that_is_far_off_makes_no_large_file_and_a_lost_one_is_asked_for_again(three: Machines) -> None:
    names, desk = three[LAPTOP].sharing.membership.names, three[DESK]
    day, line = "20260103", b"{}\n"
    log = desk.path / "audit" / f"{day}.laptop.jsonl"

    async def publish(client: Client, *offsets: int) -> None:
        for offset in offsets:
            headers = {**STAMP, "Mam-Offset": str(offset)}
            await client.request(names.log(LAPTOP, "audit", day), line, 30, headers=headers)

    as_machine(three[LAPTOP], lambda client: publish(client, 0, 10**9))
    eventually(log.exists)
    log.write_bytes(b"")
    as_machine(three[LAPTOP], lambda client: publish(client, len(line)))
    send(three[LAPTOP], "worker-a", "admin", "after the log")
    eventually(lambda: desk.has("admin", "after the log"))
    assert log.stat().st_size <= 2 * len(line)


@pytest.mark.parametrize("subject", ["{root}.all.unheard.of", "{root}.own.{lane}.laptop.unheard.x.y"])
def test_the_hub_itself_refuses_what_is_of_no_kind(three: Machines, subject: str) -> None:
    names = three[LAPTOP].sharing.membership.names
    answer, complaints = as_machine(three[LAPTOP], attempt(subject.format(root=names.root, lane=names.lane)))
    assert (answer, complaints) == (None, [])


def test_what_one_machine_owns_has_a_limit(three: Machines) -> None:
    names = three[LAPTOP].sharing.membership.names

    async def limits(client: Client) -> list[dict[str, Any]]:
        answers = [await client.request(names.api(f"STREAM.INFO.{stream}"), b"{}", 5) for stream in names.streams]
        return [json.loads(answer.data)["config"] for answer in answers]

    configs, _ = as_machine(three[LAPTOP], limits)
    assert all(config["max_msgs"] > 0 and config["max_bytes"] > 0 for config in configs)
    assert {config["discard"] for config in configs if "_log_" not in config["name"]} == {"new"}
