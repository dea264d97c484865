"""Access to the hub, tested against the server itself: the permissions of a machine, and admission."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.message import Delegation
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.times import now
from multi_agent_mcp.errors import AlreadyExists, HubUnreachable, InvalidArguments, Unauthorized
from multi_agent_mcp.hub import administration, admission, logs, restoring, sharing
from multi_agent_mcp.hub.administration import connected_once
from multi_agent_mcp.hub.admission import Token, with_lane
from multi_agent_mcp.hub.applying import Applying
from multi_agent_mcp.hub.server import HubServer, accounts, configuration, new_seed, public_of
from multi_agent_mcp.hub.share_directory import Share
from multi_agent_mcp.hub.sharing import join
from multi_agent_mcp.hub.stream import Hub, Stored
from multi_agent_mcp.hub.subjects import BY_NAME, SLOTS, Names, slot_of
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.store.authority import PAYLOAD_BYTES
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.registry import SHARED
from multi_agent_mcp.wiring import Services
from tests.hub.support import (
    DESK,
    LAPTOP,
    PATIENCE_SECONDS,
    SHED,
    Machine,
    Machines,
    certificate_of,
    eventually,
    free_port,
    machines,
)
from tests.hub.test_looking import command, row, seen
from tests.hub.test_machines import send, task_for
from tests.test_layers import loaded_by


def as_machine(machine: Machine, work: Any) -> Any:
    """Returns the result of `work(client)` on a connection with this machine's key, and the server's complaints."""

    async def connected() -> Any:
        membership, share = machine.sharing.membership, machine.sharing.share
        client = await connected_once(membership.urls, share.seed(), share.certificate(), membership.machine)
        complaints: list[str] = []

        async def complain(error: Exception) -> None:
            complaints.append(str(error))

        client._error_cb = complain
        try:
            answer = await work(client)
            await client.flush()
            return answer, complaints
        finally:
            await client.close()

    return asyncio.run(connected())


def attempt(subject: str, data: bytes = b"{}") -> Any:
    async def work(client: Client) -> bytes | None:
        try:
            return (await client.request(subject, data, 0.5)).data
        except Error:
            return None

    return work


@pytest.mark.parametrize(
    "subject",
    [
        "{root}.own.{lane}.desk.msg.admin.forged",
        "{root}.own.{lane}.desk.ses.admin.ses_0123456789ab",
        "{root}.log.{lane}.desk.audit.20260101",
        "{root}.hb.desk",
        "{root}.join.0123",
        "$JS.API.STREAM.DELETE.{stream}",
        "$JS.API.STREAM.UPDATE.{stream}",
        "$JS.API.STREAM.PURGE.{stream}",
        "$JS.API.STREAM.MSG.DELETE.{stream}",
        "$JS.API.STREAM.CREATE.MINE",
        "$JS.API.CONSUMER.CREATE.{stream}.mine",
        "$JS.API.CONSUMER.DURABLE.CREATE.{stream}.mine",
        "_INBOX_desk.x",
    ],
)
def test_a_machine_cannot_write_in_anothers_name_nor_change_the_hub(two: Machines, subject: str) -> None:
    names = two[LAPTOP].sharing.membership.names
    filled = subject.format(root=names.root, stream=names.stream, lane=names.lane)
    answer, complaints = as_machine(two[LAPTOP], attempt(filled))
    assert answer is None
    assert any("permissions violation" in complaint for complaint in complaints), complaints


@pytest.mark.parametrize("subject", ["_INBOX_desk.>", "{root}.own.>", "{root}.join.*", ">", "$JS.>"])
def test_a_machine_listens_to_nobody_else(two: Machines, subject: str) -> None:
    names = two[LAPTOP].sharing.membership.names

    async def listen(client: Client) -> None:
        await client.subscribe(subject.format(root=names.root))
        await client.flush()
        await asyncio.sleep(0)

    _, complaints = as_machine(two[LAPTOP], listen)
    assert any("permissions violation" in complaint for complaint in complaints), complaints


def test_what_it_may_do_it_can(two: Machines) -> None:
    names = two[LAPTOP].sharing.membership.names
    answer, complaints = as_machine(two[LAPTOP], attempt(names.own(LAPTOP, "wait", "nobody"), b""))
    assert json.loads(answer)["stream"] == names.stream_of(names.own(LAPTOP, "wait", "nobody"))
    assert complaints == []


def victims(names: Names) -> list[str]:
    """Subjects at which what another one asked must never arrive: others' values, the hub's calls, others' answers."""
    return [
        *(names.own(DESK, "msg", "admin", "forged"), names.own(DESK, "read", "admin", "forged")),
        *(
            names.log(DESK, "audit", "20260101"),
            names.heartbeat(DESK),
            names.join("00"),
            names.heard.replace("*", DESK),
            names.news.replace(">", "forged"),
        ),
        *(f"$JS.API.STREAM.{call}.{names.stream}" for call in ("DELETE", "PURGE", "UPDATE")),
        *(
            "$JS.API.STREAM.CREATE.MINE",
            f"$JS.API.CONSUMER.CREATE.{names.stream}",
            "_INBOX_desk.x",
            "_R_.x",
            "another.app",
        ),
    ]


def questions(names: Names) -> list[tuple[str, bytes]]:
    """Every request that a machine or a token may make."""
    stored = json.dumps({"last_by_subj": names.own(LAPTOP, "wait", "nobody")}).encode()
    calls = ("STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET")
    return [
        *((names.own(LAPTOP, "wait", "nobody"), b"stored"), (names.log(LAPTOP, "audit", "x"), b"line")),
        *((names.shared("tsk.tsk_00000000dead"), b"x"), (names.heartbeat(LAPTOP), b"{}")),
        *((names.api(f"{call}.{stream}"), stored) for call in calls for stream in names.streams),
        *((names.join(slot), b"{}") for slot in SLOTS),
    ]


def test_what_a_machine_says_of_the_hub_stops_nobody_and_it_can_be_shut_out(tmp_path: Path) -> None:
    """The way back that docs/security.md describes, one machine after the other."""
    with machines(tmp_path, LAPTOP, SHED, delay=None) as made:
        desk, laptop, shed = made[DESK], made[LAPTOP], made[SHED]
        names = laptop.sharing.membership.names
        identity = desk.sharing.share.record("position").read()["identity"]
        lie = json.dumps({"position": 1, "time": 1.0, "replaced": identity}).encode()
        laptop.sharing.stop_relay()

        def lies() -> None:
            as_machine(laptop, lambda client: client.request(names.heartbeat(LAPTOP), lie, 5))

        def hears(machine: Machine) -> bool:
            lies()
            return row(machine, LAPTOP).troubles == ("older",)

        for machine in (desk, shed):
            eventually(lambda machine=machine: hears(machine))  # type: ignore[misc]
        eventually(lambda: hears(desk) and "multi-agent-mcp leave laptop" in command(desk, "doctor").stdout)
        for machine in (desk, shed):
            assert seen(machine).exchange != "replaced"
            machine.sharing.stop_relay()
            machine.sharing.start_relay()
            lies()
            eventually(lambda machine=machine: seen(machine).exchange == "connected")  # type: ignore[misc]
        for sender, receiver, there in (("admin", "worker-b", shed), ("worker-b", "admin", desk)):
            send(desk if sender == "admin" else shed, sender, receiver, "in spite of it")
            eventually(lambda there=there, receiver=receiver: there.has(receiver, "in spite of it"))  # type: ignore[misc]
        assert command(desk, "leave", LAPTOP).returncode == 0
        with pytest.raises(HubUnreachable):
            lies()
        eventually(lambda: row(shed, LAPTOP).state in ("away", "left") and row(shed, LAPTOP).troubles == ())
        assert not any(machine.sharing.status()["replaced"] for machine in (desk, shed))


def publishes(machine: Machine, *values: tuple[str, bytes]) -> None:
    """Has the hub store values with the machine's key, and waits until the desk is past them."""

    async def publish(client: Client) -> None:
        for subject, data in values:
            answer = await client.request(subject, data, 5, headers={**STAMP, "Mam-Offset": "0"})
            assert b'"seq"' in answer.data, answer.data

    as_machine(machine, publish)
    send(machine, "worker-a", "admin", words := f"after {secrets.token_hex(4)}")
    desk = Machine(DESK, machine.root.parent / DESK)
    eventually(lambda: desk.has("admin", words))


def test_no_machine_writes_a_file_over_that_of_another_ones_agent(two: Machines) -> None:
    """The partition in the name, the header and what is there already are judged alike, for all kinds that travel."""
    names, desk = two[LAPTOP].sharing.membership.names, two[DESK]
    services = desk.services
    admin, task_id = services.agents.get("admin"), task_for(desk, "admin")
    services.task_changes.start(admin, task_id)
    kept = services.hand_offs.write(admin, "the roof is next\n", None, None)
    session = services.sessions.open("admin", "task")
    receipt = desk.path / "receipts" / task_id / "rcp_0123456789ab.md"
    receipt.parent.mkdir(parents=True)
    receipt.write_text(f"---\nid: rcp_0123456789ab\ntask_id: {task_id}\nagent_id: admin\n---\n\nfailed")
    (record,) = desk.path.glob("*/admin/ses_*.md")
    genuine = {path: path.read_bytes() for path in (kept.path, receipt, record)}
    forged = b"---\nid: x\ntask_id: %b\nagent_id: worker-a\n---\n\nFORGED" % task_id.encode()
    publishes(
        two[LAPTOP],
        (names.own(LAPTOP, "hnd", "admin", kept.path.stem), forged),
        (names.own(LAPTOP, "hnd", "admin", "20260101_000000_00000000"), forged),
        (names.own(LAPTOP, "rcp", task_id, receipt.stem), forged),
        (names.own(LAPTOP, "rcp", "tsk_0123456789ab", receipt.stem), forged),
        (names.own(LAPTOP, "ses", "worker-a", record.stem), b"---\nagent_id: worker-a\n---\n"),
    )
    assert {path: path.read_bytes() for path in genuine} == genuine
    assert not any("FORGED" in path.read_text() for path in desk.path.glob("[hr]*/**/*.md"))
    session.end()


def test_a_signed_message_is_handed_out_once_whatever_name_another_machine_gives_it(two: Machines) -> None:
    names, desk = two[LAPTOP].sharing.membership.names, two[DESK]
    send(desk, "owner", "admin", "DEPLOY to production now")
    inbox = desk.services.workspace.mailbox("admin")
    ((name, _),) = [item for item in inbox.unread() if item[1].content.startswith("DEPLOY")]
    data = (inbox.path / name).read_bytes()
    with desk.services.workspace.locks.held(inbox.lock):
        inbox.read([name], desk.services.clock())
    publishes(two[LAPTOP], (names.own(LAPTOP, "msg", "admin", "20260101_000000_00000000.md"), data))
    assert not [item for item in inbox.unread() if item[1].content.startswith("DEPLOY")]


CAN = {
    "read everything that travels": "test_what_a_joined_machine_writes_is_believed",
    "change, finish, cancel": "test_a_joined_machine_ends_what_all_share",
    "write any notification": "test_what_a_joined_machine_writes_is_believed",
    "make any agent one of those": "test_what_a_joined_machine_writes_is_believed",
    "change names, roles": "test_what_a_joined_machine_writes_is_believed",
    "write half of what all share": (
        "test_sharing.test_a_machine_that_has_filled_its_part_of_what_all_share_stops_only_itself"
    ),
    "occupy each machine's disk": "test_the_logs_of_another_machine_occupy_no_more_than_they_may",
    "delay, from the ninth machine on": "test_from_the_ninth_machine_on_two_share_a_lane",
    "say anything of itself": "test_what_a_machine_says_of_the_hub_stops_nobody_and_it_can_be_shut_out",
}
"""What security.md says that a joined machine can do, by the beginnings of its lines, and the tests that do it."""


def test_each_line_of_what_a_joined_machine_can_do_has_a_test() -> None:
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    _, _, rest = text.partition("that has joined *can* do")
    lines = [line[2:] for line in rest.partition("It cannot sign")[0].splitlines() if line.startswith("- ")]
    assert [next((begin for begin in CAN if line.startswith(begin)), line) for line in lines] == [*CAN]
    for test in CAN.values():
        module, _, name = test.rpartition(".")
        assert f"def {name}(" in (Path(__file__).parent / f"{module or 'test_security'}.py").read_text(), name


def test_from_the_ninth_machine_on_two_share_a_lane() -> None:
    users: dict[str, Any] = {"machines": {}, "lanes": {}}
    for number in range(9):
        users = with_lane({**users, "machines": {**users["machines"], f"m{number}": ""}}, f"m{number}")
    lanes = [*users["lanes"].values()]
    assert len(set(lanes[:8])) == 8
    assert lanes[8] in lanes[:8]


def test_a_joined_machine_ends_what_all_share(two: Machines) -> None:
    """Of others, without a key of theirs."""
    desk, laptop, names = two[DESK], two[LAPTOP], two[LAPTOP].sharing.membership.names
    services, workspace = desk.services, desk.services.workspace
    admin, owner = services.agents.get("admin"), services.agents.owner()
    talk = services.conversations.begin(admin, owner, "which colour?")[0].id
    task_id, question = task_for(desk, "admin"), services.questions.ask(admin, Asking(question="blue?"), None).id
    other = services.questions.ask(admin, Asking(question="or red?"), None).id
    held = services.reservations.reserve(admin, ["src/"], minutes=5)[0].id
    delegation = Delegation(id="dlg_00000000beef", agent_id="admin", target_agent_id="owner")
    workspace.delegations.add(delegation)
    claim = b"---\nagent_id: owner\npatterns: [all/]\ncreated_at: '2026-01-01T00:00:00.000000Z'\n---\n"
    at = "2026-01-01T00:00:00.000000Z"
    said = {
        f"dlg.{delegation.id}": {"status": "taken", "taken_by": "ses_theirs"},
        f"tsk.{task_id}": {"status": "cancelled"},
        f"cnv.{talk}": {"status": "ended", "ended_at": at},
        f"qst.{question}": {"status": "withdrawn", "closed_at": at},
        f"qst.{other}": {"status": "answered", "answer": "theirs", "answered_by": "owner", "answered_at": at},
        f"rsv.{held}": {"released_at": at, "ended": "released"},
    }
    for key, changed in said.items():
        name = key.partition(".")[2]
        places = (
            each for each in desk.path.rglob("*.md") if str(each).endswith((f"{name}.md", f"{name}/conversation.md"))
        )
        found = next(places).read_text()
        _, header, body = found.split("---\n", 2)
        text = yaml.safe_dump({**yaml.safe_load(header), **changed, "hub": None}, sort_keys=False, allow_unicode=True)
        publishes(laptop, (names.shared(key), f"---\n{text}---\n{body}".encode()))
    eventually(lambda: workspace.tasks.get(task_id).status == "cancelled")
    eventually(lambda: workspace.conversations.get(talk).status == "ended")
    eventually(lambda: not {question, other} & {each.id for each in services.questions.open()})
    answered = workspace.collection(BY_NAME["qst"].of_feature).get(other)
    assert (answered.answer, answered.answered_by) == ("theirs", "owner")
    eventually(lambda: held not in {each.id for each in services.reservations.open()})
    eventually(lambda: workspace.delegations.get(delegation.id).taken_by == "ses_theirs")
    history = b"---\ntitle: Theirs\nstatus: done\nhistory:\n- {at: '2026-01-01T00:00:00.000000Z', by: owner}\n---\n"
    publishes(laptop, (names.shared("rsv.rsv_00000000beef"), claim), (names.shared(f"tsk.{task_id}"), history))
    eventually(lambda: workspace.tasks.get(task_id).status == "done")
    assert [line.get("by") for line in workspace.tasks.get(task_id).history] == ["owner"]
    assert workspace.collection(BY_NAME["rsv"].of_feature).get("rsv_00000000beef").agent_id == "owner"
    publishes(laptop, (names.shared(f"tsk.{task_id}"), b""))
    eventually(lambda: workspace.tasks.find(task_id) is None)


def test_what_a_joined_machine_writes_is_believed(two: Machines) -> None:
    names, desk, there = two[LAPTOP].sharing.membership.names, two[DESK], two[LAPTOP].services
    send(desk, "owner", "admin", "read everywhere")
    task_id = task_for(desk, "admin")
    eventually(lambda: two[LAPTOP].has("admin", "read everywhere") and there.workspace.tasks.find(task_id))  # reads all
    (path,) = two[LAPTOP].path.glob(f"tasks/*/{task_id}.md")
    task = b"".join(line for line in path.read_bytes().splitlines(True) if not line.startswith(b"hub: "))
    agent = {"role": "worker", "type": "ai", "parent_id": "admin", "machine": DESK, "name": "A name"}
    desk.services.agents.add(Agent(id="taken", parent_id="admin"))
    notice = b"---\nid: ntf_00000000beef\nagent_id: admin\ntype: status_change\n---\n"
    overlap = b"---\nid: ntf_000000010000\naction: edit_overlap\ncreated_at: '%b-01-01T00:00:00.000000Z'\n---\n"
    ours = replace(
        Notification(id="ntf_000000010000", action="edit_overlap", target_agent_id="admin"), created_at=now()
    )
    assert desk.services.notice_writer.put_first(ours)
    publishes(
        two[LAPTOP],
        (names.shared(f"tsk.{task_id}"), task.replace(b"title: Build", b"title: Theirs")),
        (names.shared("agent.added"), json.dumps(agent).encode()),
        (names.shared("agent.added"), json.dumps({**agent, "machine": LAPTOP}).encode()),
        (names.shared("agent.keyed"), json.dumps({**agent, "machine": "off", "public_key": "theirs"}).encode()),
        (names.shared("agent.taken"), json.dumps({**agent, "machine": LAPTOP}).encode()),
        (names.shared("settings"), b'{"language": "ja"}'),
    )
    # what is shared, one machine's values and its logs are streams of their own: none waits for another
    eventually(lambda: desk.services.agents.all().get("added", Agent(id="-")).machine == LAPTOP)
    publishes(
        two[LAPTOP],
        (names.own(LAPTOP, "msg", "admin", "note.md"), b"---\nsender_id: owner\n---\n\nunsigned"),
        (names.own(LAPTOP, "ntf", "admin", "20260101_000000_00000000.md"), notice),
        (names.own(LAPTOP, "ses", "added", "ses_00000000beef"), b"---\nagent_id: added\n---\n"),
        (names.log(LAPTOP, "exec", "added/exec_00000000beef"), b"line\n"),
        (names.own(LAPTOP, "ntf", "admin", "20260101_000000_00000001.md"), overlap % b"1970"),
        *((names.own(LAPTOP, kind, "added", name), data) for kind, name, data in of_agents_there()),
        (names.own(LAPTOP, "rcp", task_id, "rcp_00000000beef"), receipt_of("added", task_id)),
        (names.own(LAPTOP, "rcp", task_id, "rcp_00000000dead"), receipt_of("admin", task_id)),
        (names.log(LAPTOP, "audit", "20260102"), b"{}\n"),
    )
    services, log = desk.services, desk.path / "executions/added/logs/exec_00000000beef.log"
    try:
        eventually(lambda: services.workspace.tasks.get(task_id).title.startswith("Theirs"))
        eventually(lambda: two[DESK].services.settings.language == "ja")
        assert (services.agents.get("added").machine, services.agents.get("added").name) == (LAPTOP, "A name")
        (message,) = [item for item in services.workspace.mailbox("admin").history() if item.content == "unsigned"]
        assert services.signatures.verdict(message) == "unsigned"
        assert any(item.id == "ntf_00000000beef" for item in services.workspace.notices("admin").history())
        assert [item.id for item in services.workspace.sessions.all("added")] == ["ses_00000000beef"]
        eventually(lambda: log.exists() and log.read_text() == "line\n")
        (found,) = [item for item in services.workspace.notices("admin").history() if item.id == ours.id]
        assert found.created_at.year == 1970
        assert services.agents.get("keyed").public_key == "theirs"
        receipts = desk.path / "receipts" / task_id
        eventually((receipts / "rcp_00000000beef.md").exists)
        assert not (receipts / "rcp_00000000dead.md").exists()  # of an agent at home here
        with pytest.raises(Unauthorized, match="other_home"):
            desk.services.agents.authenticate("taken", "whatever")
        for name in ("exec_00000000beef.md", "20260101_000000_00000000.md"):
            eventually(lambda name=name: [*desk.path.glob(f"[eh]*/added/**/{name}")])  # type: ignore[misc]
        for name in ("owner_wait/added.md", ".edits/added.jsonl", "audit/20260102.laptop.jsonl"):
            eventually(lambda name=name: (desk.path / name).exists())  # type: ignore[misc]
    finally:
        publishes(two[LAPTOP], (names.shared("settings"), b'{"language": "en"}'))
        eventually(lambda: two[DESK].services.settings.language == "en")


def receipt_of(agent_id: str, task_id: str) -> bytes:
    return f"---\ntask_id: {task_id}\nagent_id: {agent_id}\n---\n\npassed".encode()


def of_agents_there() -> Iterator[tuple[str, str, bytes]]:
    """What a machine may say of an agent at home there, but for its mail."""
    yield "exec", "exec_00000000beef", b"---\nagent_id: added\n---\n"
    yield "hnd", "20260101_000000_00000000", b"---\nagent_id: added\n---\n\nwords"
    yield "wait", "-", b"---\nowner_id: added\n---\n"
    yield "edits", "-", b"{}\n"


def test_a_record_of_an_agent_is_taken_as_it_was_written_but_under_no_id_that_differs_in_case(two: Machines) -> None:
    """Another order of keys is no edit by hand, and what a newer version shares survives an older one."""
    names, desk = two[LAPTOP].sharing.membership.names, two[DESK]
    record = {
        "colour": "red",
        "parent_id": "admin",
        "machine": LAPTOP,
        "command": "evil",
        "type": "ai",
        "role": "worker",
    }
    data = json.dumps(record).encode()
    publishes(two[LAPTOP], (names.shared("agent.newer"), data), (names.shared("agent.ADMIN"), data))
    registry = desk.services.workspace.registry
    assert ("newer" in registry.all(), "ADMIN" in registry.all()) == (True, False)
    assert "newer" not in registry.edited()
    desk.services.agents.change("newer", name="renamed")
    found = last_value(desk, names.shared("agent.newer"))
    assert (found["colour"], found["name"], "command" in found) == ("red", "renamed", False)
    assert desk.services.agents.get("newer").command is None


def test_the_logs_of_another_machine_occupy_no_more_than_they_may(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOGS_BYTES", 5 * logs.BLOCK_BYTES)
    names = Names("0" * 32)

    def relay() -> Applying:
        return Applying(
            workspace=services.workspace,
            names=names,
            machine=DESK,
            consequences=restoring._Nothing(),
            on_written=lambda *_: None,
        )

    applying = relay()
    parts = [
        Stored(names.log(LAPTOP, "audit", f"202601{day:02}"), day, {"Mam-Offset": "0", "Mam-Time": "1"}, b"x")
        for day in range(1, 10)
    ]
    applying.apply(parts, restoring=False)
    assert len(list(services.path.glob("audit/*.laptop.jsonl"))) == 5
    assert applying.logs.full == {LAPTOP}
    for old in services.path.glob("audit/*.laptop.jsonl"):  # as `doctor` says, and the relay is started again
        old.unlink()
    applying = relay()
    applying.apply(parts[:3], restoring=False)
    assert (len(list(services.path.glob("audit/*.laptop.jsonl"))), applying.logs.full) == (3, set())


@dataclass(frozen=True)
class Asker:
    """Somebody with a key for the hub, and a request that it may make."""

    name: str
    seed: str
    asks: tuple[str, bytes]


SAID_LAST = "another.app"


async def arrived_elsewhere(
    urls: Sequence[str], certificate: str | None, admin_seed: str, names: Names, asker: Asker
) -> set[str]:
    """Returns the victims' subjects at which anything arrives when the asker makes every request with each of them as
    its reply and in the headers that redirect; with `SAID_LAST`, at which the administrator says something last."""
    found: set[str] = set()
    said = asyncio.Event()

    async def note(message: Msg) -> None:
        found.add(message.subject)
        if message.subject == SAID_LAST:
            said.set()

    client = await connected_once(urls, asker.seed, certificate, asker.name)  # then the server has read a new token
    watching = await connected_once(urls, admin_seed, certificate, "admin")
    client._error_cb = _silent
    for subject in victims(names):
        await watching.subscribe(subject, cb=note)
    await watching.flush(30)
    for subject, data in questions(names):
        for target in victims(names):
            await client.publish(subject, data, reply=target)
            await client.publish(subject, data, headers={"Nats-Trace-Dest": target, "Mam-Op": "x"})
    for _ in range(2):
        await client.request(*asker.asks, 30)  # it is answered, after all the rest
    await watching.publish(SAID_LAST, b"the spy hears")
    await asyncio.wait_for(said.wait(), PATIENCE_SECONDS)
    await client.close()
    await watching.drain()  # what has come is noted first
    # What desk says itself, and what the asker may ask: its slot may be the first one.
    return found - {names.heard.replace("*", DESK), names.heartbeat(DESK), asker.asks[0]}


@pytest.mark.parametrize("who", ["machine", "token"])
def test_no_reply_and_no_header_leads_anywhere_but_back_to_the_one_who_asked(two: Machines, who: str) -> None:
    """nats-server checks the subject of a request and not that of its reply, to which it publishes itself."""
    server, names = two[DESK].sharing.server, two[LAPTOP].sharing.membership.names
    assert server is not None
    if who == "token":  # else none is made: the server that reads it parts from whoever is connected
        token = two.token()
        asker = Asker(f"join-{slot_of(token.id)}", token.seed, (names.join(token.id), b"{}"))
    else:
        asker = Asker(LAPTOP, two[LAPTOP].sharing.share.seed(), questions(names)[0])
    reached = [server.local_url], server.certificate, server.admin_seed
    found = asyncio.run(arrived_elsewhere(*reached, names, asker))
    assert found == {"another.app"}
    eventually(lambda: two[DESK].sharing.status()["connected"])


async def _silent(_: Exception) -> None:
    """The server's complaints are not what is looked for."""


STAMP = {"Mam-Time": "1700000000000000000"}
DEEP = b"[" * 100_000
LETTER = b"---\nid: x\n---\n\nx"
FAR = {"Mam-Offset": "9223372036854775000"}


def nonsense(names: Names) -> Iterator[tuple[str, bytes, dict[str, str]]]:
    """Yields names that lead out of the session or are too long, entities of others, and values that are no
    entities."""
    yield names.own(LAPTOP, "msg", "admin", "../../evil.md"), LETTER, STAMP
    yield names.own(LAPTOP, "msg", "../evil", "a.md"), LETTER, STAMP
    yield names.own(LAPTOP, "msg", "admin", "x" * 300 + ".md"), LETTER, STAMP
    yield names.own(LAPTOP, "msg", "admin", "long ago.md"), LETTER, {"Mam-Time": "-99999999999999999999999"}
    yield names.own(LAPTOP, "msg", "admin", "b.md"), b"\xff\xfe", STAMP
    yield names.own(LAPTOP, "read", "admin", "20260101_000000_00000000.md"), b'{"read_at": 5}', STAMP
    yield names.own(LAPTOP, "read", "worker-a", "20260101_000000_00000000.md"), DEEP, STAMP
    yield names.own(LAPTOP, "ses", "worker-a", "ses_0123456789ab"), b"---\nagent_id: admin\n---\n\n", STAMP
    yield names.own(LAPTOP, "ses", "admin", "ses_0123456789ab"), b"---\nagent_id: admin\n---\n\n", STAMP
    yield names.own(LAPTOP, "wait", "worker-a"), b"[]", STAMP
    yield names.log(LAPTOP, "audit", "20260101"), b"{}", FAR
    yield names.log(LAPTOP, "exec", "worker-a/exec_0123456789ab"), b"x", FAR
    yield names.shared("tsk.tsk_zzz"), b"x", STAMP
    yield names.shared("tsk.tsk_0123456789ab"), b"no front matter", STAMP
    yield names.shared("tsk.tsk_0123456789ac"), b"---\ntitle: x\n---\n", {"Mam-Time": "9" * 30}
    yield names.shared("tsk.tsk_0123456789ad"), b"---\ntitle: x\n---\n", {**STAMP, "Mam-Was": "x"}
    yield names.shared("cnv.cnv_0123456789ab"), b"---\nmetadata: " + b"{a: " * 500, STAMP
    yield names.shared("agent.%2E%2E"), b"[]", STAMP
    yield names.shared("line.tsk_0123456789ab-7"), b'{"number": 8}', STAMP
    yield names.shared("settings"), b'{"language": "xx"}', STAMP
    yield names.shared("settings"), b'{"language": "en", "limits": {"content_bytes": 1e999}}', STAMP


@pytest.mark.parametrize("beat", [DEEP, b'{"position": 1e999, "last": 0, "time": 0}', b"[]", b"\xff"])
def test_nonsense_for_a_heartbeat_ends_no_relay(two: Machines, beat: bytes) -> None:
    names, desk = two[LAPTOP].sharing.membership.names, two[DESK].relay_pid
    as_machine(two[LAPTOP], lambda client: client.publish(names.heartbeat(LAPTOP), beat))
    send(two[LAPTOP], "worker-a", "admin", f"after {beat[:9]!r}")
    eventually(lambda: two[DESK].has("admin", f"after {beat[:9]!r}"))
    assert two[DESK].relay_pid == desk


def test_nonsense_from_a_joined_machine_stops_nobody_and_leads_nowhere(two: Machines) -> None:
    names, relay = two[LAPTOP].sharing.membership.names, two[DESK].relay_pid

    async def publish(client: Client) -> list[bytes]:
        published = [client.request(*each[:2], 2, headers=each[2]) for each in nonsense(names)]
        published.append(client.request(names.log(LAPTOP, "audit", "20260102"), b"{}\n", headers={"Mam-Offset": "0"}))
        return [(await answer).data for answer in published]

    answers, complaints = as_machine(two[LAPTOP], publish)
    assert all(b'"seq"' in answer for answer in answers)
    assert complaints == []
    send(two[LAPTOP], "worker-a", "admin", "all is well")
    eventually(lambda: two[DESK].has("admin", "all is well"))
    eventually(lambda: (two[DESK].path / "audit" / "20260102.laptop.jsonl").exists())
    assert two[DESK].relay_pid == relay
    assert not list(two.base.rglob("evil*"))
    services = two[DESK].services
    assert "ses_0123456789ab" not in [session.id for session in services.workspace.sessions.all("admin")]
    assert services.settings.language == "en"
    assert services.agents.get("admin").role == "admin"


@pytest.mark.parametrize("headers", [{"Status": "204"}, {"Nats-Subject": "x"}, {"Nats-Sequence": str(2**62)}], ids=str)
def test_a_value_with_the_headers_of_the_server_stops_nobody(two: Machines, headers: dict[str, str]) -> None:
    name = f"{next(iter(headers))}.md"
    subject = two[LAPTOP].sharing.membership.names.own(LAPTOP, "msg", "admin", name)
    as_machine(two[LAPTOP], lambda client: client.request(subject, LETTER, 2, headers={**STAMP, **headers}))
    eventually(lambda: any(two[DESK].path.rglob(f"{name}*")))
    send(two[LAPTOP], "worker-a", "admin", f"after {headers}")
    eventually(lambda: two[DESK].has("admin", f"after {headers}"))


def test_a_value_that_is_no_record_changes_no_agent_and_makes_none(two: Machines) -> None:
    names, desk, laptop = two[LAPTOP].sharing.membership.names, two[DESK], two[LAPTOP]

    def shared() -> list[dict[str, Any]]:
        files = [json.loads((machine.path / "agents.json").read_text(encoding="utf-8")) for machine in (desk, laptop)]
        return [{key: value for key, value in file["agents"]["admin"].items() if key in SHARED} for file in files]

    before = shared()

    async def publish(client: Client) -> None:
        for value in (
            b"\xff\xfe",
            DEEP,
            b"[]",
            b'{"newer": %b1%b}' % (200 * b"[", 200 * b"]"),
            b'{"newer": "\\ud800"}',
        ):
            await client.request(names.shared("agent.ghost"), value, 2, headers=STAMP)
            await client.request(names.shared("agent.admin"), value, 2, headers=STAMP)

    as_machine(laptop, publish)
    send(laptop, "worker-a", "admin", "after no record")
    eventually(lambda: desk.has("admin", "after no record"))
    assert shared() == before
    eventually(lambda: last_value(laptop, names.shared("agent.admin")) == before[0], "the hub has the record again")
    assert all("ghost" not in machine.services.agents.registry.all() for machine in (desk, laptop))


def test_mail_of_an_agent_is_read_though_its_record_has_a_number_where_a_list_belongs(two: Machines) -> None:
    names, desk = two[LAPTOP].sharing.membership.names, two[DESK]
    record = {"role": "worker", "machine": LAPTOP, "machines": 5, "former_public_keys": 5, "public_key": "k"}
    signed = b"---\nsender_id: odd\nsender_role: worker\nsignature: x\n---\n\nfrom an odd one"
    publishes(two[LAPTOP], (names.shared("agent.odd"), json.dumps(record).encode()))
    publishes(two[LAPTOP], (names.own(LAPTOP, "msg", "admin", "odd.md"), signed))
    services = desk.services
    read = services.reading.read(services.agents.get("admin"), Query())
    assert "from an odd one" in str(read)


def last_value(machine: Machine, subject: str) -> Any:
    """Returns the JSON value that the hub has; None if it is none."""
    membership = machine.sharing.membership

    async def last(client: Client) -> bytes:
        found = await Hub(membership.names, membership.machine, client=client).last(subject)
        return found.data if found is not None else b""

    with suppress(ValueError, RecursionError):
        return json.loads(as_machine(machine, last)[0])


def test_what_is_too_large_for_the_hub_is_refused_and_holds_nothing_up(two: Machines) -> None:
    names, laptop = two[LAPTOP].sharing.membership.names, two[LAPTOP]
    answer, _ = as_machine(laptop, attempt(names.own(LAPTOP, "msg", "admin", "large.md"), b"x" * (PAYLOAD_BYTES + 1)))
    assert "error" in json.loads(answer)
    by_hand = laptop.path / "ipc" / "worker-a" / "large.md"
    by_hand.write_bytes(b"---\nsender_id: admin\n---\n\n" + b"x" * PAYLOAD_BYTES)
    log = laptop.path / ".share" / "relay.log"
    eventually(lambda: "hub_too_large" in log.read_text())
    eventually(lambda: laptop.sharing.status()["pending"] == 0)
    with pytest.raises(HubUnreachable) as refused:
        laptop.services.workspace.authority.create("tsk.tsk_0123456789ae", b"x" * (PAYLOAD_BYTES + 1))
    assert refused.value.key == "error.hub_too_large"


def test_a_mark_that_another_machine_forged_does_not_hinder_the_true_one(two: Machines) -> None:
    names, desk = two[LAPTOP].sharing.membership.names, two[DESK]
    send(two[LAPTOP], "worker-a", "admin", "read me")
    eventually(lambda: desk.has("admin", "read me"))
    inbox = desk.services.workspace.mailbox("admin")
    ((name, _),) = [item for item in inbox.unread() if item[1].content == "read me"]
    relay, noted = desk.relay_pid, desk.sharing.share.record("position")
    eventually(lambda: sum(noted.read()["places"].values()) == desk.sharing.status()["position"])
    desk.signal(signal.SIGKILL)  # the next one has to ask what the hub knows of it
    with desk.services.workspace.locks.held(inbox.lock):
        inbox.read([name], desk.services.clock())
    as_machine(two[LAPTOP], attempt(names.own(LAPTOP, "read", "admin", name), b"[]"))
    desk.start()
    assert desk.relay_pid != relay
    there = two[LAPTOP].services.workspace.mailbox("admin")
    eventually(lambda: name not in [each for each, _ in there.unread()])


def test_a_token_is_good_once_and_for_a_free_name(two: Machines) -> None:
    for taken in (LAPTOP, LAPTOP.upper()):  # a file system may take the two for one
        with pytest.raises(AlreadyExists) as refused:
            join(two.token(), two.base / "other", taken, adopt=False)
        assert refused.value.values["name"] == LAPTOP  # as `share --again` knows it
    token = two.token()
    join(token, two.base / "third", "third", adopt=False)
    eventually(lambda: two[DESK].sharing.server.users()["tokens"][token.id]["used"])  # type: ignore[union-attr]
    with pytest.raises(InvalidArguments, match="token_used"):
        join(token, two.base / "fourth", "fourth", adopt=False)
    assert not (two.base / "fourth" / "demo").exists()


def asked_with(token: Token, machine: str, public: str) -> Any:
    """The hub's answer to a request of somebody who has no more than this token."""

    return asyncio.run(admission._answer(token, json.dumps({"machine": machine, "nkey": public}).encode()))


def a_key() -> str:
    return public_of(new_seed())


@pytest.mark.parametrize("kind", ["U1", "checksum", "lower case", "a server's", "the administrator's", "a machine's"])
def test_a_token_lets_in_no_key_with_which_the_hub_would_not_start(two: Machines, kind: str) -> None:
    server, good = two[DESK].sharing.server, a_key()
    assert server is not None
    public = {
        "U1": "U1",
        "checksum": good[:-1] + ("A" if good[-1] != "A" else "B"),
        "lower case": good.lower(),
        "a server's": "N" + good[1:],
        "the administrator's": public_of(server.admin_seed),
        "a machine's": server.users()["machines"][LAPTOP],
    }[kind]
    pid, before = server.pid(), server.users()["machines"]
    assert "refused" in asked_with(two.token(), "evil", public)
    assert (server.users()["machines"], server.pid()) == (before, pid)


def test_one_token_with_one_good_key_lets_in_one_machine(two: Machines) -> None:
    server, token, public = two[DESK].sharing.server, two.token(), a_key()
    assert server is not None
    assert asked_with(token, "evil0", public)["lane"]
    eventually(lambda: "refused" in asked_with(token, "evil1", public))
    assert "evil1" not in server.users()["machines"]
    words = "all goes on"
    eventually(lambda: two[LAPTOP].sharing.status()["connected"])
    send(two[LAPTOP], "worker-a", "admin", words)
    eventually(lambda: two[DESK].has("admin", words))
    two[DESK].sharing.leave("evil0")


def test_a_configuration_with_which_the_hub_does_not_start_is_never_used(two: Machines) -> None:
    server = two[DESK].sharing.server
    assert server is not None
    users, pid = server.users(), server.pid()
    evil = {**users, "machines": {**users["machines"], "evil": a_key()}, "lanes": {**users["lanes"], "evil": "x y"}}
    with pytest.raises(HubUnreachable) as refused:
        server.let(evil)
    assert "is not a valid subject" in refused.value.values["line"]
    assert (server.users(), server.pid()) == (users, pid)


def test_a_hub_that_ended_because_of_its_configuration_returns_to_the_last_good_one(two: Machines) -> None:
    """Written by an earlier version, or by hand: here a lane that no machine has, and a key that is none."""
    desk, server = two[DESK], two[DESK].sharing.server
    assert server is not None
    users = server.users()
    machines = {**users["machines"], "evil": a_key(), "worse": "U1"}
    server._write("users", {**users, "machines": machines, "lanes": {**users["lanes"], "evil": "x y"}})
    pid = server.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: desk.sharing.status()["connected"] and server.pid() not in (None, pid))
    eventually(lambda: seen(desk).hub_finding == "hub_earlier")
    assert seen(desk).hub_words["left_out"] == "evil"
    for words in (["machines"], ["doctor"], ["attention", "--json"]):
        assert "is not a valid subject" in command(desk, *words).stdout
    assert "multi-agent-mcp leave NAME" in command(desk, "machines").stdout
    assert command(desk, "leave", "evil").returncode == 0
    eventually(lambda: seen(desk).hub_finding is None)
    send(two[LAPTOP], "worker-a", "admin", "it runs")
    eventually(lambda: desk.has("admin", "it runs"))


def test_a_server_that_is_started_with_what_it_does_not_read_is_started_again_with_what_it_does(two: Machines) -> None:
    server = two[DESK].sharing.server
    assert server is not None
    conf = server.path / "server.conf"
    good = conf.read_bytes()
    server.note_good()
    with two[DESK].services.workspace.locks.held("hub-start"):
        server.stop()
        conf.write_bytes(good.replace(b"jetstream {", b"jetstream { nonsense,"))
        with (server.path / "server.log").open("a") as log:
            log.write("nats-server: server.conf:3:1: nonsense\n")
    eventually(lambda: two[DESK].sharing.status()["connected"])
    # Not as it was: a token that an earlier test used leaves it after a while.
    eventually(lambda: conf.read_text() == configuration(server, server.read("settings"), server.users()))


def test_a_configuration_that_has_come_since_the_server_ended_is_not_blamed_for_that(two: Machines) -> None:
    """As when a token is forgotten while the hub is down: it was refused until the users changed again."""
    server = two[DESK].sharing.server
    assert server is not None
    users, conf = server.users(), server.path / "server.conf"
    server.note_good()
    later = {**users, "full": {LAPTOP: 1}}
    with two[DESK].services.workspace.locks.held("hub-start"):
        server.stop()
        with (server.path / "server.log").open("a") as log:
            log.write("nats-server: server.conf:3:1: nonsense\n")
        server._write("users", later)
        conf.write_text(configuration(server, server.read("settings"), later))
    try:
        eventually(lambda: server.pid() is not None and two[DESK].sharing.status()["connected"])
        assert conf.read_text() == configuration(server, server.read("settings"), later)
        assert not (server.path / "refused.json").exists()
    finally:
        server.let(users)


def test_why_a_hub_does_not_start_is_said_everywhere_and_share_does_not_wait_for_it(two: Machines) -> None:
    desk, server = two[DESK], two[DESK].sharing.server
    assert server is not None
    with desk.services.workspace.locks.held("hub-start"), socket.socket() as stranger:
        server.stop()
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", two.port))
        stranger.listen()
        taken = stranger.dup()
    with taken:
        eventually(lambda: "Error listening on port" in seen(desk).hub_words["line"])
        for words in ("machines", "doctor", "attention", "share"):
            done = command(desk, words)
            assert "Error listening on port" in done.stdout + done.stderr, words
    eventually(lambda: seen(desk).hub_finding is None and seen(desk).exchange == "connected")


@pytest.mark.parametrize(
    "settings",
    [{"language": "xx"}, {"language": "en", "limits": {"content_bytes": 1e999}}, ["notify_command"]],
)
def test_who_has_made_a_token_writes_no_settings_but_language_and_limits(settings: Any) -> None:
    given = {"language": "en", "notify_command": "evil", "checks": {"x": "evil"}, "id": "other"}
    assert sharing._taken({"settings": given, "lane": "00"}) == ({"language": "en"}, "00")
    with pytest.raises(InvalidArguments):
        sharing._taken({"settings": settings, "lane": "00"})


@pytest.mark.parametrize("field", [{"uuid": "x.>"}, {"lane": "../x"}, {"urls": (5,)}, {"session": 5}])
def test_the_words_of_a_token_become_no_other_names_on_the_hub(field: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments, match="bad_token"):
        Token.parse(str(replace(TOKEN, **field)))


def test_no_machines_name_is_that_of_an_account_for_tokens(two: Machines) -> None:
    server = two[DESK].sharing.server
    assert server is not None
    users = {"machines": {f"join-{slot}": a_key() for slot in SLOTS}, "tokens": {}}
    assert len(accounts(server, users)) == 1 + 2 * len(SLOTS)


def test_only_where_the_hub_is_machines_are_let_in(two: Machines) -> None:
    with pytest.raises(InvalidArguments, match="hub_elsewhere"):
        two[LAPTOP].sharing.invite()


def test_a_token_says_nothing_but_how_to_ask(two: Machines) -> None:
    token = two.token()
    names = Names(token.uuid)

    async def ask(subject: str) -> bytes | None:
        client = await connected_once(token.urls, token.seed, token.certificate, f"join-{slot_of(token.id)}")
        try:
            return (await client.request(subject, b"{}", 0.5)).data
        except Error:
            return None
        finally:
            await client.close()

    def asked(subject: str) -> bytes | None:
        coroutine: Coroutine[Any, Any, bytes | None] = ask(subject)
        return asyncio.run(coroutine)

    assert asked(f"$JS.API.STREAM.MSG.GET.{names.stream}") is None
    assert asked(names.shared("tsk.tsk_0123456789ab")) is None
    assert json.loads(asked(names.join(token.id)) or b"")["refused"] == "invalid_arguments"


TOKEN = Token(uuid="0" * 32, session="demo", urls=("nats://127.0.0.1:4222",), certificate=None, id="0" * 12, seed="SU")


def test_a_printed_line_is_a_token() -> None:
    assert Token.parse(f"  multi-agent-mcp join {TOKEN}\n") == TOKEN


@pytest.mark.parametrize(
    "text",
    ["", "mam1.", "mam1.e30", "x" * 500, "mam1.%%%", str(TOKEN)[:-1], str(TOKEN)[:60], str(TOKEN).replace("e", "f", 1)],
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidArguments, match="bad_token"):
        Token.parse(text)


def test_off_loopback_the_hub_speaks_tls_and_only_its_own_certificate_is_believed(two: Machines) -> None:
    names = Names("0" * 32)
    (two.base / "tls").mkdir()
    server = HubServer(Share(Files(two.base / "tls")), names)
    server.make(f"0.0.0.0:{free_port()}")
    server.let({"machines": {}, "tokens": {}})
    server.start()
    try:
        certificate = server.certificate
        assert certificate is not None
        asyncio.run(closed(connected_once([server.local_url], server.admin_seed, certificate, "admin")))
        with pytest.raises(HubUnreachable):
            asyncio.run(closed(connected_once([server.local_url], server.admin_seed, certificate_of(), "admin")))
        with socket.create_connection(("127.0.0.1", server.read("settings")["port"])) as plain:
            plain.sendall(b"PING\r\n")
            assert plain.recv(4096) == b""  # it speaks TLS or not at all
    finally:
        server.stop()


@pytest.mark.parametrize("scheme", ["nats", "tls"])
def test_nobody_on_the_way_can_talk_a_machine_out_of_tls(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would sign the hub's nonce for any server that requests it."""
    monkeypatch.setattr(administration, "CONNECT_SECONDS", 0)
    certificate = certificate_of()
    info = {"server_id": "x", "version": "2.15.1", "max_payload": 1 << 20, "nonce": "x", "headers": True}
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"INFO " + json.dumps(info).encode() + b"\r\n")
                heard.extend(connection.recv(4096))

        between = threading.Thread(target=listen)
        between.start()
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        pinned = certificate if scheme == "nats" else None
        with pytest.raises(HubUnreachable):
            asyncio.run(closed(connected_once([url], new_seed(), pinned, LAPTOP)))
        between.join()
    assert heard.startswith(b"\x16\x03")  # a handshake record (RFC 8446, 5.1)
    assert b"CONNECT" not in heard


async def closed(connecting: Coroutine[Any, Any, Client]) -> None:
    await (await connecting).close()


def test_files_of_the_share_are_private(two: Machines) -> None:
    for path in (two[DESK].path / ".share").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_servers_and_commands_import_no_client_of_the_hub(two: Machines) -> None:
    loaded = loaded_by("unread", "worker-a", "--root", str(two[LAPTOP].root))
    assert "multi_agent_mcp.hub.share_directory" in loaded
    assert {"nats", "nkeys", "asyncio", "multi_agent_mcp.hub.relay"} & loaded == set()


@pytest.mark.parametrize(("given", "typed"), [("{token}", ""), ("-", "    multi-agent-mcp join {token}\n")])
def test_join_says_what_is_wrong_in_one_sentence(two: Machines, given: str, typed: str) -> None:
    token = replace(two.token(), urls=("nats://127.0.0.1:1",))
    words = ["join", given.format(token=token), "--root", str(two.base / "nowhere")]
    call = [sys.executable, "-m", "multi_agent_mcp", *words]
    done = subprocess.run(call, input=typed.format(token=token), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "hub_unreachable" in done.stderr
    assert not (two.base / "nowhere" / "demo").exists()
