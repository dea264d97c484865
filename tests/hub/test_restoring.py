"""The files of a joining machine are written by several processes, with the same result as by one."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from multi_agent_mcp.domain.entity import SessionName
from multi_agent_mcp.domain.history import KEPT, Change, History
from multi_agent_mcp.domain.message import Conversation, Message
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.hub.applying import Applying
from multi_agent_mcp.hub.restoring import PROCESSES, _Nothing, parted
from multi_agent_mcp.hub.stream import TIME, Stored
from multi_agent_mcp.hub.subjects import Names
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.store.codec import codec
from multi_agent_mcp.store.inbox import file_name
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.process import is_alive
from tests.hub.support import DESK, LAPTOP, SHED, Machine, Machines, eventually, machines
from tests.partition.verdict import differing, wait_until_settled
from tests.store.support import NOON, message

LETTERS, TASKS = 120, 96


@pytest.fixture(scope="module")
def desk_and_joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("restoring")) as made:
        services = made[DESK].services
        owner, admin = services.agents.owner(), services.agents.get("admin")
        for number in range(LETTERS):
            services.messages.send(owner, Draft(content=f"letter {number}", receiver_id="admin"))
        services.reading.read(admin, Query(limit=20, polling=False), None)
        news = [NewTask(title=f"Task {number}", assignee_id=("admin", None)[number % 2]) for number in range(TASKS)]
        made_tasks = services.task_creation.create(owner, news)
        for task in made_tasks[:2]:  # so often that the older lines of their history have a file of their own
            for number in range(2 * KEPT):
                services.workspace.tasks.update(task.id, partial(noted, by=f"hand-{number}"))
        for task in made_tasks[::4]:
            services.task_changes.set_status(admin, task.id, "in_progress")
            services.task_changes.set_status(admin, task.id, "done")
        wait_until_settled(made)
        made.joined(LAPTOP)
        made.joined(SHED)
        yield made


def noted(task: Task, *, by: str) -> Task:
    return replace(task, history=History([*task.history, Change(by=by, at=NOON).entry(edited=["title"])]))


def tasks_of(machine: Machine) -> dict[str, bytes]:
    """Returns the tasks' files, to the byte, the hub's mark included."""
    return {path.name: path.read_bytes() for path in (machine.path / "tasks").rglob("*.md")}


def eager(machine: Machine) -> subprocess.Popen[bytes]:
    where = ["--root", str(machine.root), "--session", machine.path.name]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.hub.eager_relay", "relay", *where], cwd=Path(__file__).parents[2]
    )


def helpers_of(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_joining_machine_gets_everything_from_several_processes_also_when_they_are_killed(
    desk_and_joined: Machines,
) -> None:
    made = desk_and_joined
    laptop = made[LAPTOP]
    relay = eager(laptop)
    eventually(lambda: len(helpers_of(relay.pid)) >= PROCESSES)
    helpers = helpers_of(relay.pid)
    relay.send_signal(signal.SIGKILL)
    relay.wait()
    eventually(lambda: not any(is_alive(pid, None) for pid in helpers), "they outlive their relay")
    again = eager(laptop)
    eventually(lambda: len(helpers_of(again.pid)) >= PROCESSES)
    os.kill(helpers_of(again.pid)[-1], signal.SIGKILL)  # the relay goes on without them
    shed = eager(made[SHED])
    wait_until_settled(made)
    assert differing(made) == []
    assert tasks_of(laptop) == tasks_of(made[DESK])
    assert {message.content for message in laptop.services.workspace.mailbox("admin").history()} == {
        f"letter {number}" for number in range(LETTERS)
    }
    eventually(lambda: not helpers_of(shed.pid), "they stay when there is nothing left to do")
    for process in (again, shed):
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_person_writes_while_a_machine_joins_travels_and_hides_no_message(desk_and_joined: Machines) -> None:
    desk, attic = desk_and_joined[DESK], desk_and_joined.joined("attic")
    made = Machines(desk_and_joined.base, desk_and_joined.port, members={DESK: desk, "attic": attic})
    *_, taken, copied, source = sorted(desk.path.glob("ipc/admin/*.md"), key=is_unread)
    with held_back(attic) as relay:
        inbox = attic.path / "ipc" / "admin"
        inbox.mkdir(parents=True, exist_ok=True)
        for name, content in (("note.md", "a note"), (taken.name, "under a name that is taken")):
            moved_in(inbox / name, f"---\nsender_id: owner\n---\n\n{content}")
        task = attic.path / "tasks" / "admin" / "tsk_aaaaaaaaaaaa.md"
        moved_in(task, "---\nid: tsk_aaaaaaaaaaaa\ntitle: By hand\nassignee_id: admin\ncreated_by: owner\n---\n")
        copy = source.read_text().replace("letter ", "a copy of letter ")
        # with its id it would count only from its sender's or receiver's home
        moved_in(inbox / copied.name, re.sub(r"^(id|signature): .*\n", "", copy, flags=re.MULTILINE))
    eventually(lambda: desk.has("admin", "a note"))
    eventually(lambda: desk.services.workspace.tasks.find("tsk_aaaaaaaaaaaa"))
    eventually(lambda: desk.has("admin", "under a name that is taken"))
    wait_until_settled(made)
    assert differing(made) == []
    letters = {f"letter {number}" for number in range(LETTERS)}
    for machine in (desk, attic):
        contents = [message.content for message in machine.services.workspace.mailbox("admin").history()]
        assert letters < set(contents)
        assert contents.count("under a name that is taken") == 1
    relay.terminate()
    assert relay.wait(60) == 0


@contextmanager
def held_back(machine: Machine) -> Iterator[subprocess.Popen[bytes]]:
    """Its relay restores; within, the processes that write for it are stopped."""
    relay = eager(machine)
    eventually(lambda: len(helpers_of(relay.pid)) >= PROCESSES)
    helpers = helpers_of(relay.pid)
    for pid in helpers:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield relay
    finally:
        for pid in helpers:
            os.kill(pid, signal.SIGCONT)


def is_unread(path: Path) -> bool:
    return b"\nread_at: null\n" in path.read_bytes()


def moved_in(path: Path, text: str) -> None:
    """Moves a file into place, as `mv` from another directory does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parents[2] / f".{path.name}.draft"
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def test_a_process_whose_relay_is_killed_ends_in_silence(desk_and_joined: Machines) -> None:
    desk = desk_and_joined[DESK]
    membership = desk.sharing.membership
    command = [sys.executable, "-m", "multi_agent_mcp.hub.restoring", str(desk.path), membership.uuid, DESK]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        process.stdout.close()
        process.stdin.write(pickle.dumps([]))
        process.stdin.flush()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""


def test_a_mark_that_came_before_its_message_is_set_when_another_process_has_written_that(
    tmp_path: Path,
) -> None:
    workspace, names = Workspace(tmp_path, SessionName("demo")), Names("0" * 32)
    workspace.make()
    workspace.registry.create()
    relay, process = (
        Applying(workspace=workspace, names=names, machine=DESK, consequences=_Nothing(), on_written=lambda *_: None)
        for _ in range(2)
    )
    inbox = workspace.mailbox("admin")
    first, second = (message(number, receiver_id="admin") for number in (1, 2))

    def stored(entity: Message, machine: str) -> Stored:
        data = inbox.hot.codec.encode(entity)
        return Stored(names.own(machine, "msg", "admin", file_name(entity)), 1, {TIME: str(time.time_ns())}, data)

    relay.early = {f"read/admin/{file_name(entity)}": format_time(NOON) for entity in (first, second)}
    process.apply([stored(first, LAPTOP), stored(second, LAPTOP)], restoring=True)
    relay.take_marks({}, [stored(first, LAPTOP)])
    relay.apply([stored(second, SHED)], restoring=True)  # after a hub was made again, several machines may have sent it
    assert {item.id: item.read_at for item in inbox.history()} == {first.id: NOON, second.id: NOON}
    assert not inbox.unread(fresh=True)
    assert not relay.early


def test_a_message_that_came_before_its_conversation_is_copied_when_that_comes(tmp_path: Path) -> None:
    workspace, names = Workspace(tmp_path, SessionName("demo")), Names("0" * 32)
    workspace.make()
    workspace.registry.create()
    talks = [
        Conversation(id=f"cnv_{number:012x}", initiator_id="worker-a", target_agent_id="admin") for number in range(3)
    ]
    said = [
        message(number, sender_id="worker-a", receiver_id="admin", message_type="conversation", metadata=about)
        for number, about in enumerate({"conversation_id": talk.id} for talk in talks)
    ]

    def applying(early: dict[str, str]) -> Applying:
        nothing = _Nothing()
        return Applying(
            workspace=workspace,
            names=names,
            machine=DESK,
            consequences=nothing,
            on_written=lambda *_: None,
            early=early,
        )

    def stored(subject: str, data: bytes) -> Stored:
        return Stored(subject, 1, {TIME: str(time.time_ns())}, data)

    mail = workspace.mailbox("admin").hot.codec
    messages = [stored(names.own(LAPTOP, "msg", "admin", file_name(one)), mail.encode(one)) for one in said]
    written = codec(Conversation).encode
    conversations = [stored(names.stored(names.shared(f"cnv.{one.id}"), LAPTOP), written(one)) for one in talks]

    def copied() -> list[str]:
        return [each.content for talk in talks for _, each in workspace.conversation_messages(talk.id).each()]

    first = applying({})
    strange = message(9, receiver_id="admin", message_type="conversation", metadata={"conversation_id": "../cnv_1"})
    name = names.own(LAPTOP, "msg", "admin", file_name(strange))
    first.apply([*messages, stored(name, mail.encode(strange))], restoring=False)
    assert len(first.early) == len(messages)  # nothing waits for what can be no conversation
    first.apply(conversations[:1], restoring=False)
    assert copied() == [said[0].content]
    next_relay = applying(first.early)  # what waits is kept beside the place in the stream
    next_relay.apply(messages, restoring=False)  # the first one was killed before it had noted the place
    next_relay.apply(conversations[1:2], restoring=False)
    process = applying({})
    process.apply(messages[2:], restoring=True)
    process.apply(conversations[2:], restoring=True)
    next_relay.take_marks(process.early, [])
    assert copied() == [one.content for one in said]
    assert not next_relay.early


def test_what_belongs_together_is_written_by_one_process() -> None:
    names = Names("0" * 32)

    def stored(kind: str, name: str) -> Stored:
        return Stored(names.own(DESK, kind, "admin", name), 1, {}, b"")

    values = [stored(kind, f"{number}.md") for number in range(40) for kind in ("msg", "read")]
    late = [stored("read", f"old{number}.md") for number in range(40)]
    parts = parted([*values, *late], names, 2)
    assert all(parts)
    for part in parts:
        found = [value.subject.rpartition(".")[2] for value in part if "old" not in value.subject]
        assert len(found) == 2 * len(set(found))
    assert sorted(sum("old" in value.subject for value in part) for part in parts) == [0, len(late)]
