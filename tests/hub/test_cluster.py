"""A hub of three servers, which keep every value three times (R3): one of them may die at any time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import HubUnreachable, InvalidArguments
from multi_agent_mcp.hub import administration
from multi_agent_mcp.hub.sharing import Sharing, join
from multi_agent_mcp.services.team.setup import TeamFile, add_missing, create_session
from tests.hub.cluster import Cluster, three_servers
from tests.hub.support import DESK, LAPTOP, SESSION, Machine, eventually
from tests.hub.test_failures import new_task
from tests.hub.test_looking import command
from tests.hub.test_machines import replica, send
from tests.hub.test_security import Asker, arrived_elsewhere, questions

AGENTS = (Agent(id="owner", role="owner", type="human"), Agent(id="admin", role="admin", parent_id="owner"))
MORE = 8
"""The number of changes made after each disturbance."""
PAUSE_SECONDS = 0.05
"""After each change and each vain try: the writers would take the processor from the servers that elect a leader."""


@dataclass
class Pair:
    """Two machines of one team."""

    desk: Machine
    laptop: Machine
    cluster: Cluster

    @property
    def leader(self) -> int:
        return self.cluster.leader(f"MAM_{self.desk.sharing.membership.uuid}")

    def same(self, task_id: str) -> bool:
        return replica(self.desk, task_id) == replica(self.laptop, task_id)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    base = tmp_path_factory.mktemp("three")
    desk, laptop = Machine(DESK, base / DESK), Machine(LAPTOP, base / LAPTOP)
    create_session(desk.root, SESSION, TeamFile(AGENTS), "en")
    add_missing(desk.services.agents, TeamFile(AGENTS))
    with three_servers(base / "cluster") as cluster:
        began = partial(desk.sharing.begin_at, DESK, cluster.urls, cluster.seed, replicas=3)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(administration, "ADMINISTER_SECONDS", 1)  # before they know each other they do not answer
            eventually(lambda: succeeded(began), "the servers did not find each other")
        cluster.let(desk.sharing.hub_account, desk.sharing.hub_exports)
        desk.start()
        join(desk.sharing.invite(), laptop.root, LAPTOP, adopt=False)
        cluster.let(laptop.sharing.hub_account)
        laptop.start()
        laptop.services.agents.add(Agent(id="worker-a", parent_id="admin"))
        eventually(lambda: "worker-a" in desk.services.agents.all())
        yield Pair(desk, laptop, cluster)
        for machine in (desk, laptop):
            machine.sharing.stop_relay()


def succeeded(act: Callable[[], object]) -> bool:
    with suppress(HubUnreachable):
        act()
        return True
    return False


class Done(Exception):
    """A change that was stored although its answer was lost."""


@dataclass
class Writer(threading.Thread):
    """Changes one task on its machine, again and again; each change has a name and is tried until it is there. Before
    each it sends a letter of that name."""

    machine: Machine
    agent_id: str
    receiver_id: str
    task_id: str
    done: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        while not self.stop.is_set():
            name = f"{self.agent_id} {len(self.done)}"
            send(self.machine, self.agent_id, self.receiver_id, name)
            while not self._is_made(name):
                self.stop.wait(PAUSE_SECONDS)
            self.done.append(name)
            self.stop.wait(PAUSE_SECONDS)

    def _is_made(self, name: str) -> bool:
        def change(task: Task) -> Task:
            made = task.extra.get("made", [])
            if name in made:
                raise Done
            return replace(task, extra={**task.extra, "made": [*made, name]})

        with suppress(HubUnreachable):
            with suppress(Done):
                self.machine.services.workspace.tasks.update(self.task_id, change)
            return True
        return False

    def goes_on(self) -> None:
        """Waits until it has done some more."""
        before = len(self.done)
        eventually(lambda: len(self.done) >= before + MORE, f"{self.agent_id} is stuck")


def test_nothing_is_lost_or_there_twice_when_the_leader_is_killed(pair: Pair) -> None:
    task_id = new_task(pair.desk, "admin", "shared")
    eventually(lambda: pair.laptop.services.workspace.tasks.find(task_id))
    writers = (
        Writer(pair.desk, "admin", "worker-a", task_id),
        Writer(pair.laptop, "worker-a", "admin", task_id),
    )
    for writer in writers:
        writer.start()
    try:
        leader = pair.leader
        for disturb in (pair.cluster.kill, pair.cluster.start):
            disturb(leader)
            for writer in writers:
                writer.goes_on()
    finally:
        for writer in writers:
            writer.stop.set()
        for writer in writers:
            writer.join()
    eventually(lambda: pair.same(task_id))
    made = pair.desk.services.workspace.tasks.get(task_id).extra["made"]
    assert sorted(made) == sorted(name for writer in writers for name in writer.done)
    for machine in (pair.desk, pair.laptop):
        for writer in writers:
            eventually(lambda machine=machine, writer=writer: letters(machine, writer) >= len(writer.done))  # type: ignore[misc]
            assert letters(machine, writer) == len(writer.done)
        assert not machine.sharing.status()["replaced"]


def letters(machine: Machine, writer: Writer) -> int:
    """The number of the writer's letters on a machine, each under its own name."""
    history = machine.services.workspace.mailbox(writer.receiver_id).history()
    return len([item for item in history if item.sender_id == writer.agent_id])


def test_a_server_that_tells_of_the_past_is_not_taken_for_an_older_hub(pair: Pair) -> None:
    """The former leader does so when it resumes. Here the hub does not yet have something that a machine has received
    from it."""
    task_id = new_task(pair.desk, "admin", "later")
    eventually(lambda: pair.laptop.services.workspace.tasks.find(task_id))
    pair.laptop.sharing.stop_relay()
    position = pair.laptop.sharing.share.record("position")
    known, shared = position.read(), pair.laptop.sharing.membership.names.stream
    places = {**known["places"], shared: known["places"][shared] + 3}
    position.write({**known, "places": places, "witnesses": {}})
    log = pair.laptop.path / ".share" / "relay.log"
    said = log.read_text().count("does not answer")
    pair.laptop.sharing.start_relay()
    eventually(lambda: log.read_text().count("does not answer") > said)
    for _ in range(4):
        task_id = new_task(pair.desk, "admin", "now")
    eventually(lambda: pair.laptop.services.workspace.tasks.find(task_id))
    assert [machine.sharing.status()["replaced"] for machine in (pair.desk, pair.laptop)] == [False, False]


def test_a_stream_without_a_leader_stops_only_what_its_machine_writes(pair: Pair) -> None:
    """That of the laptop's mail is on one server, which dies: the desk's mail and all shared changes go on, also what
    is noticed as a file and sent after a look whether anybody else has it."""
    desk, laptop, cluster = pair.desk, pair.laptop, pair.cluster
    names = laptop.sharing.membership.names
    stream = names.stream_of(names.own(LAPTOP, "msg", "admin"))
    assert stream != (there := desk.sharing.membership.names).stream_of(there.own(DESK, "msg", "admin"))
    send(laptop, "worker-a", "admin", "before")
    eventually(lambda: desk.has("admin", "before"))
    holder = cluster.keep_on_one(stream)
    cluster.kill(holder)
    try:
        pair.leader  # of what all share: another one is elected  # noqa: B018
        eventually(lambda: send(laptop, "worker-a", "admin", "waits")[0] == "queued")
        task_id = changed_in_spite(desk)
        eventually(lambda: laptop.services.workspace.tasks.find(task_id))
        eventually(lambda: send(desk, "admin", "worker-a", "goes on")[0] == "stored")
        eventually(lambda: laptop.has("worker-a", "goes on"))
        (desk.path / "ipc" / "worker-a" / "by hand.md").write_text("---\nsender_id: admin\n---\n\nby hand")
        eventually(lambda: laptop.has("worker-a", "by hand"))
        assert not desk.has("admin", "waits")
    finally:
        cluster.start(holder)
    eventually(lambda: desk.has("admin", "waits"))
    found = [item.content for item in desk.services.workspace.mailbox("admin").history()]
    assert found.count("waits") == sum(
        item.content == "waits" for item in laptop.services.workspace.mailbox("admin").history()
    )


def changed_in_spite(machine: Machine) -> str:
    """Adds a task as soon as the shared stream has a leader; returns its id."""
    made: list[str] = []
    eventually(lambda: succeeded(lambda: made.append(new_task(machine, "admin", "goes on"))))
    return made[-1]


def test_doctor_says_how_a_hub_of_ones_own_must_sync(pair: Pair) -> None:
    for machine in (pair.desk, pair.laptop):
        eventually(partial(says_how_to_sync, machine))


def says_how_to_sync(machine: Machine) -> bool:
    return "sync_interval" in command(machine, "doctor").stdout


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("nats://192.0.2.1:4222", "hub_without_tls"),
        ("nats://hub.example", "hub_without_tls"),
        ("http://127.0.0.1", "bad_hub"),
        ("127.0.0.1:4222", "bad_hub"),
        ("nats://[", "bad_hub"),
        ("nats://127.0.0.1:x", "bad_hub"),
        ("", "bad_hub"),
    ],
)
def test_a_hub_is_a_url_and_has_tls_unless_it_is_here(tmp_path: Path, url: str, key: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        Sharing(tmp_path / SESSION).begin_at(DESK, ("nats://127.0.0.1:4222", url), "seed", 3)
    assert refused.value.key == f"error.{key}"
    assert not (tmp_path / SESSION).exists()


def test_no_reply_and_no_header_leads_anywhere_but_back_to_the_one_who_asked(pair: Pair) -> None:
    """As with the hub that `share` makes, with the accounts that it prints."""
    names, share = pair.laptop.sharing.membership.names, pair.laptop.sharing.share
    asker = Asker(LAPTOP, share.seed(), questions(names)[0])
    found = asyncio.run(arrived_elsewhere(pair.cluster.urls, None, pair.cluster.seed, names, asker))
    assert found == {"another.app"}
