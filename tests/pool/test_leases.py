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
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.environment import ENVIRON
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.pool.leases import circle_of
from multi_agent_mcp.wiring import Services

HOLDS = "import os, sys; os.write(1, b'.'); sys.stdin.read()"


def asked(services: Services, name: str = "build", slots: int = 1) -> int:
    """A process that has a place in the order, and waits for a signal; returns its id."""
    ready, telling = os.pipe()
    pid = os.fork()
    if pid == 0:
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
    assert run.invoke(app, ["lease", "gpu", *root, "--", str(tmp_path / "nothing")]).exit_code == 1
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
