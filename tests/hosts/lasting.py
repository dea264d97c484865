"""A worker that lives longer than one task, with a model that does exactly what our sentences say. Its window stays, or
the supervisor opens one for each of its tasks."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.host_config import HostConfigurations
from multi_agent_mcp.server.tools import TOOLS
from tests.end_to_end.chat_support import new_task, task_of
from tests.end_to_end.literal import TEXTS, arguments_of, told_to_call
from tests.end_to_end.support import UP, Team, Terminal, wait_until
from tests.hosts.replies import Call, Reply, Request, Say
from tests.hosts.scenarios import Measured
from tests.hosts.scripted_model import PATIENCE_SECONDS, ScriptedModel, way_to_wait
from tests.hosts.stage import KEY_PAUSE_SECONDS, Host, clear_away, environment, inhabitants

TEAM = """\
session: demo
language: en
agents:
  - {{id: owner, role: owner, type: human}}
  - {{id: admin, role: admin, parent: owner}}
  - {{id: worker-a, role: worker, parent: admin, command: "{command}"{spawn}}}
"""
TASKS = 3
COMPACTING = "detailed summary"
"""Words of Claude Code's request for the summary of a conversation."""
BRIEFED = "You are going on with earlier work"


class LiteralModel:
    """Obeys our sentences (see `literal`). `silent`: how many turns it first ends without a call; while `holds` it
    finishes no task."""

    def __init__(self, host: Host, silent: int = 0) -> None:
        self.host = host
        self.silent = silent
        self.holds = False
        self.summaries = 0
        self.waits_to_call: str | None = None
        self.subscribes = False
        self.limited_until = 0.0
        self.resumes = False
        """Whether its work was cut off: "resume your work", say our instructions, and that is to report it."""
        self.refused_at: float | None = None
        """When its service refused a request last, in seconds since the epoch."""

    def decide(self, request: Request) -> Reply:
        if time.time() < self.limited_until and (refusal := self.host.refusal(self.limited_until)) is not None:
            self.refused_at = time.time()
            return refusal
        if COMPACTING in request.news:
            self.summaries += 1
            return Say("<summary>It works on a task.</summary>")
        told = self.told(request)
        if told is None and self.resumes:
            told, self.resumes = "report_completed", False
        if told is None:
            return Say("OK")
        if self.silent:
            self.silent -= 1
            return Say("OK")
        if self.holds and told == "report_completed":
            return Say("I am at it")
        return self.offered(told, request)

    def told(self, request: Request) -> str | None:
        """The tool that it is told to call, or was before it waited for our server."""
        return self.waits_to_call or told_to_call(request.news, TOOLS)

    def offered(self, tool: str, request: Request) -> Call:
        """The call of our tool, or a wait for our server while the host does not offer it."""
        call = self.host.tool(tool, **arguments_of(tool))
        self.waits_to_call = None if call.name in request.tools else tool
        if call.name in request.tools:
            return call
        waiting = way_to_wait(request)
        assert waiting is not None, f"neither {call.name} nor a wait for it is offered: {request.tools}"
        return waiting


class LastingTeam:
    """The team's session, its tmux server, and the model that all its hosts talk to."""

    def __init__(
        self,
        mind: LiteralModel,
        base: Path,
        env: dict[str, str],
        command: str,
        partner: Host | None,
        *,
        on_demand: bool,
    ) -> None:
        spawn = ", spawn: on_demand" if on_demand else ""
        self.team = Team(base, env).make(TEAM.format(command=command, spawn=spawn))
        self.mind, host = mind, mind.host
        self.model = ScriptedModel(self.mind.decide)
        for one in filter(None, (host, partner)):
            env |= one.settle_in(base / "home", self.model.url, trusted=base)
        if mind.subscribes:
            host.subscribe(env, base / "home")
        host.prepare(self.team, base)
        self.terminal = Terminal(Path(tempfile.mkdtemp(prefix="mam-", dir="/tmp")), env)

    def up(self) -> None:
        self.team.ask(*UP, "--socket", self.terminal.socket)

    def end(self) -> None:
        self.team.run("down")
        self.terminal.end()
        self.model.close()

    def works(self, times: int) -> list[float]:
        """Gives the worker one task after another; returns the seconds until each was done."""
        took = []
        for number in range(times):
            began = time.monotonic()
            task = new_task(self.team, f"Paint door {number}")
            wait_until(
                lambda task_id=task.id: task_of(self.team, task_id).status == "done",  # type: ignore[misc]
                f"task {number} is done",
                2 * PATIENCE_SECONDS,  # it may have to start, in a new window
            )
            took.append(time.monotonic() - began)
        return took

    def at_rest(self) -> None:
        """Waits until the worker's host is idle."""
        wait_until(lambda: self.screen.endswith("idle"), "it is idle", PATIENCE_SECONDS)

    @property
    def screen(self) -> str:
        """The worker's host, and what its screen is known to be."""
        services = self.team.services
        return services.pane_notifier.screen(services.agents.get("worker-a"))

    def types(self, text: str) -> None:
        """A person types a line into the worker's pane."""
        self.presses("-l", "--", text)
        time.sleep(KEY_PAUSE_SECONDS)
        self.presses("Enter")

    def compacts(self) -> None:
        """A person has the host compact the conversation; waits until it has asked for a summary and is at rest."""
        host, summaries = self.mind.host, self.summaries
        self.at_rest()
        self.presses("-l", "--", host.compacts)
        wait_until(lambda: (host.offers or host.compacts) in self.screens, "its composer has the command")
        time.sleep(KEY_PAUSE_SECONDS)
        self.presses("Enter")
        wait_until(lambda: self.summaries > summaries, "the host asks for a summary", PATIENCE_SECONDS)
        self.at_rest()

    def presses(self, *keys: str) -> None:
        """A person presses keys in the worker's pane."""
        self.terminal("send-keys", "-t", str(self.team.services.agents.get("worker-a").pane_id), *keys)

    @property
    def summaries(self) -> int:
        """How many summaries of a conversation, and other things without tools, the host has asked for."""
        return self.mind.summaries + self.model.asides

    def hosts_left(self) -> list[int]:
        """The processes of the worker's host and our servers, without the tmux server and what we ask here."""
        program = self.mind.host.program
        words = (f"/node_modules/{program.package}", f"/.bin/{program.command}", "multi_agent_mcp")
        left = []
        for pid in inhabitants(self.team.base):
            with suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                left += [pid] if any(word in line for word in words) else []
        return left

    def given_to_hosts(self) -> str:
        """The arguments and the environment of those processes."""
        given = [Path(f"/proc/{pid}/{what}") for pid in self.hosts_left() for what in ("cmdline", "environ")]
        return "\n".join(path.read_bytes().decode(errors="replace") for path in given if path.exists())

    @property
    def worker(self) -> Agent:
        return self.team.services.agents.get("worker-a")

    @property
    def configurations(self) -> HostConfigurations:
        return self.team.services.host_configurations

    @property
    def states(self) -> list[str]:
        return [item.state for item in self.team.services.workspace.sessions.all("worker-a")]

    def kill_the_supervisor(self) -> None:
        pid = self.team.services.supervision.running()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.team.services.supervision.running() is None, "the supervisor is gone")

    @property
    def screens(self) -> str:
        panes = self.terminal("list-panes", "-a", "-F", "#{pane_id} #{window_name}").splitlines()
        return "\n".join(
            f"--- {pane}\n" + self.terminal("capture-pane", "-p", "-J", "-t", pane.split()[0]).rstrip()
            for pane in panes
        )


@dataclass(frozen=True)
class LastingScenario:
    """A scenario of a team that `up` opened, played by every host, or by those of `only`."""

    title: str
    play: Callable[[LastingTeam], Measured]
    silent: int = 0
    on_demand: bool = False
    subscribed: bool = False
    only: frozenset[str] = frozenset()
    partner: Host | None = None
    """Another host that it needs."""

    def fits(self, host: Host) -> bool:
        return not self.only or host.name in self.only

    def run(self, host: Host, binaries: Path) -> Measured:
        mind = LiteralModel(host, self.silent)
        mind.subscribes = self.subscribed
        with lasting_team(mind, binaries, host.command, partner=self.partner, on_demand=self.on_demand) as built:
            return self.play(built)


@contextmanager
def lasting_team(
    mind: LiteralModel, binaries: Path, command: str, *, partner: Host | None = None, on_demand: bool = False
) -> Iterator[LastingTeam]:
    base = Path(tempfile.mkdtemp(prefix="mamh-", dir="/tmp"))
    try:
        built = LastingTeam(mind, base, environment(base, binaries), command, partner, on_demand=on_demand)
        try:
            yield built
        except Exception as error:
            error.add_note(built.screens)
            raise
        finally:
            built.end()
    finally:
        clear_away(base)


def works_on_and_on(team: LastingTeam) -> Measured:
    team.up()
    took = team.works(TASKS)
    team.kill_the_supervisor()
    took += team.works(TASKS)
    assert team.states == ["active"], "nothing told it to log out"
    return Measured(max(took[1:]) * 1000, f"assigned → done, the slowest of {2 * TASKS}, half without a supervisor")


def is_opened_for_each_task(team: LastingTeam) -> Measured:
    team.up()
    took = []
    for _ in range(TASKS):
        took += team.works(1)
        wait_until(
            lambda: team.team.services.missing_sessions.window(Slot("worker-a", "task")) is None,
            "it logs out, as it was told, and its window is closed",
            PATIENCE_SECONDS,
        )
    assert team.states == ["ended"] * TASKS
    return Measured(max(took) * 1000, f"assigned → done in a new window each, the slowest of {TASKS}")


def is_told_once_more(team: LastingTeam) -> Measured:
    began = time.monotonic()
    team.up()
    told = team.model.request_with(TEXTS("doorbell.begin"), seconds=2 * PATIENCE_SECONDS)
    calls = wait_until(
        lambda: [item for item in team.team.services.sessions.live("worker-a") if item.called], "it calls our server"
    )
    team.works(1)
    again = [request for request in team.model.requests if TEXTS("doorbell.begin") in request.news]
    assert (len(calls), again) == (1, [told]), "told more than once"
    return Measured((told.at - began) * 1000, "`up` → told once more, after a turn without a call")


def at_work(team: LastingTeam) -> Task:
    """Starts the team; returns the task that the worker holds when its turn ends."""
    team.mind.holds = True
    team.up()
    task = new_task(team.team, "Paint the house")
    wait_until(
        lambda: task_of(team.team, task.id).status == "in_progress", "it has begun the task", 2 * PATIENCE_SECONDS
    )
    wait_until(lambda: team.model.requests[-1].reply == Say("I am at it"), "its turn ends", PATIENCE_SECONDS)
    return task


def goes_on_after_a_compaction(team: LastingTeam) -> Measured:
    """A person types `/compact` while a task is in hand; with the next line the model is briefed once."""
    task, services = at_work(team), team.team.services
    before, began = len(team.model.requests), time.monotonic()
    team.at_rest()
    team.types("/compact")
    (kept,) = wait_until(lambda: services.hand_offs.all("worker-a"), "a hand-off is derived", PATIENCE_SECONDS)
    assert (kept.hand_off.kind, kept.hand_off.task_id) == ("derived", task.id)
    team.mind.holds = False
    team.team.send("worker-a", "go on", sender="admin")
    wait_until(lambda: task_of(team.team, task.id).status == "done", "the task is done", 2 * PATIENCE_SECONDS)
    told = sum(request.news.count(BRIEFED) for request in team.model.requests[before:])
    assert told == 1, f"briefed {told} times"
    return Measured((time.monotonic() - began) * 1000, "/compact → task done, briefed once, a hand-off derived")


def goes_on_after_a_crash(team: LastingTeam) -> Measured:
    """The tmux server dies while a task is in hand; `up` continues the conversation, and the model is briefed once."""
    task = at_work(team)
    before, began = len(team.model.requests), time.monotonic()
    team.terminal("kill-server")
    team.mind.holds = False
    answer = team.team.ask(*UP, "--socket", team.terminal.socket)
    wait_until(lambda: task_of(team.team, task.id).status == "done", "the task is done", 2 * PATIENCE_SECONDS)
    took = time.monotonic() - began
    agents = {item["agent_id"]: item for item in answer["agents"]}
    assert agents["worker-a"]["continued"], agents["worker-a"]
    since = [request for request in team.model.requests[before:] if request.reply is not None]
    calls = [request.reply.tool for request in since if isinstance(request.reply, Call)]
    ours = [name for name in calls if "get_" in name or "report_" in name or "send_" in name]
    assert "get_next_action" in ours[0], ours
    told = sum(request.news.count(BRIEFED) for request in since)
    assert told in {1, team.mind.host.answers_shown}, f"briefed {told} times"  # by a hook, or in an answer
    assert len({item.host_session for item in team.team.services.sessions.all(ended=True)}) == 1
    mail = wait_until(lambda: team.team.mailbox("admin"), "the report has come", PATIENCE_SECONDS)
    assert [message.message_type for message in mail] == ["task_complete"], "and no introduction"
    return Measured(took * 1000, "tmux killed → task done in the same conversation, briefed once")


def goes_on_after_it_was_taken_down(team: LastingTeam) -> Measured:
    """`down` leaves no process of it, and `up` continues its conversation."""
    task = at_work(team)
    team.at_rest()
    began = time.monotonic()
    team.team.ask("down")
    wait_until(lambda: not team.hosts_left(), "its host has ended")
    took = time.monotonic() - began
    team.mind.holds = False
    answer = team.team.ask(*UP, "--socket", team.terminal.socket)
    wait_until(lambda: task_of(team.team, task.id).status == "done", "the task is done", 2 * PATIENCE_SECONDS)
    agents = {item["agent_id"]: item for item in answer["agents"]}
    assert agents["worker-a"]["continued"], agents["worker-a"]
    return Measured(took * 1000, "`down` → no process of it is left; then `up`, the task done in its conversation")


LASTING_SCENARIOS = (
    LastingScenario("down and up with a task in hand: nothing is left, goes on", goes_on_after_it_was_taken_down),
    LastingScenario("tmux dies with a task in hand: goes on, briefed once", goes_on_after_a_crash),
    LastingScenario(
        "compacted with a task in hand: goes on, briefed once", goes_on_after_a_compaction, only=frozenset({"claude"})
    ),
    LastingScenario("stays: three tasks, then three without a supervisor", works_on_and_on),
    LastingScenario("nobody types: told once more after a turn without us", is_told_once_more, silent=1),
    LastingScenario("on demand: three tasks, a window for each", is_opened_for_each_task, on_demand=True),
)
