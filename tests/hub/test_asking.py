"""Questions of hosts in the panes of another machine: the Owner is told, and they are answered there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.domain.dialog import Asked, Choice, Dialog
from multi_agent_mcp.domain.times import format_time, now
from multi_agent_mcp.doorbell.tmux.client import pane_place
from multi_agent_mcp.services.attention import Item, PanesSeen
from multi_agent_mcp.services.overview.pane_looks import LOOK_EVERY
from multi_agent_mcp.windows.supervisor import Supervisor
from multi_agent_mcp.windows.window_registry import TeamWindows
from tests.conformance.stage import Stage
from tests.doorbell.tmux.asker import asker_command
from tests.hub.support import DESK, LAPTOP, Machine, Machines, eventually, machines
from tests.hub.test_looking import command


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Machines]:
    with machines(tmp_path, LAPTOP) as made:
        yield made


def asked(machine: Machine) -> list[Item]:
    """The attention items about questions, without reading the local panes."""
    services = machine.services
    items = services.attention.of(services.agents.owner(), panes=PanesSeen())
    return [item for item in items if item.kind in ("dialog", "login")]


def look(
    machine: Machine, agent_id: str, state: str | None, dialog: Dialog | None = None, *, after: timedelta = LOOK_EVERY
) -> None:
    """Records a look of the machine's supervisor, `after` its previous one."""
    services = machine.services
    services.agents.registry.update("worker-a", pane_id="%7", socket_path="/nowhere/s", host="claude")
    record = services.workspace.pane_looks
    record.write({**(record.read() or {}), "at": format_time(now() - after)})
    services.pane_looks.refresh(
        lambda agent: ("claude", state) if state is not None and agent.id == agent_id else None, lambda _: dialog
    )


@pytest.mark.tmux
def test_what_is_run_for_an_agent_of_another_machine_goes_over_the_persons_own_ssh(
    desk: Machine, laptop: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    (tmp_path / "ssh").write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >> {said}\nexit 7\n")
    (tmp_path / "ssh").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for host in ("-oProxyCommand=evil", "host;evil", "a b", "$(evil)"):
        assert "bad" not in (refused := command(desk, "machines", "set", LAPTOP, f"--ssh={host}")).stdout
        assert (refused.returncode, "--ssh takes" in refused.stderr) == (1, True), host
    assert command(desk, "machines", "set", DESK, "--ssh", "x").returncode == 1
    assert command(desk, "machines", "set", LAPTOP, "--ssh", "me@laptop", "--there", "/srv/a b").returncode == 0
    assert command(desk, "answer", "worker-a", "1", "--question", "q1").returncode == 7
    remote = "multi-agent-mcp answer --question q1 --session demo --root '/srv/a b' -- worker-a 1"
    assert said.read_text().splitlines() == ["--", "me@laptop", remote]
    said.unlink()
    assert command(desk, "attach", "worker-a").returncode == 7
    assert said.read_text().splitlines()[:3] == ["-t", "--", "me@laptop"]
    assert not (laptop.path / ".share" / "ssh.json").exists()
    (desk.path / ".share" / "ssh.json").write_text(json.dumps({LAPTOP: {"host": "-oProxyCommand=evil"}}))
    assert "The home of agent 'worker-a' is the machine laptop" in command(desk, "attach", "worker-a").stderr
    assert command(desk, "machines", "set", LAPTOP, "--ssh", "").returncode == 0
    assert "The home of agent 'worker-a' is the machine laptop" in command(desk, "answer", "worker-a", "1").stderr


def test_a_question_in_a_pane_of_another_machine_is_listed_and_answered_there(two: Machines, tmp_path: Path) -> None:
    desk, laptop = two[DESK], two[LAPTOP]
    services = laptop.services
    with Stage(0) as stage:
        size = ("-x", "100", "-y", "40")
        pane = stage.tmux("new-session", "-d", *size, "-P", "-F", "#{pane_id}", asker_command(tmp_path / "asker.log"))
        services.agents.change("worker-a", host="claude", **(pane_place(stage.socket, pane) or {}))
        eventually(services.panes.dialogs)
        Supervisor(TeamWindows(services, stage.socket)).look_after_agents()
        eventually(lambda: asked(desk))
        (item,) = asked(desk)
        assert (item.kind, item.agent_id, item.machine, item.dialog) == ("dialog", "worker-a", LAPTOP, None)
        assert (item.text, item.command) == ("asks for permission", "multi-agent-mcp answer worker-a")
        assert "on laptop: multi-agent-mcp answer worker-a" in command(desk, "attention").stdout
        assert "worker-a@laptop" in command(desk, "watch", "--once").stdout
        refused = command(desk, "answer", "worker-a", "1", "--question", "0123456789ab")
        assert (refused.returncode, "laptop" in refused.stderr) == (1, True)
        assert command(laptop, "answer", "worker-a").stdout.startswith("worker-a asks for permission")
    look(laptop, "worker-a", "idle")
    eventually(lambda: not asked(desk))


def test_it_is_known_since_when_and_forgotten_while_its_machine_is_away(two: Machines) -> None:
    desk, laptop = two[DESK], two[LAPTOP]
    before = now()
    look(laptop, "worker-a", "dialog", Dialog("trust", "this folder?", (Choice("1", "Yes"),)))
    since = now()
    look(laptop, "worker-a", "dialog", Dialog("trust", "this folder?", (Choice("1", "Yes"),)))
    eventually(lambda: asked(desk))
    (item,) = asked(desk)
    assert item.since is not None
    assert before <= item.since <= since
    look(laptop, "worker-a", "login")
    eventually(lambda: [item.kind for item in asked(desk)] == ["login"])
    assert asked(desk)[0].command == "multi-agent-mcp attention"
    laptop.sharing.stop_relay()
    eventually(lambda: not asked(desk))


def test_a_question_is_forgotten_once_nobody_looks_at_its_pane_any_more(two: Machines) -> None:
    desk, laptop = two[DESK], two[LAPTOP]
    look(laptop, "worker-a", "dialog")
    eventually(lambda: asked(desk))
    record = laptop.services.workspace.pane_looks
    record.write({**record.read(), "at": format_time(now() - 3 * LOOK_EVERY)})  # the supervisor was killed
    eventually(lambda: not asked(desk))
    again = now()
    look(laptop, "worker-a", "dialog", after=timedelta(hours=1))
    eventually(lambda: asked(desk))
    assert [item.since is not None and item.since >= again for item in asked(desk)] == [True]
    closed = command(laptop, "down")
    assert (closed.returncode, "relay --stop" in closed.stdout) == (0, True)
    eventually(lambda: not asked(desk))


def test_no_machine_speaks_of_another_ones_agents(two: Machines) -> None:
    desk, laptop = two[DESK], two[LAPTOP]
    look(laptop, "worker-a", "dialog")
    record = laptop.services.workspace.pane_looks
    (mine,) = record.read()["asked"]
    record.write({**record.read(), "asked": [mine, {**mine, "agent_id": "admin"}, "nonsense", {"agent_id": "x"}]})
    eventually(lambda: [item.agent_id for item in asked(desk)] == ["worker-a"])
    heard = json.loads((desk.path / ".share" / "state.json").read_text())["machines"][LAPTOP]["asking"]
    assert {Asked.parse(item).agent_id for item in heard} == {"worker-a", "admin"}
