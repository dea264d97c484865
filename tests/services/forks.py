"""Jobs that the tests of the services run in separate processes: `python -m tests.services.forks JOB ARGUMENT…`.

This process has one thread, so it may fork: a child per step to be killed, or sixteen that compete.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.errors import InvalidStatusTransition, Refusal
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.team.setup import add_missing, create_session
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.wiring import Services
from tests.team import TEAM

STEPS_MAX = 40


class DyingFiles(Files):
    """The disk of a process that is killed just before one of its writes."""

    def __init__(self, base: Path, writes: int) -> None:
        super().__init__(base)
        self.left = writes

    def create(self, path: Path | str, data: bytes, **how: Any) -> None:
        self._step()
        super().create(path, data, **how)

    def replace(self, path: Path, data: bytes, **how: Any) -> None:
        self._step()
        super().replace(path, data, **how)

    def relocate(self, moves: list[tuple[Path, Path]]) -> list[Path]:
        self._step()
        return super().relocate(moves)

    def move(self, source: Path, target: Path, *, sync: bool = True) -> None:
        self._step()
        super().move(source, target, sync=sync)

    def _step(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


def context(root: Path) -> Services:
    return open_session(root, "demo", notifier=Recorder())


def made(root: Path) -> Services:
    create_session(root, "demo", TEAM, "en")
    services = context(root)
    add_missing(services.agents, TEAM)
    return services


def dying(base: str, prepare: Callable[[Services], str], act: Callable[[Services, str], None]) -> None:
    """For every write of `act` a fresh session in `{base}/{number}` in which a process was killed before that write;
    prints, for each, what `prepare` returned. Ends with the first `act` that came through."""
    for writes in range(STEPS_MAX):
        root = Path(base) / str(writes)
        told = prepare(made(root))
        pid = os.fork()
        if pid == 0:
            _child(partial(_act, act, root, writes, told))
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            return
        _say(told)
    raise AssertionError("it never came to an end")


def racing(count: int, act: Callable[[int], Sequence[str]]) -> None:
    """Forks `count` processes that begin at once and live until all have acted; prints what each of them got."""
    begin, beginning = os.pipe()
    acted, acting = os.pipe()
    leave, leaving = os.pipe()

    def work(number: int) -> None:
        os.close(beginning)
        os.close(leaving)
        os.read(begin, 1)  # until the parent closes its end
        _say(*act(number))
        os.write(acting, b".")
        os.read(leave, 1)

    pids = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            _child(partial(work, number))
        pids.append(pid)
    for end in (beginning, acting):
        os.close(end)
    for _ in pids:
        os.read(acted, 1)  # nothing, once the last child that could still act has died
    os.close(leaving)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * len(pids)


def overtaken(act: Callable[[], None], owner: object, method: str, overtake: Callable[[], None]) -> None:
    """Runs `act` in a child that is off the processor (SIGSTOP) once its first call of this method has returned, until
    `overtake` has."""
    pid = os.fork()
    if pid == 0:
        real = getattr(owner, method)

        def stopping(*args: Any, **options: Any) -> Any:
            setattr(owner, method, real)
            result = real(*args, **options)
            os.kill(os.getpid(), signal.SIGSTOP)
            return result

        setattr(owner, method, stopping)
        _child(act)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    try:
        overtake()
    finally:
        os.kill(pid, signal.SIGCONT)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def _say(*words: str) -> None:
    """Prints in one write, which stays whole when several processes print."""
    os.write(sys.stdout.fileno(), "".join(f"{word}\n" for word in words).encode())


def _act(act: Callable[[Services, str], None], root: Path, writes: int, told: str) -> None:
    services = context(root)
    services.workspace.files = DyingFiles(services.workspace.path, writes)
    act(services, told)


def _child(work: Callable[[], None]) -> None:
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - said, and then the child ends here whatever it was
        traceback.print_exc()
    finally:
        os._exit(code)


def block_a_task(base: str) -> None:
    """`task status T blocked`, killed at every write."""

    def prepare(services: Services) -> str:
        task = services.task_creation.send(services.agents.get("admin"), "worker-a", "Build", "the house").task
        return services.task_changes.start(services.agents.get("worker-a"), task.id)[0].id

    def act(services: Services, task_id: str) -> None:
        services.task_changes.set_status(services.agents.get("owner"), task_id, "blocked", "stop")

    dying(base, prepare, act)


def block_ones_own(base: str) -> None:
    """Runs `update_task_status` of an assignee, killed at every write; prints the task and its new status."""

    def prepare(services: Services) -> str:
        task = services.task_creation.send(services.agents.get("admin"), "worker-a", "Build", "the house").task
        return f"{services.task_changes.start(services.agents.get('worker-a'), task.id)[0].id}:blocked"

    def act(services: Services, told: str) -> None:
        services.task_changes.set_status(services.agents.get("worker-a"), told.split(":")[0], "blocked", "no key")

    dying(base, prepare, act)


def finish_a_dependency(base: str) -> None:
    """Completes a task on which a task of worker-b depends, killed at every write; prints the task and its new
    status."""

    def prepare(services: Services) -> str:
        task = services.task_creation.send(services.agents.get("admin"), "worker-a", "Build", "the house").task
        new = NewTask(title="Paint", assignee_id="worker-b", dependencies=[task.id])
        services.task_creation.create(services.agents.get("admin"), [new])
        return f"{services.task_changes.start(services.agents.get('worker-a'), task.id)[0].id}:done"

    def act(services: Services, told: str) -> None:
        services.task_changes.set_status(services.agents.get("worker-a"), told.split(":")[0], "done")

    dying(base, prepare, act)


def assign_a_task(base: str) -> None:
    """`assign_task`, killed at every write; prints the task and its new assignee."""

    def prepare(services: Services) -> str:
        task = services.task_creation.send(services.agents.get("admin"), "worker-a", "Build", "the house").task
        return f"{task.id}:worker-b"

    def act(services: Services, told: str) -> None:
        services.task_changes.assign(services.agents.get("admin"), told.split(":")[0], "worker-b")

    dying(base, prepare, act)


def start_a_conversation(base: str) -> None:
    """`start_conversation` for a delegation, killed at every write; prints the delegation's id each time."""

    def prepare(services: Services) -> str:
        worker = services.agents.get("worker-a")
        task = services.sessions.open("worker-a", "task")
        return services.delegations.delegate(worker, task.record, "worker-b", "play", None)[0].id

    def act(services: Services, delegation_id: str) -> None:
        worker = services.agents.get("worker-a")
        chat = services.sessions.open("worker-a", "chat")
        services.delegations.start_conversation(worker, chat.record, "worker-b", "りんご", None, delegation_id)

    dying(base, prepare, act)


def read_mail(base: str, reader: str) -> None:
    """A chat session that reads an Admin's three messages, killed at every write."""

    def prepare(services: Services) -> str:
        if reader == "owner":
            services.task_creation.send(services.agents.get("owner"), "admin", "Build", "the house")
        for words in ("one", "two", "three"):
            services.messages.send(services.agents.get("admin"), Draft(content=words, receiver_id=reader))
        return reader

    def act(services: Services, _: str) -> None:
        chat = services.sessions.open(reader, "chat")
        services.reading.read(services.agents.get(reader), Query(), chat.lease)

    dying(base, prepare, act)


def read_and_end(base: str) -> None:
    """A session that has read an answer's mail at work, and ends regularly: killed at every write. The file `ending`
    is there from the beginning of the end on."""

    def prepare(services: Services) -> str:
        admin = services.agents.get("admin")
        services.task_creation.send(admin, "worker-a", "Build", "the house")
        services.messages.send(admin, Draft(content="one", receiver_id="worker-a"))
        return "worker-a"

    def act(services: Services, agent_id: str) -> None:
        session, worker = services.sessions.open(agent_id, "task"), services.agents.get(agent_id)
        services.next_action.next_action(worker, session)
        services.reading.read(worker, Query(), session.lease)
        session.written(session.record.unconfirmed)
        (services.root / "ending").touch()
        session.end()

    dying(base, prepare, act)


def recover_late(root: str) -> None:
    """A recovery that is off the processor as soon as it has listed the sessions; meanwhile one of them, which has read
    its mail, ends regularly and its process is gone."""
    end, ending = os.pipe()
    ready, reading = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(partial(_read_and_end_when_told, context(Path(root)), reading, end, ending))
    os.close(reading)
    assert os.read(ready, 1)
    services = context(Path(root))

    def overtake() -> None:
        os.close(ending)
        os.waitpid(pid, 0)

    def recover() -> None:
        os.close(ending)
        _say(str(services.sessions.recover("worker-a")))

    overtaken(recover, services.workspace.sessions, "open", overtake)


def _read_and_end_when_told(services: Services, ready: int, end: int, ending: int) -> None:
    os.close(ending)
    session = services.sessions.open("worker-a", "task")
    services.reading.read(services.agents.get("worker-a"), Query(), session.lease)
    session.written(session.record.unconfirmed)
    os.write(ready, b".")
    os.read(end, 1)  # until everybody else has closed its other end
    session.end()


def read_notifications(base: str) -> None:
    """A session that reads two notifications, killed at every write."""

    def prepare(services: Services) -> str:
        items = [NewTask(title=title, assignee_id="worker-a") for title in ("one", "two")]
        services.task_creation.create(services.agents.get("admin"), items)
        return "worker-a"

    def act(services: Services, agent_id: str) -> None:
        services.notifications.read(agent_id, "task", lease=services.sessions.open(agent_id, "task").lease)

    dying(base, prepare, act)


def take(root: str, count: str) -> None:
    """Chat sessions of one agent that ask for its delegations at once; prints what each of them got."""

    def act(_: int) -> Sequence[str]:
        services = context(Path(root))
        session = services.sessions.open("worker-a", "chat")
        return [delegation.id for delegation in services.delegations.take(session.record)]

    racing(int(count), act)


def start_conversation(root: str, count: str, delegation_id: str) -> None:
    """Chat sessions of one agent that start the same delegation's conversation at once."""

    def act(_: int) -> Sequence[str]:
        services = context(Path(root))
        worker = services.agents.get("worker-a")
        session = services.sessions.open("worker-a", "chat")
        try:
            found, __ = services.delegations.start_conversation(
                worker, session.record, "worker-b", "りんご", None, delegation_id
            )
        except Refusal as refusal:
            return [refusal.code]
        return [found.id]

    racing(int(count), act)


def hand_over(root: str, count: str) -> None:
    """An Owner's processes that send the Admin a task at once; prints each task, or why there is none."""

    def act(_: int) -> Sequence[str]:
        services = context(Path(root))
        try:
            return [services.task_creation.send(services.agents.get("owner"), "admin", "Build", "x").task.id]
        except Refusal as refusal:
            return [refusal.code]

    racing(int(count), act)


def hand_over_and_die(base: str) -> None:
    """An Owner's task for the Admin, killed at every write."""

    def act(services: Services, _: str) -> None:
        services.task_creation.send(services.agents.get("owner"), "admin", "Build", "x")

    dying(base, lambda _: "sent", act)


def resume(root: str, count: str) -> None:
    """All superiors of a paused agent resume it at once; prints what each of them was told."""

    def act(number: int) -> Sequence[str]:
        services = context(Path(root))
        me = services.agents.get(("admin", "owner")[number % 2])
        try:
            return [services.interrupting.resume(me, "worker-a").id]
        except Refusal as refusal:
            return [refusal.code]

    racing(int(count), act)


def claim(root: str, count: str, *task_ids: str) -> None:
    """Sessions of one agent that start all of these tasks at once, each beginning elsewhere; prints what they won."""

    def act(number: int) -> Sequence[str]:
        services = context(Path(root))
        worker = services.agents.get("worker-a")
        first = number * len(task_ids) // int(count)
        won = []
        for task_id in (*task_ids[first:], *task_ids[:first]):
            with suppress(InvalidStatusTransition):
                won.append(services.task_changes.start(worker, task_id)[0].id)
        return won

    racing(int(count), act)


def finish(root: str, count: str, task_id: str) -> None:
    """All agents that may complete a task do so at once; prints what each of them was told."""

    def act(number: int) -> Sequence[str]:
        services = context(Path(root))
        me = services.agents.get(("worker-a", "admin", "owner")[number % 3])
        try:
            return [services.task_changes.set_status(me, task_id, "done")[0].status]
        except Refusal as refusal:
            return [refusal.code]

    racing(int(count), act)


def slow_writer(root: str, task_id: str, slow: str, *meanwhile: str) -> None:
    """A process that is off the processor as soon as the file that it changes is in place; meanwhile another one acts.
    Words like `admin:assign:worker-a` say who does what."""
    services, other = context(Path(root)), context(Path(root))
    places = {
        "begin": (services.task_changes, "in_hand"),
        "resume": (services.interrupts.writer, "put_first"),
        "take": (services.workspace.delegations, "update"),
    }
    place = places.get(slow.split(":")[1], (services.workspace.tasks, "update"))

    def overtake() -> None:
        for what in meanwhile:
            deed(other, task_id, what)

    overtaken(partial(deed, services, task_id, slow), *place, overtake)


def deed(services: Services, task_id: str, told: str) -> None:
    who, verb, *to = told.split(":")
    me = services.agents.get(who)
    match verb:
        case "assign":
            services.task_changes.assign(me, task_id, to[0])
        case "begin":
            services.next_action.next_action(me, services.sessions.open(who, "task"))
        case "pause":
            services.interrupting.interrupt(me, to[0], "pause", task_id, None)
        case "resume":
            services.interrupting.resume(me, to[0])
        case "delegate":
            services.delegations.delegate(me, services.sessions.open(who, "task").record, to[0], "play", None)
        case "take":
            services.delegations.take(services.sessions.open(who, "chat").record)
        case status:
            services.task_changes.set_status(me, task_id, status)


JOBS: dict[str, Callable[..., None]] = {
    job.__name__: job
    for job in (
        block_a_task,
        block_ones_own,
        finish_a_dependency,
        assign_a_task,
        start_a_conversation,
        take,
        start_conversation,
        hand_over,
        hand_over_and_die,
        resume,
        claim,
        finish,
        slow_writer,
        read_mail,
        read_notifications,
        read_and_end,
        recover_late,
    )
}

if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
