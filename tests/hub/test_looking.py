"""Views of a team on several machines: present agents, waiting messages and their places, the route of a message."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.hub.sharing import join
from multi_agent_mcp.services.attention import Item, PanesSeen
from multi_agent_mcp.services.overview.snapshot import MachineRow, TeamOfMachines
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from tests.end_to_end.support import Team
from tests.hub.support import DESK, LAPTOP, SESSION, Machine, eventually, machines
from tests.hub.test_machines import replica, send, task_for
from tests.web.support import Guest


def seen(machine: Machine) -> TeamOfMachines:
    found = machine.services.machines.look()
    assert found is not None
    return found


def row(machine: Machine, name: str) -> MachineRow:
    return next(row for row in seen(machine).machines if row.name == name)


def states(machine: Machine) -> dict[str, str]:
    return machine.services.machines.states()


def waiting(machine: Machine) -> list[Item]:
    """The attention items about machines."""
    services = machine.services
    items = services.attention.of(services.agents.owner(), panes=PanesSeen())
    return [item for item in items if item.kind == "machine"]


def command(machine: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    return command_at(machine.root, *words, "--session", SESSION)


def command_at(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "multi_agent_mcp", *words, "--root", str(root)]
    return subprocess.run(call, capture_output=True, text=True, check=False, timeout=60)


def sent(machine: Machine, sender: str, receiver: str, content: str) -> str:
    services = machine.services
    return services.messages.send(services.agents.get(sender), Draft(content=content, receiver_id=receiver)).message_id


def trace(machine: Machine, message_id: str) -> dict[str, Any]:
    (copy,) = machine.services.tracking.trace(message_id)
    return copy


def way(machine: Machine, message_id: str) -> list[str]:
    return [step["state"] for step in trace(machine, message_id)["steps"]]


def test_a_trace_says_from_which_machine_to_which_and_when_the_hub_had_it(desk: Machine, laptop: Machine) -> None:
    message_id = sent(desk, "admin", "worker-a", "follow me")
    eventually(lambda: laptop.has("worker-a", "follow me"))
    eventually(lambda: way(desk, message_id) == ["stored", "on_hub"])
    eventually(lambda: "arrived" in way(laptop, message_id))
    for machine in (desk, laptop):
        copy = trace(machine, message_id)
        assert (copy["from_machine"], copy["to_machine"]) == (DESK, LAPTOP)
    assert trace(desk, message_id)["reason"] == "other_machine"
    said = command(laptop, "trace", message_id).stdout
    assert "admin@desk → worker-a@laptop" in said
    assert "from desk" in said


def test_mail_to_an_agent_of_this_machine_goes_as_if_there_were_no_other(desk: Machine) -> None:
    message_id = sent(desk, "owner", "admin", "to the next room")
    assert "queued" not in way(desk, message_id)
    copy = trace(desk, message_id)
    assert (copy["from_machine"], copy["to_machine"]) == (DESK, DESK)
    assert copy["state"] != "queued"


def test_the_timeline_has_the_machine_of_every_lane(desk: Machine, laptop: Machine) -> None:
    session = laptop.services.sessions.open("worker-a", "task")
    try:
        message_id = sent(desk, "admin", "worker-a", "on the line")
        eventually(lambda: desk.services.sessions.alive("worker-a"))
        eventually(lambda: "on_hub" in way(desk, message_id))
        found = desk.services.timeline.of()
        lanes = {lane.agent_id: lane.machine for lane in found.lanes}
        assert (lanes["admin"], lanes["worker-a"]) == (DESK, LAPTOP)
        assert [life.machine for life in found.lives if life.agent_id == "worker-a"] == [LAPTOP]
        (arrow,) = [arrow for arrow in found.arrows if arrow.message_id == message_id]
        assert arrow.sent_at <= (arrow.on_hub_at or arrow.sent_at) == arrow.arrived_at
        assert "worker-a@laptop" in command(desk, "timeline").stdout
        assert "laptop" in command(desk, "timeline", "--svg", "-").stdout
    finally:
        session.end()


def test_cut_off_a_machine_knows_nothing_of_the_others_and_says_so(desk: Machine, laptop: Machine) -> None:
    assert laptop.wire is not None
    laptop.wire.cut()
    eventually(lambda: seen(laptop).exchange == "cut_off")
    assert states(laptop) == {DESK: "unknown", LAPTOP: "here"}
    assert [(item.id, item.command) for item in waiting(laptop)] == [(LAPTOP, "multi-agent-mcp machines")]
    message_id = sent(laptop, "worker-a", "admin", "from the tunnel")
    assert trace(laptop, message_id)["state"] == "queued"
    status = laptop.services.tracking.status(laptop.services.agents.get("worker-a"), message_id)
    assert (status["state"], status["reason"]) == ("queued", "hub_unreachable")
    eventually(lambda: row(laptop, LAPTOP).queued == 1)
    told = command(laptop, "send", "admin", "and another one", "--as", "worker-a")
    assert (told.returncode, told.stderr) == (0, "")
    assert "waiting for the hub" in told.stdout
    laptop.wire.heal()
    eventually(lambda: desk.has("admin", "and another one"))
    eventually(lambda: way(laptop, message_id) == ["stored", "queued", "on_hub"])
    assert trace(laptop, message_id)["state"] == "stored"
    eventually(lambda: states(laptop) == {DESK: "up", LAPTOP: "here"} and waiting(laptop) == [])
    eventually(lambda: row(laptop, LAPTOP).queued == 0)


def test_without_a_relay_the_reason_is_that_and_not_the_hub(laptop: Machine) -> None:
    laptop.sharing.stop_relay()
    assert send(laptop, "worker-a", "admin", "nobody carries this") == ("queued", "no_relay")
    assert (seen(laptop).exchange, seen(laptop).queued, seen(laptop).machines[0].queued) == ("no_relay", None, None)
    assert [item.command for item in waiting(laptop)] == ["multi-agent-mcp relay --start"]
    laptop.start()
    eventually(lambda: seen(laptop).exchange == "connected")


def test_a_relay_that_hangs_keeps_nobody_and_what_it_may_still_do_is_not_denied(desk: Machine, laptop: Machine) -> None:
    task_id = task_for(desk, "worker-a")
    eventually(lambda: laptop.services.workspace.tasks.find(task_id))
    pid = laptop.relay_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert send(laptop, "worker-a", "admin", "while it hangs") == ("queued", "hub_slow")
        services = laptop.services
        with pytest.raises(HubUnreachable) as refused:
            services.task_changes.set_status(services.agents.get("worker-a"), task_id, "in_progress")
        assert (refused.value.key, refused.value.values) == ("error.relay_unclear", {"pid": pid})
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: desk.has("admin", "while it hangs"))


def test_mail_to_a_machine_that_has_left_is_stored_and_says_that_it_is_away(desk: Machine, laptop: Machine) -> None:
    laptop.sharing.stop_relay()  # it announces its end: nobody has to wait for a timeout
    eventually(lambda: row(desk, LAPTOP).state == "away")
    assert send(desk, "admin", "worker-a", "for later") == ("stored", "machine_away")
    assert row(desk, LAPTOP).queued is None
    eventually(lambda: (row(desk, LAPTOP).behind or 0) > 0)
    (item,) = waiting(desk)
    assert (item.id, item.since) == (LAPTOP, row(desk, LAPTOP).since)
    desk.sharing.stop_relay()
    desk.start()  # a new relay has not heard of the laptop, and still knows since when it is away
    eventually(lambda: row(desk, LAPTOP).state == "away")
    laptop.start()
    eventually(lambda: laptop.has("worker-a", "for later"))
    eventually(lambda: states(desk)[LAPTOP] == "up" and waiting(desk) == [])


def test_a_machine_whose_relay_was_killed_is_away_since_it_was_last_heard_of(desk: Machine, laptop: Machine) -> None:
    laptop.signal(signal.SIGKILL)
    before = desk.services.clock()
    eventually(lambda: row(desk, LAPTOP).state == "away")
    since = row(desk, LAPTOP).since
    assert since is not None
    assert since < before
    laptop.start()
    eventually(lambda: states(desk)[LAPTOP] == "up")


def test_an_edit_that_came_too_late_is_listed_until_somebody_has_taken_it_away(desk: Machine, laptop: Machine) -> None:
    task_id = task_for(desk, "worker-a")
    eventually(lambda: laptop.services.workspace.tasks.find(task_id))
    assert laptop.wire is not None
    laptop.wire.cut()
    eventually(lambda: not laptop.sharing.status()["connected"])
    path = laptop.path / "tasks" / "worker-a" / f"{task_id}.md"
    path.write_bytes(path.read_bytes().replace(b"title: Build", b"title: Mine"))
    records = json.loads((laptop.path / "agents.json").read_text(encoding="utf-8"))
    records["agents"]["worker-a"]["name"] = "Mine"
    (laptop.path / "agents.json").write_text(json.dumps(records), encoding="utf-8")
    services = desk.services
    services.task_changes.set_status(services.agents.get("admin"), task_id, "cancelled", "Theirs")
    services.agents.change("worker-a", name="Theirs")
    laptop.wire.heal()
    eventually(lambda: len(seen(laptop).edits) == 2)
    edits = {laptop.path / edit["path"] for edit in seen(laptop).edits}
    assert all("Mine" in file.read_text(encoding="utf-8") for file in edits)
    eventually(lambda: laptop.services.agents.get("worker-a").name == "Theirs")
    eventually(lambda: replica(desk, task_id) == replica(laptop, task_id))
    eventually(lambda: row(desk, LAPTOP).conflicts == 2)
    assert all(str(file.relative_to(laptop.path)) in command(laptop, "machines").stdout for file in edits)
    for file in edits:
        file.unlink()
        file.with_name(f"{file.name}.reason.txt").unlink()
    assert seen(laptop).edits == ()
    eventually(lambda: row(desk, LAPTOP).conflicts == 0)


def test_an_agent_that_is_listed_is_listed_with_its_machine(desk: Machine) -> None:
    answer = json.loads(command(desk, "agent", "list", "--json").stdout)
    assert {agent["id"]: agent["machine"] for agent in answer["agents"]}["worker-a"] == LAPTOP
    listed = command(desk, "machines").stdout
    assert "laptop" in listed
    assert "worker-a" in listed
    told = json.loads(command(desk, "machines", "--json").stdout)
    assert (told["here"], told["exchange"], told["machines"][LAPTOP]["state"]) == (DESK, "connected", "up")


REFUSED_ELSEWHERE = {
    "its command": ("agent", "set", "worker-a", "--command", "true"),
    "its host": ("agent", "set", "worker-a", "--host", "plain"),
    "its window": ("up", "worker-a", "--no-wait", "--no-attach"),
    "its program": ("host", "learn", "worker-a"),
    "its host's files": ("host-config", "claude", "--agent", "worker-a"),
    "its question": ("answer", "worker-a"),
    "its mail": ("read", "worker-a"),
    "its server": ("serve", "--agent", "worker-a"),
    "its name": ("send", "admin", "hello", "--as", "worker-a"),
}


@pytest.mark.parametrize("words", REFUSED_ELSEWHERE.values(), ids=REFUSED_ELSEWHERE)
def test_what_only_the_home_of_an_agent_can_do_is_refused_elsewhere_by_its_name(
    desk: Machine, words: tuple[str, ...]
) -> None:
    refused = command(desk, *words)
    assert refused.returncode in (1, 2)
    assert "The home of agent 'worker-a' is the machine laptop: act for it there." in refused.stderr
    assert refused.stdout == ""


def test_what_can_be_done_for_an_agent_from_anywhere_is_done(desk: Machine, laptop: Machine) -> None:
    message_id = sent(desk, "admin", "worker-a", "look, do not touch")
    eventually(lambda: laptop.has("worker-a", "look, do not touch"))
    assert "look, do not touch" in command(desk, "read", "worker-a", "--peek").stdout
    assert trace(laptop, message_id)["state"] != "read"
    assert command(desk, "agent", "set", "worker-a", "--name", "Anna").returncode == 0
    eventually(lambda: laptop.services.agents.get("worker-a").name == "Anna")
    stopped = command(desk, "interrupt", "worker-a", "--action", "pause", "--reason", "lunch")
    assert (stopped.returncode, "waiting" in stopped.stdout) == (0, False)
    eventually(lambda: "lunch" in [item.reason for item in laptop.services.notifications.waiting("worker-a")])
    assert command(desk, "resume", "worker-a").returncode == 0
    for words in (("stats",), ("search", "touch"), ("doctor",), ("prune", "--dry-run"), ("timeline",), ("sessions",)):
        assert command(desk, *words).stderr == ""
    assert command(laptop, "attention").returncode == 0  # the Owner's home is the desk: looking is allowed


def test_what_waits_for_the_owner_is_listed_elsewhere_with_the_owners_machine(desk: Machine, laptop: Machine) -> None:
    sent(desk, "admin", "owner", "look at this")
    services = desk.services
    services.conversations.begin(services.agents.get("admin"), services.agents.owner(), "let us talk")
    request = services.task_creation.request(services.agents.get("admin"), NewTask(title="may I"))[0]
    eventually(lambda: laptop.has("owner", "let us talk") and laptop.services.workspace.tasks.find(request.id))
    for machine, home in ((desk, None), (laptop, DESK)):
        found = machine.services.attention.of(machine.services.agents.owner(), panes=PanesSeen())
        places = {(item.kind, item.machine) for item in found if item.kind in ("mail", "conversation", "request")}
        assert places == {("mail", home), ("conversation", home), ("request", home)}
    assert "on desk: multi-agent-mcp read" in command(laptop, "attention").stdout
    assert "on desk: look at this" in command(laptop, "watch", "--once").stdout
    assert "on desk" not in command(desk, "attention").stdout + command(desk, "watch", "--once").stdout


def test_mail_that_its_own_machine_announces_does_not_wait_for_the_owner_here(
    desk: Machine, laptop: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multi_agent_mcp.services.attention.UNDELIVERED_AFTER", timedelta(0))
    message_id = sent(desk, "admin", "worker-a", "not rung from here")
    eventually(lambda: laptop.has("worker-a", "not rung from here") and trace(desk, message_id).get("reason"))
    assert trace(desk, message_id)["reason"] == "other_machine"
    found = desk.services.attention.of(desk.services.agents.owner(), panes=PanesSeen())
    assert [item for item in found if item.kind == "undelivered" and item.agent_id == "worker-a"] == []


def test_doctor_finds_nothing_wrong_with_a_shared_session_as_such(desk: Machine, laptop: Machine) -> None:
    eventually(lambda: states(desk)[LAPTOP] == "up")
    for machine in (desk, laptop):
        told = json.loads(command(machine, "doctor", "--json").stdout)
        assert [item for item in told["findings"] if item["level"] == "problem"] == []
        assert [item for item in told["findings"] if item["check"] == "modes"] == []
        assert "sync_interval" not in json.dumps(told)  # nobody configures our own hub
        known = {item["agent_id"] for item in told["doorbells"]}
        assert known == set(machine.services.agents.by_machine()[machine.name])


def test_a_pause_that_has_to_wait_says_so(desk: Machine, laptop: Machine) -> None:
    desk.sharing.stop_relay()
    told = json.loads(command(desk, "interrupt", "worker-a", "--action", "pause", "--json").stdout)
    assert (told["state"], told["reason"]) == ("queued", "no_relay")
    desk.start()
    eventually(lambda: any(notice.action == "pause" for notice in laptop.services.notifications.waiting("worker-a")))


def test_an_agent_that_has_moved_away_has_no_command_and_no_pane_here_any_more(desk: Machine, laptop: Machine) -> None:
    desk.services.agents.add(Agent(id="rover", parent_id="admin", command="true"))
    desk.services.agents.note("rover", pane_id="%1", socket_path="/nowhere")
    desk.services.agents.move("rover", LAPTOP)
    moved = desk.services.agents.get("rover")
    assert (moved.command, moved.pane_id, moved.machine) == (None, None, LAPTOP)
    eventually(lambda: laptop.services.agents.known_key("rover") is not None)
    laptop.services.agents.move("rover", DESK)
    eventually(lambda: desk.services.agents.get("rover").machine == DESK)
    assert desk.services.agents.get("rover").command == "true"


def test_a_console_elsewhere_than_its_persons_home_shows_everything_and_changes_nothing(
    desk: Machine, laptop: Machine
) -> None:
    task_id = task_for(desk, "worker-a")
    eventually(lambda: laptop.services.workspace.tasks.find(task_id))
    visitor = Guest(cast("Team", laptop))  # it needs the services and the path of a session
    assert visitor.facts()["acts"] is False
    assert [agent["id"] for agent in visitor.see("/agents")["agents"]][:3] == ["owner", "admin", "worker-a"]
    assert visitor.see("/session")["homes"]["owner"]["machine"] == DESK
    assert visitor.see("/agents/admin/pane")["elsewhere"] == DESK
    for path, body in {
        "/messages": {"content": "in the Owner's name", "receiver_id": "admin"},
        f"/tasks/{task_id}/status": {"status": "cancelled"},
        "/agents/worker-a/interrupt": {"action": "pause"},
    }.items():
        assert visitor.refused(path, body) == (403, "unauthorized")
    assert laptop.services.workspace.tasks.get(task_id).status == "todo"
    line = {"text": "hello"}  # whoever sits at this machine may type into its panes: only that there is none
    assert visitor.act("/agents/worker-a/line", line)["reason"] == "no_pane"
    assert visitor.refused("/agents/admin/line", line) == (403, "unauthorized")


def test_a_machine_without_agents_is_shown_until_it_leaves(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as two:
        desk, laptop = two[DESK], two[LAPTOP]
        shed = Machine("shed", tmp_path / "shed")
        join(two.token(), shed.root, "shed", adopt=False)
        shed.start()
        try:
            eventually(lambda: states(laptop).get("shed") == "up")
        finally:
            shed.sharing.stop_relay()
        for machine in (desk, laptop):
            eventually(lambda machine=machine: states(machine).get("shed") == "away")  # type: ignore[misc]
        desk.sharing.leave("shed")
        for machine in (desk, laptop):
            eventually(lambda machine=machine: "shed" not in states(machine))  # type: ignore[misc]


def test_a_machine_that_was_shut_out_has_left_and_its_agents_are_named(tmp_path: Path) -> None:
    with machines(tmp_path, LAPTOP) as two:
        desk, laptop = two[DESK], two[LAPTOP]
        laptop.sharing.stop_relay()
        eventually(lambda: states(desk)[LAPTOP] == "away")
        desk.sharing.leave(LAPTOP)
        eventually(lambda: states(desk)[LAPTOP] == "left")
        assert "has left" in command(desk, "machines").stdout
        found = command(desk, "doctor").stdout
        assert "agent move" in found
        assert "worker-a" in found
