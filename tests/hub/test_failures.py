"""The state after a failure between the hub, the files and the position, or after a restoration of an older state."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import HubReplaced, HubUnreachable
from multi_agent_mcp.hub import administration
from multi_agent_mcp.hub.noticing import GRACE_SECONDS
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.system.process import is_alive
from tests.hub.support import DESK, LAPTOP, SHED, Machine, Machines, eventually, machines
from tests.hub.test_machines import replica, send


def new_task(machine: Machine, actor: str, title: str) -> str:
    services = machine.services
    (task,) = services.task_creation.create(services.agents.get(actor), [NewTask(title=title, assignee_id="worker-a")])
    return task.id


def same(made: Machines, task_id: str) -> bool:
    """Whether both machines have the same file of a task."""
    found = [list(made[name].path.glob(f"tasks/*/{task_id}.md")) for name in (DESK, LAPTOP)]
    if not all(len(paths) == 1 for paths in found):
        return False
    return replica(made[DESK], task_id) == replica(made[LAPTOP], task_id)


FILE_BYTES = 1 << 17
"""A limit for the size of files that the hub's log stays below, but a letter of this size exceeds."""


def test_without_its_relay_a_machine_queues_mail_and_says_why_it_changes_nothing(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        task_id = new_task(desk, "admin", "x")
        eventually(lambda: same(made, task_id))
        laptop.signal(signal.SIGKILL)
        assert send(laptop, "worker-a", "admin", "while it was dead") == ("queued", "no_relay")
        services = laptop.services
        with pytest.raises(HubUnreachable) as refused:
            services.task_changes.set_status(services.agents.get("worker-a"), task_id, "in_progress")
        assert refused.value.key == "error.no_relay"
        with pytest.raises(HubUnreachable):
            services.agents.add(Agent(id="late", parent_id="admin"))
        assert [path for path in laptop.path.rglob("late*") if ".locks" not in path.parts] == []
        laptop.start()
        eventually(lambda: desk.has("admin", "while it was dead"))


def test_a_hub_that_is_killed_comes_back_and_has_lost_nothing(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        server = desk.sharing.server
        assert server is not None
        for number in range(3):
            pid = server.pid()
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            send(laptop, "worker-a", "admin", f"letter {number}")
            eventually(lambda pid=pid: server.pid() not in (None, pid) and not is_alive(pid, None))  # type: ignore[misc]
        for number in range(3):
            eventually(lambda number=number: desk.has("admin", f"letter {number}"))  # type: ignore[misc]
        contents = [item.content for item in desk.services.workspace.mailbox("admin").history()]
        assert sorted(contents) == [f"letter {number}" for number in range(3)]


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="prlimit(2) is Linux's")
def test_a_hub_whose_disk_refused_it_stores_again_when_it_takes_more(tmp_path: Path) -> None:
    """Here its files may not grow for a while. nats-server does not try again by itself."""
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        server = desk.sharing.server
        assert server is not None
        stuck = server.pid()
        assert stuck is not None
        resource.prlimit(stuck, resource.RLIMIT_FSIZE, (FILE_BYTES, resource.RLIM_INFINITY))
        send(laptop, "worker-a", "admin", letter := "x" * FILE_BYTES)
        eventually(lambda: server.pid() not in (stuck, None))
        eventually(lambda: desk.has("admin", letter))


def test_a_hub_restored_from_an_old_copy_is_noticed_and_made_again(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        early = new_task(desk, "admin", "early")
        send(laptop, "worker-a", "admin", "long ago")
        log = "executions/worker-a/logs/exec_0123456789ab.log"
        laptop.services.workspace.files.append(laptop.path / log, "early")
        eventually(lambda: same(made, early) and desk.has("admin", "long ago") and (desk.path / log).exists())
        data = desk.path / ".share" / "hub" / "data"
        desk.sharing.stop_relay()
        shutil.copytree(data, tmp_path / "copy")
        desk.start()
        late = new_task(desk, "admin", "late")
        laptop.services.workspace.files.append(laptop.path / log, "late")
        eventually(lambda: same(made, late))
        desk.sharing.stop_relay()
        assert send(laptop, "worker-a", "admin", "while it was off")[0] == "queued"
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "copy", data)
        desk.sharing.start_relay()
        for machine in (desk, laptop):
            eventually(lambda machine=machine: machine.sharing.status().get("replaced"))  # type: ignore[misc]
            with pytest.raises(HubReplaced):
                machine.services.workspace.authority.require()
        assert send(laptop, "worker-a", "admin", "meanwhile") == ("queued", "hub_replaced")
        time.sleep(GRACE_SECONDS + 0.5)  # nothing happens: it may not go to that hub, and be forgotten with it
        assert laptop.sharing.status()["queued"] == 2
        desk.sharing.reseed()
        desk.start()
        eventually(lambda: not laptop.sharing.status()["replaced"])
        eventually(lambda: desk.has("admin", "meanwhile") and desk.has("admin", "while it was off"))
        newcomer = made.add(SHED)  # the new hub has what the old one had, too
        assert newcomer.has("admin", "long ago")
        assert (newcomer.path / log).read_text() == "early\nlate\n"
        services = laptop.services
        eventually(lambda: same(made, late))
        services.task_changes.set_status(services.agents.get("worker-a"), late, "in_progress")
        eventually(lambda: desk.services.workspace.tasks.get(late).status == "in_progress")
        eventually(lambda: same(made, late) and same(made, early))


def test_a_hub_whose_data_is_lost_is_noticed_and_made_again(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        desk.sharing.stop_relay()
        shutil.rmtree(desk.path / ".share" / "hub" / "data")
        desk.sharing.start_relay()
        for machine in (desk, laptop):
            eventually(lambda machine=machine: machine.sharing.status().get("replaced"))  # type: ignore[misc]
        assert send(laptop, "worker-a", "admin", "meanwhile") == ("queued", "hub_replaced")
        desk.sharing.reseed()
        desk.start()
        eventually(lambda: desk.has("admin", "meanwhile"))


def test_a_machine_that_lost_its_files_joins_again_and_has_what_the_hub_has(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        send(laptop, "worker-a", "admin", "before")
        send(desk, "admin", "worker-a", "to you")
        task_id = new_task(desk, "admin", "x")
        log = "executions/worker-a/logs/exec_0123456789ab.log"
        laptop.services.workspace.files.append(laptop.path / log, "what was done")
        eventually(lambda: same(made, task_id) and desk.has("admin", "before") and laptop.has("worker-a", "to you"))
        eventually((desk.path / log).exists)
        services = desk.services
        admin = services.agents.get("admin")
        talk = services.conversations.begin(admin, services.agents.get("worker-a"), "which colour?")[0].id
        services.conversations.end(admin, talk)  # on the hub it is newer now than what was said in it
        eventually(lambda: laptop.services.conversations.get(talk).status == "ended")
        laptop.sharing.stop_relay()
        shutil.rmtree(laptop.root)
        again = made.add(LAPTOP, replaces=LAPTOP)
        assert again.has("worker-a", "to you")
        eventually(lambda: same(made, task_id))
        assert (again.path / log).read_text() == "what was done\n"
        assert [item.content for item in again.services.conversations.messages_of(talk)] == ["which colour?"]
        eventually(lambda: (again.path / "secrets" / "worker-a.key").exists())
        public = again.services.agents.get("worker-a").public_key
        eventually(lambda: public == desk.services.agents.get("worker-a").public_key != None)  # noqa: E711
        eventually(lambda: again.services.agents.get("worker-a").extra.get("former_public_keys"))
        send(again, "worker-a", "admin", "after")
        eventually(lambda: desk.has("admin", "after"))

        def verdicts() -> list[str]:
            services = desk.services
            return [services.signatures.verdict(item) for item in services.workspace.mailbox("admin").history()]

        eventually(lambda: verdicts() == ["signed", "signed"])


@pytest.mark.parametrize("stream", ["{stream}", "{stream}_own_{lane}"])
def test_a_hub_that_loses_a_stream_while_all_are_connected_is_noticed_and_named(tmp_path: Path, stream: str) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        names, server = laptop.sharing.membership.names, desk.sharing.server
        assert server is not None
        lost = stream.format(stream=names.stream, lane=names.lane)

        async def delete() -> None:
            client = await administration.connected_as_administrator(server)
            await administration.administer(client, f"$JS.API.STREAM.DELETE.{lost}", b"")
            await client.close()

        send(laptop, "worker-a", "admin", "before")
        eventually(lambda: desk.has("admin", "before"))
        asyncio.run(delete())
        send(laptop, "worker-a", "admin", "after")
        for machine in (laptop, desk):
            eventually(lambda machine=machine: machine.services.machines.look().exchange == "replaced")  # type: ignore[misc]
