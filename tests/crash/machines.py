"""Kill points where machines share a session: between the hub's answer, the file, the outbox and the position.

The hub and the relays keep running, so the tree cannot be copied for each moment: every moment has its own entity in
one session of two machines, and all are checked once both machines are idle.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from multi_agent_mcp.bootstrap import relay
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.task import UNASSIGNED
from multi_agent_mcp.errors import AlreadyExists
from multi_agent_mcp.hub.share_directory import RelayClient
from multi_agent_mcp.wiring import Services
from tests.crash.invariants import ailing, settle
from tests.crash.killer import Killer
from tests.crash.operations.judging import of_one_piece
from tests.crash.stage import Run, context, forked
from tests.hub.support import DESK, HOMES, LAPTOP, SESSION, Machine, Machines, eventually, machines
from tests.partition.verdict import differing, wait_until_settled

RELAY_MOMENTS_MAX = 1000
FREE = {"worker-a": LAPTOP, "worker-d": DESK}
"""The workers that get what is for whoever is free, by machine."""


@dataclass(frozen=True)
class SharedOperation:
    """`act` is killed at every moment in a process of `machine`, each time with another item made by `prepare`; `parts`
    counts the existing parts of its effect, on any machine."""

    name: str
    machine: str
    act: Callable[[Services, str], object]
    parts: Callable[[Services, str], Mapping[str, int]]
    prepare: Callable[[Services, Sequence[str]], Sequence[str]] = lambda _, names: names
    is_repeated: bool = False
    """Whether an unacknowledged call is repeated: part of its effect may remain from the first attempt."""


@contextmanager
def session() -> Iterator[Machines]:
    """The desk and the laptop, with a worker on each that is free. No wire is between them: its threads would be
    forked."""
    with tempfile.TemporaryDirectory() as base, machines(Path(base), LAPTOP, delay=None) as made, ExitStack() as stack:
        made[DESK].services.agents.add(Agent(id="worker-d", parent_id="admin"))
        for agent_id, machine in FREE.items():
            eventually(lambda machine=machine: "worker-d" in made[machine].services.agents.all())  # type: ignore[misc]
            stack.callback(made[machine].services.sessions.open(agent_id, "task").end)
        yield made


@dataclass
class Trial:
    """One operation: the item of each moment, and the result of each run; the first run was not disturbed."""

    operation: SharedOperation
    names: list[str]
    told: list[str]
    runs: list[Run] = field(default_factory=list)

    @property
    def kinds(self) -> Counter[str]:
        """The kinds of calls at which it may be killed."""
        return Counter(moment.split()[1] for moment in self.runs[0].moments if moment.startswith("before"))

    def wrong_at(self, machine: Machine) -> Iterator[str]:
        services = machine.services
        for name, told, run in zip(self.names, self.told, self.runs, strict=True):
            parts = self.operation.parts(services, told)
            found = of_one_piece(parts, acknowledged=bool(run.answers) or self.operation.is_repeated)
            yield from (f"{name}: {machine.name}: {line}" for line in [*filter(None, [run.error]), *found])


def tried(
    made: Machines, operations: Sequence[SharedOperation], choose: Callable[[list[str]], list[int]]
) -> Iterator[tuple[SharedOperation, Counter[str], int, list[str]]]:
    """Kills all of these operations at their moments, and looks when all are through: for each the kinds of calls, how
    many moments there were, the complaints."""
    trials = [Trial(operation, ["undisturbed"], []) for operation in operations]
    prepare(made, trials)
    for trial in trials:
        trial.runs.append(live(made, trial.operation, trial.told[0], None))
    for trial in trials:
        moments = trial.runs[0].moments
        trial.names += [f"{number} {moments[number]}" for number in choose(moments)]
    prepare(made, trials)
    for trial in trials:
        for name, told in zip(trial.names[1:], trial.told[1:], strict=True):
            trial.runs.append(live(made, trial.operation, told, int(name.split()[0])))
        if trial.operation.is_repeated:
            repeat(made, trial)
    at_rest(made)
    everywhere = found_wrong(made)
    for trial in trials:
        wrong = [line for machine in made.members.values() for line in trial.wrong_at(machine)]
        yield trial.operation, trial.kinds, len(trial.names) - 1, wrong + everywhere
        everywhere = []


def prepare(made: Machines, trials: Sequence[Trial]) -> None:
    """Makes the items for the named moments, and waits until both machines know them."""
    services = made[DESK].services
    for trial in trials:
        names = [f"{trial.operation.name} {name}" for name in trial.names[len(trial.told) :]]
        trial.told += trial.operation.prepare(services, names)
    at_rest(made)


def repeat(made: Machines, trial: Trial) -> None:
    """Repeats the unacknowledged calls."""
    services = made[trial.operation.machine].services
    for told, run in zip(trial.told, trial.runs, strict=True):
        if not run.answers:
            with suppress(AlreadyExists):
                trial.operation.act(services, told)


def live(made: Machines, operation: SharedOperation, told: str, at: int | None) -> Run:
    """Lets a process do the operation and die at that moment (None: live)."""
    root = made[operation.machine].root

    def work(channel: int) -> None:
        services, write, killer = context(root), os.write, Killer(at)
        link = services.workspace.authority
        assert isinstance(link, RelayClient)
        link.ask = killer.around("asking the hub", link.ask)  # type: ignore[method-assign]
        killer.arm()
        operation.act(services, told)
        write(channel, json.dumps({"moments": killer.moments}).encode() + b"\n")

    lines, status, error = forked(work)
    moments = [moment for line in lines for moment in line["moments"]]
    return Run(os.WIFSIGNALED(status), lines, moments, error)


def relay_tried(made: Machines, step: int) -> tuple[int, list[str]]:
    """Kills the laptop's relay at one change of the disk after the other while it brings and gets what was written
    meanwhile, each time something new, until one lives through all of it. Returns how many were tried, the
    complaints."""
    desk, laptop = made[DESK], made[LAPTOP]
    laptop.sharing.stop_relay()
    for at in range(0, RELAY_MOMENTS_MAX, step):
        say(desk, "admin", "worker-a", f"to the laptop {at}")
        say(laptop, "worker-a", "admin", f"from the laptop {at}")
        offer(desk, f"for whoever is free {at}")
        if relay_lived(laptop, at, lambda at=at: desk.has("admin", f"from the laptop {at}")):  # type: ignore[misc]
            break
    laptop.start()
    at_rest(made)
    wrong = [] if at else ["no relay was killed"]
    for machine in made.members.values():
        for receiver, start in (("worker-a", "to the laptop"), ("admin", "from the laptop")):
            found = Counter(item.content for item in machine.services.workspace.mailbox(receiver).history())
            expected = {f"{start} {number}" for number in range(0, at + 1, step)}
            wrong += [f"{machine.name}: {words}: there {found[words]} times" for words in expected if found[words] != 1]
        taken = Counter(each.question for each in machine.services.workspace.questions.all() if each.to_id in FREE)
        offered = {f"for whoever is free {number}" for number in range(0, at + 1, step)}
        wrong += [f"{machine.name}: {words}: taken {taken[words]} times" for words in offered if taken[words] != 1]
    return at // step + 1, [*wrong, *found_wrong(made)]


def say(machine: Machine, sender: str, receiver: str, words: str) -> None:
    from multi_agent_mcp.services.validation import Draft

    services = machine.services
    services.messages.send(services.agents.get(sender), Draft(content=words, receiver_id=receiver))


def offer(machine: Machine, words: str) -> None:
    from multi_agent_mcp.services.questions import Asking

    services = machine.services
    services.questions.ask(services.agents.get("admin"), Asking(question=words, to_id="@any"), None)


def relay_lived(machine: Machine, at: int, has_brought: Callable[[], bool]) -> bool:
    """Whether a relay that is to die at that moment has brought everything before; it is dead when this returns."""
    pid = os.fork()
    if pid == 0:
        try:
            log = os.open(machine.path / ".share" / "relay.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            Killer(at).arm()
            relay(machine.root, SESSION).work()
        finally:
            os._exit(1)  # it must not run its parent's cleanup
    while True:
        ended, _ = os.waitpid(pid, os.WNOHANG)
        if ended:
            return False
        state = machine.sharing.status()
        if state.get("synchronised") and not state["pending"] and has_brought():
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return True
        time.sleep(0.02)


def at_rest(made: Machines) -> None:
    """Lets the next server of every agent recover where the agent is at home, and waits until all machines are in
    sync."""
    for name, machine in made.members.items():
        settle(machine.services, [agent_id for agent_id in HOMES[name] if agent_id in machine.services.agents.all()])
        machine.services.offers.hand_out()
    wait_until_settled(made)
    for machine in made.members.values():  # the relay notes for others what it knows itself
        eventually(lambda machine=machine: machine.services.workspace.relay_state.read().get("connected"))  # type: ignore[misc]


def found_wrong(made: Machines) -> list[str]:
    """Differences between the machines, and on each what is not where it belongs, and the problems that `doctor`
    reports."""
    problems = [
        f"{name}: {line}"
        for name, machine in made.members.items()
        for line in [*misplaced(machine.services), *ailing(machine.services)]
    ]
    return [*differing(made), *problems]


def misplaced(services: Services) -> Iterator[str]:
    """Yields the tasks that are not in the directory of whoever has them, or in its archive once they are over."""
    tasks = services.workspace.tasks
    for task in tasks.all():
        located = tasks.locate(task.id)
        assert located is not None
        home = tasks.directory(task.assignee_id or UNASSIGNED).path
        place = located.directory.path
        if (place.parent.parent if task.final else place) != home:
            yield f"{task.id} ({task.status}) is in {place}"
