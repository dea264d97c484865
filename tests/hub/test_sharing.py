"""Machines that come with files, go, are shut out, and bring back what the hub has lost."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from nats.aio.client import Client

from multi_agent_mcp.cli.main import app
from multi_agent_mcp.domain.agent import Agent, report_recipient
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.errors import AlreadyExists, HubUnreachable, InvalidArguments, Refusal
from multi_agent_mcp.hub import administration
from multi_agent_mcp.hub.administration import connected_as_administrator, connected_once, shares_of
from multi_agent_mcp.hub.admission import Token, ask_to_join, keep_room
from multi_agent_mcp.hub.server import HubServer, new_seed, public_of
from multi_agent_mcp.hub.share_directory import Share
from multi_agent_mcp.hub.sharing import Sharing, join
from multi_agent_mcp.services.doctor.doctor import _filled
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.team.setup import TeamFile, add_missing, create_session
from tests.hub.support import (
    DESK,
    LAPTOP,
    LOFT,
    SESSION,
    SHED,
    Machine,
    Machines,
    Wire,
    eventually,
    free_port,
    machines,
)
from tests.hub.test_failures import new_task, same
from tests.hub.test_looking import command, command_at, row, seen, states, waiting
from tests.hub.test_machines import send
from tests.hub.test_security import STAMP, as_machine
from tests.partition.disturbances import hub_pid

CONNECTED_AGAIN_SECONDS = 1.0
ALONE = (Agent(id="boss", role="owner", type="human"), Agent(id="worker-a", parent_id="admin"))


def test_a_session_that_was_alone_brings_its_files(tmp_path: Path) -> None:
    """With --adopt its files are shared with everybody; where both have a file, that of the team is kept."""
    with machines(tmp_path) as made:
        laptop = Machine(LAPTOP, tmp_path / LAPTOP)
        create_session(laptop.root, SESSION, TeamFile(ALONE), "en")
        services = laptop.services
        add_missing(services.agents, TeamFile(ALONE))
        (task,) = services.task_creation.create(
            services.agents.get("boss"), [NewTask(title="old", assignee_id="worker-a")]
        )
        for number in range(40):
            services.task_changes.edit(task.id, {"title": f"old {number}"}, Change(by="boss", at=services.clock()))
        send(laptop, "boss", "worker-a", "from before")
        with pytest.raises(AlreadyExists) as refused:
            join(made.token(), laptop.root, LAPTOP, adopt=False)
        assert refused.value.key == "error.directory_not_empty"
        join(made.token(), laptop.root, LAPTOP, adopt=True)
        made.members[LAPTOP] = laptop
        laptop.start()
        desk = made[DESK]
        eventually(lambda: desk.has("worker-a", "from before"))
        eventually(lambda: desk.services.workspace.tasks.find(task.id))
        eventually(lambda: len(list(desk.services.workspace.tasks.get(task.id).history)) == 41)
        eventually(lambda: {"boss", "worker-a"} <= set(desk.services.agents.all()))
        send(desk, "admin", "worker-a", "welcome")
        eventually(lambda: laptop.has("worker-a", "welcome"))
        laptop.services.task_changes.set_status(laptop.services.agents.get("worker-a"), task.id, "in_progress")
        eventually(lambda: desk.services.workspace.tasks.get(task.id).status == "in_progress")
        assert {agent.id: agent.machine for agent in desk.services.agents.all().values()} == {
            **dict.fromkeys(("owner", "admin"), DESK),
            **dict.fromkeys(("boss", "worker-a"), LAPTOP),
        }
        assert desk.recorder.rings == []


def test_two_owners_that_have_become_one_team_keep_their_own_agents(tmp_path: Path) -> None:
    """An agent reports to the same Owner on either machine, and each machine's own Owner is its default."""
    own = (*ALONE[:1], Agent(id="lead", role="admin", parent_id="boss"), Agent(id="worker-a", parent_id="lead"))
    with machines(tmp_path) as made:
        desk, laptop = made[DESK], Machine(LAPTOP, tmp_path / LAPTOP)
        create_session(laptop.root, SESSION, TeamFile(own), "en")
        add_missing(laptop.services.agents, TeamFile(own))
        join(made.token(), laptop.root, LAPTOP, adopt=True)
        made.members[LAPTOP] = laptop
        laptop.start()
        eventually(lambda: {"boss", "lead", "worker-a"} <= set(desk.services.agents.all()))
        assert (desk.services.agents.owner().id, laptop.services.agents.owner().id) == ("owner", "boss")
        for machine in (desk, laptop):
            agents = machine.services.agents.all()
            told = {name: report_recipient(name, agents).id for name in ("lead", "admin", "boss", "owner")}
            assert told == {"lead": "boss", "admin": "owner", "boss": "owner", "owner": "boss"}
        (task,) = desk.services.task_creation.create(
            desk.services.agents.owner(), [NewTask(title="x", assignee_id="lead")]
        )
        eventually(lambda: laptop.services.workspace.tasks.find(task.id))
        services = laptop.services
        services.task_changes.set_status(services.agents.get("lead"), task.id, "in_progress")
        services.task_changes.set_status(services.agents.get("lead"), task.id, "blocked", "why")

        def told_of_it(machine: Machine) -> set[str]:
            notices = machine.services.workspace.notices
            return {
                name for name in ("boss", "owner") if any(item.task_id == task.id for item in notices(name).history())
            }

        for machine in (desk, laptop):  # its own Owner, and who made the task
            eventually(lambda machine=machine: told_of_it(machine) == {"boss", "owner"})  # type: ignore[misc]
        record = laptop.path / "agents.json"
        record.write_text(record.read_text().replace('"parent_id": "boss"', '"parent_id": "owner"'))
        eventually(lambda: desk.services.agents.get("lead").parent_id == "owner")
        desk.services.agents.remove("boss")
        eventually(lambda: laptop.services.agents.owner().id == "owner")


def test_a_machine_leaves_works_alone_and_brings_it_when_it_comes_back(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        task_id = new_task(desk, "admin", "x")
        eventually(lambda: same(made, task_id))
        laptop.sharing.leave()
        assert not laptop.sharing.share.relay_runs
        services = laptop.services
        assert services.workspace.authority.here is None
        services.task_changes.set_status(services.agents.get("worker-a"), task_id, "in_progress")
        send(laptop, "worker-a", "admin", "from alone")
        join(made.token(replaces=LAPTOP), laptop.root, LAPTOP, adopt=True)
        laptop.start()
        eventually(lambda: desk.has("admin", "from alone"))
        eventually(lambda: desk.services.workspace.tasks.get(task_id).status == "in_progress")
        eventually(lambda: same(made, task_id))


def test_a_session_that_is_shared_no_more_can_be_shared_again(tmp_path: Path) -> None:
    with machines(tmp_path) as made:
        desk = made[DESK]
        services = desk.services
        (task,) = services.task_creation.create(services.agents.owner(), [NewTask(title="x", assignee_id="admin")])
        desk.sharing.leave()
        services = desk.services
        services.task_changes.set_status(services.agents.get("admin"), task.id, "in_progress")
        send(desk, "owner", "admin", "from alone")
        desk.sharing.begin(DESK, f"127.0.0.1:{made.port}")
        desk.start()
        laptop = made.add(LAPTOP)
        eventually(lambda: laptop.has("admin", "from alone") and same(made, task.id))
        assert laptop.services.workspace.tasks.get(task.id).status == "in_progress"


def test_a_backup_without_what_belongs_to_the_hub_can_be_shared(tmp_path: Path) -> None:
    with machines(tmp_path) as made:
        desk = made[DESK]
        services = desk.services
        (task,) = services.task_creation.create(services.agents.owner(), [NewTask(title="x", assignee_id="admin")])
        for number in range(40):
            services.task_changes.edit(task.id, {"title": f"x {number}"}, Change(by="owner", at=services.clock()))
        desk.sharing.leave()
        shutil.rmtree(desk.path / ".share")
        desk.sharing.begin(DESK, f"127.0.0.1:{made.port}")
        desk.start()
        laptop = made.add(LAPTOP)
        eventually(lambda: laptop.services.workspace.tasks.find(task.id) and same(made, task.id))
        services.task_changes.set_status(services.agents.get("admin"), task.id, "in_progress")
        eventually(lambda: laptop.services.workspace.tasks.get(task.id).status == "in_progress")
        assert len(list(laptop.services.workspace.tasks.get(task.id).history)) == 42


def test_a_machine_that_shares_again_is_who_it_was(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        laptop.sharing.leave()
        desk.sharing.leave()
        shared = json.loads(command(desk, "share", "--listen", f"127.0.0.1:{made.port}", "--json").stdout)
        assert shared["machine"] == DESK
        joined = command_at(laptop.root, "join", "--adopt", "--json", shared["token"])
        assert joined.returncode == 0, joined.stdout
        assert laptop.sharing.membership.machine == LAPTOP
        send(laptop, "worker-a", "owner", "here again")
        eventually(lambda: desk.has("owner", "here again"))


def test_a_machine_that_shares_again_by_another_name_takes_its_agents_along(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk = made[DESK]
        desk.sharing.leave()
        desk.sharing.begin("tower", f"127.0.0.1:{made.port}")
        desk.start()
        homes = {agent.id: agent.machine for agent in desk.services.agents.all().values()}
        assert homes == {"owner": "tower", "admin": "tower", "worker-a": LAPTOP}
        desk.services.agents.require_here(desk.services.agents.owner())


def test_where_the_hub_is_not_nobody_is_let_in_however_long_it_is_away(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        laptop = made[LAPTOP]
        assert laptop.wire is not None
        laptop.wire.cut()
        eventually(lambda: not laptop.sharing.status()["connected"])
        refused = json.loads(command(laptop, "share", "--json").stdout)
        assert refused["error"] == "invalid_arguments"


def test_the_hubs_machine_does_not_end_the_team_unasked(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        refused = command(desk, "leave")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "laptop" in refused.stderr
        refused_to_programs = command(desk, "leave", DESK, "--json")
        assert json.loads(refused_to_programs.stdout)["error"] == "invalid_arguments"
        assert "laptop" in at_terminal(desk, b"n\n", "leave")
        assert desk.sharing.status()["connected"]
        assert json.loads(command(laptop, "leave", "--json").stdout) == {
            "machine": LAPTOP,
            "cut_off": [],
            "success": True,
        }
        assert "laptop" in at_terminal(desk, b"y\n", "leave")
        assert desk.sharing.share.membership() is None


def test_a_hub_that_nobody_else_uses_ends_without_a_question(tmp_path: Path) -> None:
    with machines(tmp_path) as made:
        assert command(made[DESK], "leave").returncode == 0
        assert made[DESK].sharing.share.membership() is None


def at_terminal(machine: Machine, typed: bytes, *words: str) -> str:
    """Runs a command on a terminal with this input; returns its output when it has ended."""
    where = ["--root", str(machine.root), "--session", SESSION]
    near, far = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "multi_agent_mcp", *words, *where], stdin=far, stdout=subprocess.PIPE, text=True
    )
    os.write(near, typed)
    shown, _ = process.communicate(timeout=60)
    os.close(near)
    os.close(far)
    return shown


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    create_session(tmp_path, SESSION, TeamFile(ALONE), "en")
    sharing = Sharing(tmp_path / SESSION)
    with socket.create_server(("127.0.0.1", 0)) as stranger, pytest.raises(InvalidArguments, match="listen_taken"):
        sharing.begin(DESK, f"127.0.0.1:{stranger.getsockname()[1]}")
    assert sharing.share.membership() is None


def test_a_machine_that_was_shut_out_is_refused_by_the_hub_until_it_is_let_in_again(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        server = desk.sharing.server
        assert server is not None
        task_id = new_task(desk, "admin", "x")
        eventually(lambda: same(made, task_id))
        users = server.users()
        with pytest.raises(InvalidArguments):
            desk.sharing.leave("nobody")
        with pytest.raises(InvalidArguments):
            laptop.sharing.leave(DESK)
        desk.sharing.leave(LAPTOP)
        eventually(lambda: not laptop.sharing.status()["connected"])
        membership, share = laptop.sharing.membership, laptop.sharing.share
        with pytest.raises(HubUnreachable):
            asyncio.run(connected_once(membership.urls, share.seed(), None, LAPTOP))
        eventually(lambda: seen(laptop).exchange == "shut_out")
        said = command(laptop, "machines").stdout
        assert "does not know this machine" in said
        assert "--name laptop --adopt" in said
        assert [item.text.partition(":")[0] for item in waiting(laptop)] == [
            "the hub does not know this machine any more"
        ]
        assert states(laptop)[DESK] == "unknown"
        assert send(laptop, "worker-a", "admin", "after") == ("queued", "shut_out")
        with pytest.raises(HubUnreachable, match="shut_out"):
            laptop.services.task_changes.set_status(laptop.services.agents.get("worker-a"), task_id, "in_progress")
        new_task(desk, "admin", "goes on")
        eventually(lambda: not desk.sharing.status()["machines"][LAPTOP]["up"])
        eventually(lambda: away(desk) == {"worker-a"})
        server.let(users)
        eventually(lambda: desk.has("admin", "after"))
        eventually(lambda: seen(laptop).exchange == "connected")


def test_a_machine_that_was_shut_out_comes_back_as_it_is_told(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        desk.sharing.leave(LAPTOP)
        eventually(lambda: seen(laptop).exchange == "shut_out")
        send(laptop, "worker-a", "admin", "after")
        assert command(laptop, "leave").returncode == 0
        join(made.token(wire=laptop.wire), laptop.root, LAPTOP, adopt=True)
        laptop.start()
        eventually(lambda: desk.has("admin", "after"))
        assert laptop.services.agents.get("worker-a").machine == LAPTOP


def away(machine: Machine) -> set[str]:
    """The agents whose machine is away, as this one's processes see it."""
    rows = [row.as_answer() for row in machine.services.snapshots.agents()]
    return {row["id"] for row in rows if row["away"]}


def test_a_machine_takes_the_hubs_new_address_from_a_new_token(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        assert laptop.wire is not None
        laptop.wire.close()
        eventually(lambda: seen(laptop).exchange == "cut_off" and seen(laptop).tried_at is not None)
        send(laptop, "worker-a", "admin", "while it looks for the hub")
        for words in ("machines", "doctor"):
            said = command(laptop, words).stdout
            assert f"nats://127.0.0.1:{laptop.wire.port}" in said
            assert "multi-agent-mcp join TOKEN" in said
        nowhere = replace(made.token(), urls=("nats://127.0.0.1:1",))
        refused = command_at(laptop.root, "join", str(nowhere))
        assert (refused.returncode, "No hub answers" in refused.stderr) == (1, True)
        laptop.wire = Wire(made.port)
        token = made.token(wire=laptop.wire)
        done = json.loads(command_at(laptop.root, "join", str(token), "--json").stdout)
        assert done["urls"] == [f"nats://127.0.0.1:{laptop.wire.port}"]
        eventually(lambda: desk.has("admin", "while it looks for the hub"))
        assert desk.sharing.server is not None
        assert not desk.sharing.server.users()["tokens"][token.id]["used"]


def anywhere(made: Machines, token: Token) -> Token:
    """The token with this machine's own address alone: the others may be of an interface without a way back."""
    return replace(token, urls=(f"tls://127.0.0.1:{made.port}",))


def over_tls(tmp_path: Path) -> Machines:
    """Desk and laptop, with the hub on all addresses."""
    made = Machines(tmp_path, free_port(), host="0.0.0.0")  # noqa: S104 - what it is about
    made.begin()
    laptop = made.members[LAPTOP] = Machine(LAPTOP, tmp_path / LAPTOP)
    join(anywhere(made, made.token()), laptop.root, LAPTOP, adopt=False)
    laptop.start()
    laptop.services.agents.add(Agent(id="worker-a", parent_id="admin"))
    made.complete()
    return made


def trusted_by(machine: Machine) -> str | None:
    return machine.sharing.share.certificate()


def test_a_hub_has_new_keys_and_a_new_certificate_and_all_machines_go_on(tmp_path: Path) -> None:
    """One that was away during two renewals takes the newest certificate when it is back, and trusts no former one."""
    made = over_tls(tmp_path)
    try:
        desk, laptop = made[DESK], made[LAPTOP]
        server, first, token = desk.sharing.server, trusted_by(desk), made.token()
        assert server is not None
        keys = [server.admin_seed, server.reception_seed, desk.sharing.share.seed()]
        assert command(laptop, "share", "--renew").returncode == 1
        done = command(desk, "share", "--renew")
        assert "new certificate" in done.stdout, done.stderr
        second = server.certificate
        assert first != second == server.certificate
        eventually(lambda: trusted_by(desk) == trusted_by(laptop) == (second or "").strip())
        send(desk, "admin", "worker-a", "after it")
        eventually(lambda: laptop.has("worker-a", "after it"))
        for key in keys:
            with pytest.raises(HubUnreachable):
                asyncio.run(connected_once([server.local_url], key, second, DESK))
        laptop.sharing.stop_relay()
        for _ in range(2):
            desk.sharing.renew()
        send(desk, "admin", "worker-a", "while it was away")
        laptop.start()
        eventually(lambda: laptop.has("worker-a", "while it was away"))
        eventually(lambda: trusted_by(laptop) == (server.certificate or "").strip())
        shed = made.members[SHED] = Machine(SHED, tmp_path / SHED)
        join(anywhere(made, token), shed.root, SHED, adopt=False)  # with a token from before, and the first certificate
        shed.start()
        eventually(lambda: trusted_by(shed) == trusted_by(laptop))
    finally:
        made.close()


def test_a_renewal_that_was_killed_half_way_leaves_a_hub_that_works(tmp_path: Path) -> None:
    """The key of the hub's machine is in place, and the hub was not told."""
    with machines(tmp_path, LAPTOP) as made:
        desk = made[DESK]
        desk.sharing.stop_relay()
        desk.sharing.share.join(desk.sharing.membership, new_seed(), None)
        desk.start()
        send(desk, "admin", "worker-a", "still here")
        eventually(lambda: made[LAPTOP].has("worker-a", "still here"))


def test_a_machine_has_a_new_key_and_the_old_one_is_refused(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        old, identity = laptop.sharing.share.seed(), laptop.sharing.membership
        refused = command_at(laptop.root, "join", str(made.token(wire=laptop.wire)), "--renew")
        assert "share --again laptop" in refused.stderr  # a token for any machine is not one for this machine
        assert laptop.sharing.share.seed() == old
        assert "share --renew" in command_at(desk.root, "join", str(made.token()), "--renew").stderr
        send(laptop, "worker-a", "admin", "before")
        token = str(made.token(replaces=LAPTOP, wire=laptop.wire))
        done = command_at(laptop.root, "join", token, "--renew")
        assert "has a new key" in done.stdout, done.stderr
        assert laptop.sharing.share.seed() != old
        assert laptop.sharing.membership == identity
        send(laptop, "worker-a", "admin", "after")
        eventually(lambda: desk.has("admin", "before") and desk.has("admin", "after"))
        with pytest.raises(HubUnreachable):
            asyncio.run(connected_once(identity.urls, old, None, LAPTOP))
        assert command_at(laptop.root, "join", token, "--renew").returncode == 1  # it was used


def test_a_machine_that_was_killed_while_it_renewed_its_key_goes_on_with_the_same_token(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        laptop = made[LAPTOP]
        token = made.token(replaces=LAPTOP, wire=laptop.wire)
        seed = new_seed()
        (laptop.sharing.share.path / "renewed.nk").write_text(seed)
        asyncio.run(ask_to_join(token, LAPTOP, public_of(seed)))
        eventually(lambda: made[DESK].sharing.server.users()["tokens"][token.id]["used"])  # type: ignore[union-attr]
        laptop.sharing.renew_key(token)
        assert laptop.sharing.share.seed() == seed
        send(laptop, "worker-a", "admin", "again")
        eventually(lambda: made[DESK].has("admin", "again"))


def test_a_reseed_takes_what_a_machine_has_that_is_further_on(tmp_path: Path) -> None:
    """The hub's machine was restored with its hub: another one has seen what is lost here."""
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        early = new_task(desk, "admin", "early")
        eventually(lambda: same(made, early))
        desk.sharing.stop_relay()
        shutil.copytree(desk.path, tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock"))
        desk.start()
        late = new_task(desk, "admin", "late")
        send(desk, "admin", "worker-a", "late mail")
        services = desk.services
        services.task_changes.set_status(services.agents.get("admin"), early, "blocked", "why")
        eventually(lambda: same(made, early) and same(made, late) and laptop.has("worker-a", "late mail"))
        desk.sharing.stop_relay()
        shutil.rmtree(desk.path)
        shutil.copytree(tmp_path / "copy", desk.path)
        desk.sharing.start_relay()
        eventually(lambda: laptop.sharing.status().get("replaced"))
        eventually(lambda: row(desk, LAPTOP).troubles == ("older",))
        assert not desk.sharing.status()["replaced"]  # from here it is the hub that it was
        assert "multi-agent-mcp share --reseed" in command(desk, "doctor").stdout
        desk.sharing.reseed()
        desk.start()
        eventually(lambda: not laptop.sharing.status()["replaced"] and row(desk, LAPTOP).troubles == ())
        eventually(lambda: desk.services.workspace.tasks.get(early).status == "blocked")
        eventually(lambda: desk.services.workspace.tasks.find(late))
        eventually(lambda: desk.has("worker-a", "late mail"))
        eventually(lambda: same(made, late) and same(made, early))


def test_a_reseed_leaves_out_what_one_machine_has_written_on_all_machines(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP, SHED, delay=None) as made:
        desk, laptop, shed = made[DESK], made[LAPTOP], made[SHED]
        names, server = laptop.sharing.membership.names, desk.sharing.server
        assert server is not None
        task_id, other = new_task(desk, "admin", "ours"), new_task(shed, "worker-b", "shed's")
        eventually(lambda: same(made, task_id) and same(made, other))
        genuine = desk.services.workspace.tasks.get(task_id)
        (path,) = desk.path.glob(f"tasks/*/{task_id}.md")
        data = b"".join(line for line in path.read_bytes().splitlines(True) if not line.startswith(b"hub: "))
        junk = [f"tsk_{number:012x}" for number in range(3)]

        async def publish(client: Client) -> None:
            values = [(task_id, data.replace(b"title: ours", b"title: theirs")), *((each, data) for each in junk)]
            for name, value in values:
                answer = await client.request(names.shared(f"tsk.{name}"), value, 5, headers=STAMP)
                assert b'"seq"' in answer.data

        as_machine(laptop, publish)
        for machine in (desk, shed):
            eventually(lambda machine=machine: machine.services.workspace.tasks.find(junk[-1]))  # type: ignore[misc]
        by = asyncio.run(shares_of(server))
        assert max(by, key=by.__getitem__) == LAPTOP
        assert by[LAPTOP] > 4 * len(data)
        assert command(desk, "leave", LAPTOP).returncode == 0
        done = json.loads(command(desk, "share", "--reseed", "--without", LAPTOP, "--json").stdout)
        assert done["left_out"] == 4
        for machine in (desk, shed):
            tasks = machine.services.workspace.tasks
            eventually(lambda tasks=tasks: not any(map(tasks.find, junk)))  # type: ignore[misc]
            eventually(lambda tasks=tasks: tasks.get(task_id).title == genuine.title)  # type: ignore[misc]
            assert tasks.get(other).title == "shed's"
        assert len(list(desk.path.glob("tasks/**/quarantine/tsk_*.md"))) == 4
        services = shed.services
        services.task_changes.edit(other, {"title": "changed"}, Change(by="worker-b", at=services.clock()))
        eventually(lambda: desk.services.workspace.tasks.get(other).title == "changed")


def test_a_reseed_for_which_the_hub_has_no_room_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machines(tmp_path) as made:
        desk = made[DESK]
        services = desk.services
        (task,) = services.task_creation.create(services.agents.owner(), [NewTask(title="x", assignee_id="admin")])
        eventually(lambda: desk.sharing.share.record("position").read()["identity"])
        identity = desk.sharing.share.record("position").read()["identity"]
        monkeypatch.setattr(administration, "VALUE_BYTES", 1000)
        with pytest.raises(HubUnreachable, match="hub_no_room"):
            desk.sharing.reseed()
        eventually(lambda: desk.sharing.status()["connected"] and desk.sharing.status()["synchronised"])
        assert desk.sharing.share.record("position").read()["identity"] == identity
        services.task_changes.set_status(services.agents.get("admin"), task.id, "in_progress")


def test_a_machine_that_has_filled_its_part_of_what_all_share_stops_only_itself(tmp_path: Path) -> None:
    """Until the hub is made again; nobody is disconnected by that."""
    with machines(tmp_path, LAPTOP, SHED, delay=None) as made:
        desk, laptop, shed = made[DESK], made[LAPTOP], made[SHED]
        server = desk.sharing.server
        assert server is not None
        theirs, pid = new_task(laptop, "worker-a", "laptop's"), server.pid()
        part = asyncio.run(shares_of(server))[LAPTOP] - 1
        asyncio.run(keep_room(server, DESK, part))
        assert asyncio.run(keep_room(server, DESK, 1 << 40))[LAPTOP] > part  # it stays as it is
        assert ([*server.users()["full"]], server.pid()) == ([LAPTOP], pid)

        def is_refused() -> bool:
            try:
                new_task(laptop, "worker-a", "one more")
            except HubUnreachable as refusal:
                return "hub_part_full" in str(refusal)
            return False

        eventually(is_refused)
        send(laptop, "worker-a", "worker-b", "mail goes on")
        eventually(lambda: shed.has("worker-b", "mail goes on"))
        eventually(lambda: same(made, new_task(shed, "worker-b", "shed's")))
        assert asyncio.run(limit_of_what_all_share(server)) == administration.VALUE_BYTES + part + 1
        eventually(lambda: desk.sharing.status()["filled"])
        assert desk.sharing.status()["filled"]["full"] == [LAPTOP]
        assert f"multi-agent-mcp share --reseed --without {LAPTOP}" in command(desk, "doctor").stdout
        assert command(desk, "share", "--reseed").returncode == 0
        eventually(lambda: laptop.sharing.status()["synchronised"] and not is_refused())
        assert laptop.services.workspace.tasks.get(theirs).title == "laptop's"


async def limit_of_what_all_share(server: HubServer) -> int:
    client = await connected_as_administrator(server)
    answer = await client.request(f"$JS.API.STREAM.INFO.{server.names.stream}", b"", 10)
    await client.close()
    return int(json.loads(answer.data)["config"]["max_bytes"])


def test_who_has_filled_what_all_share_is_named_where_the_hub_is() -> None:
    def found(*facts: object, **values: object) -> tuple[object, ...]:
        return (*facts, values)

    named: Any
    elsewhere: Any
    (named,) = _filled({"percent": 95, "by": {DESK: 1, LAPTOP: 3}}, found, SHED)  # type: ignore[arg-type]
    assert named == ("problem", LAPTOP, "hub_filled_by", {"machine": LAPTOP, "share": 75, "percent": 95})
    (elsewhere,) = _filled({"percent": 60, "by": {}}, found, SHED)  # type: ignore[arg-type]
    assert elsewhere == ("note", SHED, "hub_filled", {"percent": 60})


def test_what_all_share_is_changed_while_machines_join(tmp_path: Path) -> None:
    """The hub starts again for each of them: a change waits for it."""
    with machines(tmp_path, LAPTOP) as made, ThreadPoolExecutor(1) as pool:
        services = made[LAPTOP].services
        creator, hubs = services.agents.get("worker-a"), {hub_pid(made)}

        def joins() -> None:
            for name in (SHED, LOFT):
                made.joined(name)
                eventually(lambda: hub_pid(made) not in {None, *hubs})
                hubs.add(hub_pid(made))

        joining, before = pool.submit(joins), time.monotonic()
        while not joining.done() or time.monotonic() - before < CONNECTED_AGAIN_SECONDS:
            services.task_creation.create(creator, [NewTask(title="meanwhile")])
            before = before if joining.done() else time.monotonic()
        joining.result()
        assert len(hubs) == 3


def test_of_two_machines_with_one_token_one_gets_in(tmp_path: Path) -> None:
    with machines(tmp_path) as made:
        token = made.token()

        def attempt(name: str) -> str:
            try:
                join(token, tmp_path / name, name, adopt=False)
            except Refusal as refusal:
                return refusal.code
            return "in"

        with ThreadPoolExecutor(4) as pool:
            said = list(pool.map(attempt, ["one", "two", "three", "four"]))
        assert said.count("in") == 1
        server = made[DESK].sharing.server
        assert server is not None
        assert len(server.users()["machines"]) == 2


@pytest.mark.parametrize(
    ("owner", "step", "said"),
    [
        (Share, "join", "relay --start"),
        (Sharing, "start_relay", "in the background"),
        (Sharing, "wait_until_complete", "in the background"),
    ],
)
def test_join_that_is_interrupted_says_that_the_machine_has_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, said: str
) -> None:
    """Ctrl-C comes right after the step."""
    with machines(tmp_path) as made:
        laptop = made.members[LAPTOP] = Machine(LAPTOP, tmp_path / LAPTOP)
        taken = getattr(owner, step)

        def interrupted(*arguments: object) -> None:
            taken(*arguments)
            raise KeyboardInterrupt

        arguments = ["join", str(made.token()), "--name", LAPTOP, "--root", str(laptop.root)]
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, interrupted)
            done = CliRunner().invoke(app, arguments, env={"LC_ALL": "C"})
        assert (done.exit_code, f"{LAPTOP} has joined" in done.stderr, said in done.stderr) == (1, True, True)
        if said == "relay --start":
            assert command(laptop, *said.split()).returncode == 0
            eventually(lambda: seen(laptop).exchange == "connected")


def test_who_takes_part_already_is_told_what_to_run(tmp_path: Path) -> None:
    with machines(tmp_path) as made:
        desk, token = made[DESK], str(made.token())
        for refused in (command(desk, "share", "--name", "tower"), command_at(desk.root, "join", token)):
            assert "already_exists" in refused.stderr
            assert all(f"multi-agent-mcp {next_step}" in refused.stderr for next_step in ("machines", "relay", "share"))
        again = command(desk, "share", "--name", DESK, "--listen", f"127.0.0.1:{made.port}")
        assert (again.returncode, "multi-agent-mcp join mam1." in again.stdout) == (0, True)


def test_a_name_of_a_machine_that_has_left_can_be_had_again(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        made[LAPTOP].sharing.leave()
        refused = command_at(tmp_path / "new", "join", str(made.token()), "--name", LAPTOP)
        assert f"if it has left or lost its files, run multi-agent-mcp share --again {LAPTOP}" in refused.stderr
