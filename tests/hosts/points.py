"""Random points of work at which an agent loses its host or its memory: the tmux server is killed, or its conversation
is compacted, in the middle of an answer, of a tool, between two of them, or at rest. Each time it has to go on with the
task that it holds (docs/protocol.md, Briefing and Continuing a conversation)."""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import dropwhile
from pathlib import Path

from multi_agent_mcp.server.tools import TOOLS
from tests.end_to_end.chat_support import new_task, task_of
from tests.end_to_end.literal import TEXTS
from tests.end_to_end.support import UP, wait_until
from tests.hosts.lasting import BRIEFED, COMPACTING, LastingTeam, LiteralModel, lasting_team
from tests.hosts.replies import Call, Reply, Request, Say
from tests.hosts.scripted_model import PATIENCE_SECONDS
from tests.hosts.stage import Host

KILL, COMPACT = "tmux killed", "compacted"
ANSWER, TOOL, BETWEEN, REST, FULL = "in an answer", "in a tool", "between calls", "at rest", "as it was full"
KILLS = (ANSWER, TOOL, BETWEEN, REST)
STEPS = 5
LONGEST_DELAY_SECONDS = 1.5
GO_ON = "go on"
REQUESTS_SHOWN = 12
REPORTS = {"task_progress", "task_complete", "status_update"}


@dataclass(frozen=True)
class Point:
    """What happens, when, at which step of the work, and how much later than that."""

    what: str
    when: str
    step: int
    delay: float

    def __str__(self) -> str:
        return f"{self.what} {self.when}, step {self.step} + {self.delay:.1f} s"


def points(host: Host, number: int, chance: random.Random) -> Iterator[Point]:
    """So many points; every second one is a compaction, if the host can do that."""
    ways = [REST] * bool(host.compacts) + [FULL] * host.fills
    for count in range(number):
        what, whens = (COMPACT, ways) if count % 2 and ways else (KILL, KILLS)
        yield Point(what, chance.choice(whens), chance.randrange(STEPS), chance.uniform(0, LONGEST_DELAY_SECONDS))


class WorkingModel(LiteralModel):
    """Obeys our sentences and does the work of its task in steps. At the step of the point it says that this is
    `reached`; it reports the task as completed once the point is `past`."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.task_id = ""
        self.stopped: Request | None = None
        self.begin(None)

    def begin(self, point: Point | None) -> None:
        """What will happen in the next task."""
        self.point, self.step, self.works = point, 0, False
        self.reached, self.past = threading.Event(), threading.Event()

    def decide(self, request: Request) -> Reply:
        told = self.told(request)
        if COMPACTING in request.news or (told or "report_completed") != "report_completed":
            return super().decide(request)
        self.works = self.works or told is not None
        return self.next_step(request) if self.works else Say("OK")

    def next_step(self, request: Request) -> Reply:
        point, step = self.point, self.step
        if point is not None and step == point.step and not self.reached.is_set():
            self.stopped = request
            self.reached.set()
            return self.at_point(point, self.work())
        if step >= STEPS and self.past.is_set():
            self.works = False
            return self.offered("report_completed", request)
        self.step = min(step + 1, STEPS)
        return self.work()

    def at_point(self, point: Point, work: Call) -> Reply:
        if point.when == REST:
            return Say("I am at it")
        if point.when == TOOL:
            return self.host.shell("sleep 8")
        return replace(work, until=self.past if point.when == ANSWER else None, is_full=point.when == FULL)

    def work(self) -> Call:
        """Every second step is a report of progress, the others a command of its own."""
        if self.step % 2:
            return self.host.tool("report_task_progress", task_id=self.task_id, progress=10 * self.step)
        return self.host.shell("sleep 0.5")


@dataclass
class Played:
    """How it went on after a point."""

    point: Point
    seconds: float
    fault: str | None


def play_points(host: Host, binaries: Path, number: int, seed: int, say: Callable[[str], None]) -> Sequence[Played]:
    """Plays so many points with one team after another: with a new one only where something went wrong."""
    played: list[Played] = []
    waiting = list(points(host, number, random.Random(seed)))  # noqa: S311 - chooses moments
    while waiting:
        with ExitStack() as stack:
            mind = WorkingModel(host)
            team = stack.enter_context(lasting_team(mind, binaries, host.hooked_command))
            team.up()
            host.trust_hooks(team.team, lambda: team.screens)  # noqa: B023 - called at once
            while waiting:
                played.append(last := _played(team, mind, waiting.pop(0)))
                say(f"{host.name:8} {last.fault or 'ok    '} {last.point} ({last.seconds:.0f} s)")
                if last.fault is not None:
                    break
    return played


def _played(team: LastingTeam, mind: WorkingModel, point: Point) -> Played:
    began = time.monotonic()
    try:
        _play(team, mind, point)
    except Exception as error:  # noqa: BLE001 - the other points are to be played, too
        sent = "\n".join(map(_shown, team.model.requests[-REQUESTS_SHOWN:]))
        sys.stderr.write("".join(traceback.format_exception(error, limit=-2)) + f"{team.screens}\n{sent}\n")
        return Played(point, time.monotonic() - began, " ".join(str(error).split())[:200] or repr(error))
    return Played(point, time.monotonic() - began, None)


def _play(team: LastingTeam, mind: WorkingModel, point: Point) -> None:
    mail = {message.id for message in team.team.mailbox("admin")}
    mind.begin(point)
    task = new_task(team.team, f"Paint the house, {point}")
    mind.task_id = task.id
    assert mind.reached.wait(2 * PATIENCE_SECONDS), "the work did not come to this point"
    time.sleep(point.delay)
    since = (_kill if point.what == KILL else _compact)(team, mind, point)
    mind.past.set()
    wait_until(lambda: task_of(team.team, task.id).status == "done", "the task is done", 2 * PATIENCE_SECONDS)
    requests = team.model.requests[since:]
    if point.what == KILL:  # until then it is the old host, which has not ended yet
        requests = [*dropwhile(lambda request: TEXTS("doorbell.begin") not in request.news, requests)]
    _check_requests(requests, task.id, mind.host.answers_shown)
    new = [message for message in team.team.mailbox("admin") if message.id not in mail]
    assert {message.message_type for message in new} <= REPORTS, f"mail: {[item.content[:80] for item in new]}"
    wait_until(lambda: isinstance(team.model.requests[-1].reply, Say), "its turn ends", PATIENCE_SECONDS)


def _check_requests(requests: Sequence[Request], task_id: str, answers_shown: int) -> None:
    """The briefing is told exactly once, and the first call of ours is about the task that is held."""
    told = [request for request in requests if BRIEFED in request.news]
    times = sum(request.news.count(BRIEFED) for request in told)
    by_answer = any('"briefing"' in request.news for request in told)
    assert len(told) == 1, f"briefed in {len(told)} requests"
    assert times == (answers_shown if by_answer else 1), f"briefed {times} times in one request"
    assert task_id in told[0].news, "the briefing does not name the task"
    calls = [(number, name) for number, request in enumerate(requests) if (name := _ours(request)) is not None]
    number, name = calls[0]
    assert name == "get_next_action", f"the first call was {name}"
    assert task_id in requests[number + 1].news, "the first call was not about the task"


def _shown(request: Request) -> str:
    """What the model was sent and what it replied, for a person who looks for a fault."""
    news = " ".join(request.news.split())
    place = news.find(BRIEFED)
    return f"> {news[:200]} … {news[place : place + 60] if place >= 0 else 'no briefing'}\n< {request.reply}"


def _ours(request: Request) -> str | None:
    """The name of the tool of ours that the model called."""
    called = request.reply.tool if isinstance(request.reply, Call) else ""
    return next((tool for tool in TOOLS if called.endswith(tool)), None)


def _kill(team: LastingTeam, mind: WorkingModel, point: Point) -> int:
    """Kills the tmux server, opens the team again, and returns the number of the first request since."""
    del mind, point
    team.terminal("kill-server")
    since = len(team.model.requests)
    answer = team.team.ask(*UP, "--socket", team.terminal.socket)
    state = next(item for item in answer["agents"] if item["agent_id"] == "worker-a")
    assert state["continued"], f"not continued: {state['why']}"
    return since


def _compact(team: LastingTeam, mind: WorkingModel, point: Point) -> int:
    """Has the host compact the conversation, and returns the number of the first request since."""
    if point.when == FULL:
        return next(number for number, request in enumerate(team.model.requests) if request is mind.stopped) + 1
    team.at_rest()
    since = len(team.model.requests)
    team.compacts()
    team.types(GO_ON)
    return since
