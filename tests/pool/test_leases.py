"""Leases: commands that wait for their turn (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.main import app
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.environment import ENVIRON
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.pool.leases import circle_of
from multi_agent_mcp.services.attention import Item
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.wiring import Services
from tests.pool.conftest import SeatOf

HOLDS = "import os, sys; os.write(1, b'.'); sys.stdin.read()"


def asked(services: Services, name: str = "build", slots: int = 1, agent: str | None = None) -> int:
    """A process that has a place in the order, and waits for a signal; returns its id."""
    ready, telling = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.environ.update({} if agent is None else {"MULTI_AGENT_MCP_AGENT": agent})
        other = open_session(services.root, "demo", notifier=Recorder())
        held = other.leases.ask(name, slots, ["sleep"])
        if other.leases._is_next(held):
            other.leases.wait(held)
        os.write(telling, b".")
        signal.pause()
    os.close(telling)
    os.read(ready, 1)
    os.close(ready)
    return pid


def killed(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_one_after_the_other_has_it_in_the_order_in_which_they_came_also_after_kills(services: Services) -> None:
    pids = [asked(services), asked(services)]
    mine = services.leases.ask("build", 1, ["true"])
    other = services.leases.ask("port", 1, ["true"])
    assert [one.pid for one in services.leases.all()] == [*pids, os.getpid(), os.getpid()]
    assert services.leases._is_next(other)
    killed(pids[1])
    assert not services.leases._is_next(mine)
    killed(pids[0])
    assert services.leases.wait(mine).held_at
    assert [one.name for one in services.leases.all()] == ["build", "port"]
    services.leases.end(mine)
    services.leases.end(other)
    assert services.leases.all() == []


def test_as_many_have_it_as_there_are_slots(services: Services) -> None:
    pids = [asked(services, slots=2), asked(services, slots=2)]
    third = services.leases.ask("build", 2, ["true"])
    assert [one.state for one in services.leases.all()] == ["held", "held", "waits"]
    assert not services.leases._is_next(third)
    killed(pids[0])
    assert services.leases._is_next(third)
    killed(pids[1])


def test_a_command_keeps_its_lease_if_only_ours_is_killed(services: Services) -> None:
    pid = asked(services)
    (held,) = services.leases.all()
    child = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    services.leases.started(held, child.pid)
    killed(pid)
    assert [one.ticket for one in services.leases.all()] == [held.ticket]
    child.communicate()
    assert services.leases.all() == []


def test_people_see_which_leases_are_waited_for_and_end_a_command(services: Services, owner: Agent) -> None:
    def items() -> list[Item]:
        return [item for item in services.attention.of(owner) if item.kind == "lease"]

    pids = [asked(services), asked(services, "port")]
    assert items() == []
    pids.append(asked(services))
    (item,) = items()
    assert (item.id, item.since is not None, "build" in item.text) == (str(pids[0]), True, True)
    run, root = CliRunner(), ["--root", str(services.root)]
    assert run.invoke(app, ["leases", "--end", str(pids[0]), *root]).exit_code == 0
    assert os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1]) == -signal.SIGTERM
    assert [one.pid for one in services.leases.all()] == pids[1:]
    for no_such in (str(os.getpid()), "x", "1"):
        refused = run.invoke(app, ["leases", "--end", no_such, *root])
        assert (refused.exit_code, "leases" in refused.output) == (1, True)
    for pid in pids[1:]:
        killed(pid)


def test_a_circle_through_leases_and_questions_is_named_at_once(
    services: Services, seat: SeatOf, admin: Agent, owner: Agent
) -> None:
    services.task_creation.create(admin, [NewTask(title="work", assignee_id="worker-a")])
    seat("worker-a").call("get_notifications"), seat("worker-a").call("get_next_action")
    seat("worker-a").call("ask", question="which?", to_id="worker-b", park=True)
    held = asked(services, "gpu", agent="worker-a")
    waits = asked(services, "gpu", agent="worker-b")
    (circle,) = services.circles.found()
    assert sorted(circle.agent_ids) == ["worker-a", "worker-b"]
    services.circles.look()
    services.circles.look()
    for agent_id in ("worker-a", "worker-b", "admin"):
        told = [one for one in services.derived_notices.waiting(agent_id) if one.action == "circle_suspected"]
        assert ["gpu" in str(one.reason) for one in told] == [True], agent_id
    (question,) = services.workspace.questions.open()
    (item,) = [item for item in services.attention.of(owner) if item.kind == "circle"]
    assert item.command == f"multi-agent-mcp answer {question.id}"
    for pid in (held, waits):
        killed(pid)
    assert services.circles.found() == []


def test_a_circle_through_tasks_is_named_and_what_can_still_be_begun_makes_none(
    services: Services, seat: SeatOf, admin: Agent
) -> None:
    (first,) = services.task_creation.create(admin, [NewTask(title="first", assignee_id="worker-a")])
    seat("worker-a").call("get_notifications"), seat("worker-a").call("get_next_action")
    services.task_creation.create(admin, [NewTask(title="after", assignee_id="worker-b", dependencies=[first.id])])
    (other,) = services.task_creation.create(admin, [NewTask(title="other", assignee_id="worker-b")])
    seat("worker-a").call("ask", question="which?", to_id="worker-b", park=True)
    assert services.circles.found() == []
    services.task_changes.set_status(admin, other.id, "cancelled")
    told = [one for one in services.derived_notices.waiting("worker-b") if one.action == "circle_suspected"]
    assert [first.id in str(one.reason) for one in told] == [True]


def test_a_circle_of_waiting_is_refused_at_once(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = services.leases.wait(services.leases.ask("gpu", 1, ["a"]))
    build = services.leases.wait(services.leases.ask("build", 1, ["b"]))
    monkeypatch.setitem(ENVIRON, "MULTI_AGENT_MCP_LEASES", services.leases.held_by(gpu))
    services.leases.ask("build", 1, ["within gpu"])
    monkeypatch.setitem(ENVIRON, "MULTI_AGENT_MCP_LEASES", services.leases.held_by(build))
    with pytest.raises(InvalidArguments, match="build → gpu → build"):
        services.leases.ask("gpu", 1, ["within build"])
    with pytest.raises(InvalidArguments, match="build → build"):
        services.leases.ask("build", 1, ["again"])
    assert circle_of("port", ("build",), services.leases.all()) == []


def test_the_command_runs_with_its_exit_code_and_is_listed(services: Services, tmp_path: Path) -> None:
    run, root = CliRunner(), ["--root", str(services.root)]
    ends = [sys.executable, "-c", "import os, sys; sys.exit(3 if os.environ['MULTI_AGENT_MCP_LEASES'] == 'gpu' else 4)"]
    assert run.invoke(app, ["lease", "gpu", "--slots", "2", *root, "--", *ends]).exit_code == 3
    assert run.invoke(app, ["lease", "a b", *root, "--", "true"]).exit_code == 1
    pid = asked(services)
    listed = run.invoke(app, ["leases", *root])
    assert (listed.exit_code, "build" in listed.output) == (0, True), listed.output
    assert [
        row[0] for row in services.contributions.call(".pool.commands:watched", services.clock(), given=services).rows
    ]
    killed(pid)
    (services.path / ".leases" / "x.json").write_text("{")
    assert "build" not in run.invoke(app, ["leases", *root]).output


def test_doctor_finds_leases_of_the_dead_and_what_nobody_can_take(services: Services, admin: Agent) -> None:
    def found(check: str) -> list[str]:
        return [one.subject for one in services.doctor().examine() if one.check == check]

    assert (found("leases"), found("pool")) == ([], [])
    pid = asked(services)
    (name,) = (path.name for path in (services.path / ".leases").iterdir())
    assert found("leases") == []
    killed(pid)
    (services.path / ".leases" / "x.json").write_text("{")
    assert found("leases") == [name, "x.json"]
    services.doctor().repair(services.doctor().examine())
    assert found("leases") == []
    new = [NewTask(title="x", needs=["go"]), NewTask(title="y"), NewTask(title="z", assignee_id="@worker")]
    skilled, _, offered = services.task_creation.create(admin, new)
    assert {*found("pool")} == {offered.id, skilled.id}
    services.agents.registry.update("worker-b", skills=["Go"])
    assert found("pool") == [offered.id]
    for agent_id in ("worker-a", "worker-b"):
        services.agents.remove(agent_id)
    assert {*found("pool")} == {offered.id, skilled.id}


def test_doctor_says_what_waits_while_nobody_who_could_have_it_is_awake_or_will_be_started(
    services: Services, admin: Agent
) -> None:
    def repairs() -> list[str]:
        return [one.repair for one in services.doctor().examine() if one.check == "pool"]

    services.messages.send(admin, Draft(content="who?", receiver_id="@worker"))
    assert repairs() == [""]  # nobody has a command
    for agent_id in ("worker-b", "worker-a"):
        services.agents.change(agent_id, command="cat")
    assert repairs() == ["multi-agent-mcp up worker-a"]
    services.supervision.begin()
    assert repairs() == []
    for agent_id in ("worker-a", "worker-b"):
        services.missing_sessions.put_down(agent_id)
    assert repairs() == ["multi-agent-mcp up worker-a"]
    services.sessions.open("worker-a", "task")
    assert repairs() == []


def test_doctor_says_that_more_agents_are_at_work_than_may_be(pooled: Services, seat: SeatOf) -> None:
    path = pooled.path / "session.yaml"
    path.write_text(f"{path.read_text(encoding='utf-8')}\nat_most: 1\n", encoding="utf-8")
    seat("worker-a")
    services = open_session(pooled.root, "demo", notifier=Recorder())
    assert [one for one in services.doctor().examine() if one.check == "pool"] == []
    seat("worker-b")
    (found,) = (one for one in services.doctor().examine() if one.check == "pool")
    assert (found.level, "worker-a, worker-b" in found.finding) == ("note", True)


def test_a_command_that_cannot_be_run_ends_as_in_a_shell(services: Services, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    run, root = CliRunner(), ["--root", str(services.root)]
    services.sessions.open("worker-a", "task")
    for words in (["lease", "gpu"], ["when", "worker-a", "idle"]):
        for command, code in ((str(tmp_path / "nothing"), 127), ("no-such-program", 127), (str(plain), 126)):
            ended = run.invoke(app, [*words, *root, "--", command])
            assert (ended.exit_code, command in ended.output) == (code, True), ended.output
    assert services.leases.all() == []
