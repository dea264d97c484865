"""Tasks, notifications and interrupts: the cost of the middleware, and the latency of a change."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bench import Bench
from benchmarks.floors import FileEvents
from benchmarks.table import Finding
from benchmarks.team import Team, unsynced
from benchmarks.timing import in_turns, ms
from benchmarks.wire import Server
from multi_agent_mcp.domain import times
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.entity import new_id
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import AlreadyExists, InvalidStatusTransition
from multi_agent_mcp.services.tasks.board import NewTask

CALL_EVERY = 0.01
CLAIMERS = 16
CLAIMED = 200
FINISHED = 5_000
FINISHED_FEW = 50


def middleware(bench: Bench) -> Finding:
    """A call with nothing unread, after many old notifications and after none. More than 0.3 ms added is a miss too."""
    crowded, calm = bench.team(), bench.team()
    _old_notifications(crowded, bench.scale.read)
    with crowded.server("worker") as many, calm.server("worker") as few:
        for server in (many, few):
            server.settle()
            server.call("get_unread_count")
        measured, floor = in_turns(
            bench.scale.calls, lambda: many.timed("get_unread_count"), lambda: few.timed("get_unread_count")
        )
    return Finding(measured / floor, ms(measured), ms(floor))


def interrupt(bench: Bench) -> Finding:
    """From the Owner's change being done to the replaced answer of an agent that calls a tool every 10 ms."""
    team = bench.team()
    with team.server("worker") as server:
        server.settle()
        times_taken = [_interrupted(team, server) for _ in range(bench.scale.rings)]
    return Finding(median(times_taken) / CALL_EVERY, ms(median(times_taken)), f"a call every {ms(CALL_EVERY)}")


def next_action(bench: Bench) -> Finding:
    """From new mail being stored to the answer of a `get_next_action` that waits for it."""
    team = bench.team()
    with team.server("admin") as server:
        server.settle()
        with FileEvents(bench.place()).watched() as events:
            measured, floor = in_turns(bench.scale.rings, lambda: _answered(team, server), events.latency)
    return Finding(measured / floor, ms(measured), f"{ms(floor)} inotify")


def claims(bench: Bench) -> Finding:
    """16 processes start the same 200 tasks at once: attempts a second; each task must be won exactly once."""
    return _raced(bench.team(), "worker", _started)


def pool(bench: Bench) -> Finding:
    """The same with `claim_task`: tasks that nobody has, in a session with `pool: on`."""
    team = bench.team()
    path = team.services.workspace.path / "session.yaml"
    path.write_text(f"{path.read_text(encoding='utf-8')}\npool: on\n", encoding="utf-8")
    return _raced(Team(team.root), None, _claimed)


def _raced(team: Team, assignee_id: str | None, attempt: Callable[[Team, Agent, str], object]) -> Finding:
    admin = team.services.agents.get("admin")
    items = [NewTask(title=f"task {number}", assignee_id=assignee_id) for number in range(CLAIMED)]
    tasks = [task.id for task in team.services.task_creation.create(admin, items)]
    context = multiprocessing.get_context("spawn")
    ready, wins = context.Barrier(CLAIMERS + 1), context.SimpleQueue()
    claimers = [
        context.Process(target=_claim, args=(team.root, tasks, number, ready, wins, attempt))
        for number in range(CLAIMERS)
    ]
    for claimer in claimers:
        claimer.start()
    ready.wait()
    began = time.perf_counter()
    won: int = sum(wins.get() for _ in claimers)
    seconds = time.perf_counter() - began
    for claimer in claimers:
        claimer.join()
    attempts = CLAIMERS * CLAIMED
    return Finding(attempts / seconds, f"{attempts} attempts in {seconds:.1f} s, {won} wins", sound=won == CLAIMED)


def my_tasks(bench: Bench) -> Finding:
    """`get_my_tasks` beside many finished tasks, against few, in a warm server."""
    crowded, calm = bench.team(), bench.team()
    _finished_tasks(crowded, FINISHED * bench.scale.read // 10_000)
    _finished_tasks(calm, FINISHED_FEW)
    with crowded.server("worker") as many, calm.server("worker") as few:
        for server in (many, few):
            server.settle()
            server.call("get_my_tasks")
        measured, floor = in_turns(
            bench.scale.calls, lambda: many.timed("get_my_tasks"), lambda: few.timed("get_my_tasks")
        )
    return Finding(measured / floor, ms(measured), ms(floor))


def _old_notifications(team: Team, count: int) -> None:
    moment = times.now()
    inbox = team.services.workspace.notices("worker")
    with unsynced():
        for number in range(count):
            at = moment - timedelta(seconds=count - number)
            notice = Notification(id=new_id("ntf"), target_agent_id="worker", message="old", created_at=at)
            inbox.deliver(notice)
        inbox.read([name for name, _ in inbox.unread()], moment)


def _finished_tasks(team: Team, count: int) -> None:
    change = Change(by="worker", at=times.now())
    with unsynced():
        for number in range(count):
            fresh = Task.made(new_id("tsk"), change, status="todo", assignee_id="worker", title=f"task {number}")
            done = fresh.move_to("in_progress", change).move_to("done", change)
            team.services.workspace.tasks.add(done)


def _interrupted(team: Team, server: Server) -> float:
    """Starts a task, blocks it amid the agent's calls, and lets the agent read its notification."""
    worker, owner = team.services.agents.get("worker"), team.services.agents.get("owner")
    (task,) = team.services.task_creation.create(owner, [NewTask(title="to be stopped", assignee_id="worker")])
    team.services.task_changes.start(worker, task.id)
    blocked_at: list[float] = []

    def block() -> None:
        team.services.task_changes.set_status(owner, task.id, "blocked")
        blocked_at.append(time.perf_counter())

    blocker = threading.Timer(5 * CALL_EVERY, block)
    blocker.start()
    while _structured(server, "get_unread_count") is not None:
        time.sleep(CALL_EVERY)
    replaced_at = time.perf_counter()
    blocker.join()
    server.call("get_notifications")
    return replaced_at - blocked_at[0]


def _answered(team: Team, server: Server) -> float:
    answered_at: list[float] = []

    def wait() -> None:
        server.call("get_next_action", timeout_seconds=30)
        answered_at.append(time.perf_counter())

    waiter = threading.Thread(target=wait)
    waiter.start()
    time.sleep(5 * CALL_EVERY)
    team.send()
    stored_at = time.perf_counter()
    waiter.join()
    server.call("read_messages")
    return answered_at[0] - stored_at


def _structured(server: Server, tool: str) -> Any:
    """The structured answer; None when an interrupt replaced it."""
    return server.request("tools/call", name=tool, arguments={}).get("structuredContent")


def _claim(
    root: Path,
    tasks: list[str],
    number: int,
    ready: Barrier,
    wins: SimpleQueue[int],
    attempt: Callable[[Team, Agent, str], object],
) -> None:
    team = Team(root)
    worker = team.services.agents.get("worker")
    offset = number * len(tasks) // CLAIMERS
    ready.wait()
    wins.put(sum(_won(attempt, team, worker, task_id) for task_id in tasks[offset:] + tasks[:offset]))


def _won(attempt: Callable[[Team, Agent, str], object], team: Team, worker: Agent, task_id: str) -> bool:
    try:
        attempt(team, worker, task_id)
    except (InvalidStatusTransition, AlreadyExists):
        return False
    return True


def _started(team: Team, worker: Agent, task_id: str) -> object:
    return team.services.task_changes.start(worker, task_id)


def _claimed(team: Team, worker: Agent, task_id: str) -> object:
    return team.services.claims.claim(worker, task_id)
