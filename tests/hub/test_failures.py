"""What is left when something dies between the hub, the files and the position, or comes back older than it was."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from multi_agent_mcp.errors import HubReplaced, HubUnreachable
from multi_agent_mcp.services.tasks.creation import NewTask
from multi_agent_mcp.system.process import is_alive
from tests.hub.support import DESK, LAPTOP, SHED, Machine, Machines, eventually, machines
from tests.hub.test_machines import replica, send

LIVES = 24


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


def lived(machine: Machine, writes: int, what: str, how: str) -> bool:
    """Whether a process of this machine got through with so many writes."""
    call = [sys.executable, "-m", "tests.hub.dying", str(machine.root), str(writes), what, how]
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode == 0


def test_a_change_killed_before_any_write_is_whole_on_both_machines_or_not_at_all(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        for writes in range(LIVES):
            task_id = new_task(desk, "admin", f"task {writes}")
            eventually(lambda task_id=task_id: laptop.services.workspace.tasks.find(task_id))  # type: ignore[misc]
            is_through = lived(laptop, writes, task_id, "in_progress")
            laptop.services.operations.finish()
            eventually(lambda task_id=task_id: same(made, task_id))  # type: ignore[misc]
            task = desk.services.workspace.tasks.get(task_id)
            assert task.status == "in_progress" or not is_through
            if is_through:
                break
        assert 1 < writes < LIVES - 1


def test_a_task_made_by_a_killed_process_is_on_both_machines_or_on_none(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        for writes in range(LIVES):
            is_through = lived(made[DESK], writes, f"made {writes}", "create")
            made[DESK].services.operations.finish()
            titles = {task.title: task.id for task in made[DESK].services.workspace.tasks.all()}
            if f"made {writes}" in titles:
                eventually(lambda titles=titles, writes=writes: same(made, titles[f"made {writes}"]))  # type: ignore[misc]
            if is_through:
                break
        assert 0 < writes < LIVES - 1

        def everywhere() -> list[set[str]]:
            return [{task.id for task in made[name].services.workspace.tasks.all()} for name in (DESK, LAPTOP)]

        eventually(lambda: everywhere()[0] == everywhere()[1])


def test_without_its_relay_a_machine_queues_mail_and_says_why_it_changes_nothing(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        task_id = new_task(desk, "admin", "x")
        eventually(lambda: same(made, task_id))
        laptop.signal(signal.SIGKILL)
        assert send(laptop, "worker-a", "admin", "while it was dead") == ("queued", "hub_unreachable")
        services = laptop.services
        with pytest.raises(HubUnreachable) as refused:
            services.task_changes.set_status(services.agents.get("worker-a"), task_id, "in_progress")
        assert refused.value.key == "error.no_relay"
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


def test_a_hub_restored_from_an_old_copy_is_noticed_and_made_anew(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        early = new_task(desk, "admin", "early")
        eventually(lambda: same(made, early))
        data = desk.path / ".share" / "hub" / "data"
        desk.sharing.stop_relay()
        shutil.copytree(data, tmp_path / "copy")
        desk.start()
        late = new_task(desk, "admin", "late")
        eventually(lambda: same(made, late))
        desk.sharing.stop_relay()
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "copy", data)
        desk.sharing.start_relay()
        for machine in (desk, laptop):
            eventually(lambda machine=machine: machine.sharing.status().get("replaced"))  # type: ignore[misc]
            with pytest.raises(HubReplaced):
                machine.services.workspace.authority.require()
        assert send(laptop, "worker-a", "admin", "meanwhile")[0] == "queued"
        desk.sharing.reseed()
        desk.start()
        eventually(lambda: not laptop.sharing.status()["replaced"])
        eventually(lambda: desk.has("admin", "meanwhile"))
        services = laptop.services
        eventually(lambda: same(made, late))
        services.task_changes.set_status(services.agents.get("worker-a"), late, "in_progress")
        eventually(lambda: desk.services.workspace.tasks.get(late).status == "in_progress")
        eventually(lambda: same(made, late) and same(made, early))


def test_a_machine_that_lost_its_files_joins_again_and_has_what_the_hub_has(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as made:
        desk, laptop = made[DESK], made[LAPTOP]
        send(laptop, "worker-a", "admin", "before")
        send(desk, "admin", "worker-a", "to you")
        task_id = new_task(desk, "admin", "x")
        eventually(lambda: same(made, task_id) and desk.has("admin", "before") and laptop.has("worker-a", "to you"))
        laptop.sharing.stop_relay()
        shutil.rmtree(laptop.root)
        again = made.add(LAPTOP, replaces=LAPTOP)
        assert again.has("worker-a", "to you")
        eventually(lambda: same(made, task_id))
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


def test_of_many_processes_on_three_machines_one_wins_each_task(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP, SHED) as made:
        services = made[DESK].services
        made_tasks = services.task_creation.create(
            services.agents.get("admin"), [NewTask(title=f"task {number}") for number in range(30)]
        )
        ids = {task.id for task in made_tasks}
        for machine in made.members.values():
            eventually(lambda machine=machine: ids <= {task.id for task in machine.services.workspace.tasks.all()})  # type: ignore[misc]
        claimers = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.hub.claimer", str(machine.root), f"{machine.name}-{number}"],
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
            )
            for machine in made.members.values()
            for number in range(2)
        ]
        won = [line for claimer in claimers for line in claimer.communicate(timeout=60)[0].split()]
        assert sorted(won) == sorted(ids)
        for task_id in ids:
            eventually(lambda task_id=task_id: same(made, task_id))  # type: ignore[misc]
