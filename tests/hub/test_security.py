"""What a machine may do on the hub, tried against the server itself, and who gets in."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import Error

from multi_agent_mcp.errors import AlreadyExists, HubUnreachable, InvalidArguments
from multi_agent_mcp.hub.joining import Token
from multi_agent_mcp.hub.share import Share
from multi_agent_mcp.hub.sharing import join
from multi_agent_mcp.hub.stream import connected_once
from multi_agent_mcp.hub.subjects import Names
from multi_agent_mcp.store.files.durable_files import Files
from tests.hub.support import DESK, LAPTOP, Machine, Machines, eventually, free_port, machines
from tests.test_layers import loaded_by


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("two"), LAPTOP) as made:
        yield made


def as_machine(machine: Machine, work: Any) -> Any:
    """What `work(client)` answers on a connection with this machine's key, and the server's complaints."""

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
        "{root}.own.desk.msg.admin.forged",
        "{root}.own.desk.ses.admin.ses_0123456789ab",
        "{root}.log.desk.audit.20260101",
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
    names = Names(two[LAPTOP].sharing.membership.uuid)
    filled = subject.format(root=names.root, stream=names.stream)
    answer, complaints = as_machine(two[LAPTOP], attempt(filled))
    assert answer is None
    assert any("permissions violation" in complaint for complaint in complaints), complaints


@pytest.mark.parametrize("subject", ["_INBOX_desk.>", "{root}.own.>", "{root}.join.*", ">", "$JS.>"])
def test_a_machine_listens_to_nobody_else(two: Machines, subject: str) -> None:
    names = Names(two[LAPTOP].sharing.membership.uuid)

    async def listen(client: Client) -> None:
        await client.subscribe(subject.format(root=names.root))
        await client.flush()
        await asyncio.sleep(0)

    _, complaints = as_machine(two[LAPTOP], listen)
    assert any("permissions violation" in complaint for complaint in complaints), complaints


def test_what_it_may_do_it_can(two: Machines) -> None:
    names = Names(two[LAPTOP].sharing.membership.uuid)
    answer, complaints = as_machine(two[LAPTOP], attempt(names.own(LAPTOP, "wait", "nobody"), b""))
    assert json.loads(answer)["stream"] == names.stream
    assert complaints == []


def test_nonsense_from_a_joined_machine_stops_nobody_and_leads_nowhere(two: Machines) -> None:
    """Names that lead out of the session, entities of others, and no entities at all."""
    names = Names(two[LAPTOP].sharing.membership.uuid)
    evil = {
        names.own(LAPTOP, "msg", "admin", "../../evil.md"): b"---\nid: x\n---\n\nx",
        names.own(LAPTOP, "msg", "../evil", "a.md"): b"---\nid: x\n---\n\nx",
        names.own(LAPTOP, "read", "admin", "20260101_000000_00000000.md"): b'{"read_at": 5}',
        names.own(LAPTOP, "ses", "worker-a", "ses_0123456789ab"): b"---\nagent_id: admin\n---\n\n",
        names.own(LAPTOP, "ses", "admin", "ses_0123456789ab"): b"---\nagent_id: admin\n---\n\n",
        names.own(LAPTOP, "msg", "admin", "b.md"): b"\xff\xfe",
        names.shared("tsk.tsk_zzz"): b"x",
        names.shared("tsk.tsk_0123456789ab"): b"no front matter",
        names.shared("agent.%2E%2E"): b"[]",
        names.shared("line.tsk_0123456789ab-7"): b'{"number": 8}',
        names.shared("settings"): b'{"language": "xx"}',
        names.shared("unheard.of"): b"?",
    }

    async def publish(client: Client) -> list[bytes]:
        stamp = {"Mam-Time": "1700000000000000000"}
        return [(await client.request(subject, data, 2, headers=stamp)).data for subject, data in evil.items()]

    answers, complaints = as_machine(two[LAPTOP], publish)
    assert all(b'"seq"' in answer for answer in answers)
    assert complaints == []
    last = max(json.loads(answer)["seq"] for answer in answers)
    eventually(lambda: two[DESK].sharing.status()["position"] >= last)
    assert not list(two.base.rglob("evil*"))
    services = two[DESK].services
    assert services.workspace.sessions.all("admin") == []
    assert services.settings.language == "en"
    assert services.agents.get("admin").role == "admin"


def test_a_token_is_good_once_and_for_a_free_name(two: Machines) -> None:
    with pytest.raises(AlreadyExists):
        join(two.token(), two.base / "other", LAPTOP, adopt=False)
    token = two.token()
    join(token, two.base / "third", "third", adopt=False)
    eventually(lambda: two[DESK].sharing.server.users()["tokens"][token.id]["used"])  # type: ignore[union-attr]
    with pytest.raises((HubUnreachable, InvalidArguments)):
        join(token, two.base / "fourth", "fourth", adopt=False)
    assert not (two.base / "fourth" / "demo").exists()


def test_a_token_says_nothing_but_how_to_ask(two: Machines) -> None:
    token = two.token()
    names = Names(token.uuid)

    async def ask(subject: str) -> bytes | None:
        client = await connected_once(token.urls, token.seed, token.certificate, f"join-{token.id}")
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


@pytest.mark.parametrize("text", ["", "mam1.", "mam1.e30", "x" * 500, "mam1.%%%"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidArguments):
        Token.parse(text)


def test_off_loopback_the_hub_speaks_tls_and_only_its_own_certificate_is_believed(two: Machines) -> None:
    from multi_agent_mcp.hub.server import Server, new_certificate

    names = Names("0" * 32)
    server = Server(Share(Files(two.base / "tls")), names)
    server.make(f"0.0.0.0:{free_port()}")
    server.let({"machines": {}, "tokens": {}})
    server.start()
    try:
        certificate = server.certificate
        assert certificate is not None
        asyncio.run(closed(connected_once([server.local_url], server.admin_seed, certificate, "admin")))
        _, other = new_certificate()
        with pytest.raises(HubUnreachable):
            asyncio.run(closed(connected_once([server.local_url], server.admin_seed, other.decode(), "admin")))
        with socket.create_connection(("127.0.0.1", server.read("settings")["port"])) as plain:
            assert json.loads(plain.recv(4096).removeprefix(b"INFO ").strip())["tls_required"] is True
        assert ssl.OPENSSL_VERSION
    finally:
        server.stop()


async def closed(connecting: Coroutine[Any, Any, Client]) -> None:
    await (await connecting).close()


def test_files_of_the_share_are_private(two: Machines) -> None:
    for path in (two[DESK].path / ".share").rglob("*"):
        if path.suffix in (".nk", ".pem", ".sock", ".json", ".conf"):
            assert path.stat().st_mode & 0o077 == 0, path


def test_servers_and_commands_import_no_client_of_the_hub(two: Machines) -> None:
    loaded = loaded_by("unread", "worker-a", "--root", str(two[LAPTOP].root))
    assert "multi_agent_mcp.hub.link" in loaded
    assert {"nats", "nkeys", "asyncio", "multi_agent_mcp.hub.relay"} & loaded == set()


def test_join_says_what_is_wrong_in_one_sentence(two: Machines) -> None:
    token = replace(two.token(), urls=("nats://127.0.0.1:1",))
    call = [sys.executable, "-m", "multi_agent_mcp", "join", str(token), "--root", str(two.base / "nowhere")]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "hub_unreachable" in done.stderr
    assert not (two.base / "nowhere" / "demo").exists()
