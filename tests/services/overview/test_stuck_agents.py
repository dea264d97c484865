"""An agent that does nothing although it should: who hears of it, once, and when it is over."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.services.overview.pane_looks import GOOD_FOR, LOOK_EVERY
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services import tasks_support as support
from tests.services.support import by_hand, read, send
from tests.services.tasks_support import dies, moved, new, notices, running, shown

HALF_HOUR = 1800
BEFORE = HALF_HOUR - 1


def causes(services: Services) -> dict[str, str]:
    return {agent_id: found.cause for agent_id, found in services.stuck_agents.find().items()}


def told(services: Services, agent_id: str = "admin") -> list[str]:
    """The reasons in the agent's unread notifications about stuck agents."""
    return [str(notice.get("reason")) for notice in shown(services, agent_id) if notice["action"] == "agent_stuck"]


def test_a_silent_agent_with_a_task_is_told_of_once_until_it_acts(services: Services, clock: Clock) -> None:
    session = support.open_session(services, "worker-a")
    task = running(services)
    clock.advance(BEFORE)
    assert services.stuck_agents.tell() == []
    clock.advance(1)
    (notice,) = services.stuck_agents.tell()
    assert (notice.target_agent_id, notice.target_purpose, notice.task_id) == ("admin", "task", task.id)
    clock.advance(600)
    another = open_session(services.root, "demo", clock=clock, notifier=services.notifier)
    assert another.stuck_agents.tell() == []  # a second supervisor, or the first one started again
    assert told(services) == [f"Task {task.id} is in progress, and there was no call for 30 min"]
    session.touch()
    assert told(services) == []
    assert services.stuck_agents.tell() == []
    assert notices(services, "admin") == []  # read by itself
    clock.advance(HALF_HOUR)
    assert len(services.stuck_agents.tell()) == 1  # another silence


def test_it_is_over_too_when_the_task_is_in_other_hands(services: Services, clock: Clock) -> None:
    support.open_session(services, "worker-a")
    task = running(services)
    clock.advance(HALF_HOUR)
    services.stuck_agents.tell()
    services.task_changes.assign(services.agents.get("admin"), task.id, "worker-b")
    assert causes(services) == {}
    assert told(services) == []


def test_a_dead_agent_is_said_to_be_gone_and_a_person_hears_in_any_session(services: Services, clock: Clock) -> None:
    dies(services, support.open_session(services, "admin"))
    moved(services, new(services, assignee_id="admin", by="owner"), "in_progress")
    clock.advance(HALF_HOUR)
    (notice,) = services.stuck_agents.tell()
    assert (notice.target_agent_id, "no server of the agent runs" in str(notice.reason)) == ("owner", True)
    assert len(shown(services, "owner", "chat")) == 1


def test_who_waits_is_paused_or_is_a_person_is_not_stuck(services: Services, clock: Clock) -> None:
    support.open_session(services, "worker-a")
    mine = moved(services, new(services, assignee_id="admin", by="owner"), "in_progress")
    handed_out = new(services, assignee_id="worker-b", by="admin", parent=mine.id)  # the admin waits for it
    moved(services, handed_out, "in_progress")
    paused = running(services)
    owner = services.agents.get("owner")
    services.interrupting.interrupt(owner, "worker-a", "pause", paused.id, None)
    moved(services, new(services, assignee_id="owner", by="owner"), "in_progress")
    send(services, "admin", "owner")
    clock.advance(10 * HALF_HOUR)
    others = {"worker-b": "silent"}
    assert causes(services) == others
    services.notifications.read("worker-a", "task")
    assert causes(services) == others  # it keeps the pause that it has read
    services.interrupting.resume(owner, "worker-a")
    assert causes(services) == others  # it has just been told to go on
    clock.advance(HALF_HOUR)
    assert causes(services) == others | {"worker-a": "silent"}
    services.notifications.read("worker-a", "task")
    for task in (handed_out, paused):
        moved(services, task, "done")
    assert causes(services) == {}  # the admin must have time to hear of it
    clock.advance(HALF_HOUR)
    assert causes(services) == {"admin": "silent"}


def test_a_task_by_hand_waits_since_its_file_is_there(services: Services, clock: Clock) -> None:
    support.open_session(services, "worker-a")
    path = services.path / "tasks" / "worker-a" / "tsk_0123456789ab.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\ntitle: x\nstatus: todo\nassignee_id: worker-a\n---\n", encoding="utf-8")
    os.utime(path, (clock().timestamp(),) * 2)
    clock.advance(BEFORE)
    assert causes(services) == {}
    clock.advance(1)
    services.stuck_agents.tell()
    assert told(services) == ["Task tsk_0123456789ab waits to be begun, and there was no call for 30 min"]


def test_a_task_that_an_idle_agent_does_not_begin_is_told_of_and_announced_again(
    services: Services, clock: Clock
) -> None:
    session = support.open_session(services, "worker-a")
    task = new(services)
    services.notifications.read("worker-a", "task")
    clock.advance(BEFORE)
    assert causes(services) == {}
    clock.advance(1)
    (notice,) = services.stuck_agents.tell()
    assert told(services) == [f"Task {task.id} waits to be begun, and there was no call for 30 min"]
    assert (notice.target_agent_id, notice.task_id) == ("admin", task.id)
    assert [item["action"] for item in shown(services, "worker-a")] == ["task_assigned"]
    assert services.stuck_agents.tell() == []
    clock.advance(1)
    session.touch()
    assert causes(services) == {}
    assert told(services) == []


def test_a_task_that_waits_behind_another_is_not_told_of(services: Services, clock: Clock) -> None:
    session = support.open_session(services, "worker-a")
    first, second = running(services), new(services, "Paint")
    new(services, "Sell", dependencies=[first.id])
    clock.advance(BEFORE)
    session.touch()
    clock.advance(1)
    assert causes(services) == {}
    moved(services, first, "done")
    moved(services, second, "blocked")
    clock.advance(BEFORE)
    assert causes(services) == {}  # the third can be begun only since then
    clock.advance(1)
    assert causes(services)["worker-a"] == "untaken"


def test_a_doorbell_that_nothing_answers_is_told_of(services: Services, clock: Clock) -> None:
    session = support.open_session(services, "worker-a")
    clock.advance(5 * HALF_HOUR)
    by_hand(services, "worker-a", "note.md", "---\nsender_id: admin\ncreated_at: 2026-11-01\n---\n\nhello\n")
    assert causes(services) == {}  # of a time long ago, but nobody has rung yet
    send(services, "admin", "worker-a")
    clock.advance(BEFORE)
    assert causes(services) == {}
    clock.advance(1)
    assert causes(services) == {"worker-a": "unanswered"}
    session.touch()
    assert causes(services) == {}  # it lives; what it reads when is its own business
    clock.advance(HALF_HOUR)
    assert causes(services) == {"worker-a": "unanswered"}
    read(services, "worker-a")
    assert causes(services) == {}


class TestPanes:
    """Hosts in the panes of agents, seen by the supervisor."""

    @pytest.fixture(autouse=True)
    def pane(self, services: Services) -> None:
        services.workspace.registry.update("worker-a", pane_id="%7", socket_path="/nowhere/s", host="claude")

    def look(self, services: Services, state: str | None) -> None:
        """The supervisor looks, some time after its last look."""
        services.pane_looks.refresh(lambda agent: ("claude", state) if state and agent.id == "worker-a" else None)

    def test_a_host_without_our_server_for_a_minute_is_told_of_until_it_has_one(
        self, services: Services, clock: Clock
    ) -> None:
        self.look(services, "idle")
        assert services.stuck_agents.tell() == []
        clock.advance(LOOK_EVERY.total_seconds() * 2)
        self.look(services, "busy")
        (notice,) = services.stuck_agents.tell()
        assert notice.reason == "The host claude runs without our MCP server (screen: busy)"
        again = open_session(services.root, "demo", clock=clock, notifier=services.notifier)
        clock.advance(LOOK_EVERY.total_seconds())
        self.look(again, "idle")
        assert again.stuck_agents.tell() == []
        support.open_session(services, "worker-a")
        assert (causes(services), told(services)) == ({}, [])

    def test_a_host_whose_server_has_just_died_or_logged_out_is_left_in_peace(
        self, services: Services, clock: Clock
    ) -> None:
        session = support.open_session(services, "worker-a")
        self.look(services, "idle")
        clock.advance(60)
        self.look(services, "idle")
        session.end()
        clock.advance(600)
        self.look(services, "idle")
        assert causes(services) == {}

    def test_a_login_screen_is_told_of_with_or_without_a_server(self, services: Services, clock: Clock) -> None:
        support.open_session(services, "worker-a")
        self.look(services, "login")
        clock.advance(60)
        assert causes(services) == {"worker-a": "login"}
        self.look(services, "idle")
        assert causes(services) == {}

    def test_a_host_that_cannot_reach_its_model_for_a_minute_is_told_of_until_it_can(
        self, services: Services, clock: Clock
    ) -> None:
        session = support.open_session(services, "worker-a")
        self.look(services, "busy")
        clock.advance(600)
        self.look(services, "offline")
        clock.advance(LOOK_EVERY.total_seconds())
        self.look(services, "offline")
        assert (causes(services), services.pane_looks.is_offline("worker-a")) == ({}, False)
        clock.advance(LOOK_EVERY.total_seconds())
        self.look(services, "offline")
        assert services.pane_looks.is_offline("worker-a")
        (notice,) = services.stuck_agents.tell()
        assert notice.reason == "The host claude cannot reach its model (screen: offline)"
        rows = {row.agent.id: row.as_answer()["stuck"] for row in services.snapshots.take().agents}
        assert rows["worker-a"] == "offline"
        clock.advance(LOOK_EVERY.total_seconds())
        self.look(services, "idle")
        session.touch()
        assert services.stuck_agents.tell() == []
        assert (causes(services), told(services)) == ({}, [])

    def test_a_question_before_our_server_is_told_as_one(self, services: Services, clock: Clock) -> None:
        self.look(services, "dialog")
        clock.advance(60)
        self.look(services, "dialog")
        (notice,) = services.stuck_agents.tell()
        assert notice.reason is not None
        assert notice.reason.startswith("The host claude asks its human something")
        findings = services.doctor(lambda _: None, lambda _: ("claude", "dialog")).examine()
        (found,) = (item for item in findings if item.check == "stuck")
        assert found.finding.startswith("The host claude asks its human something")
        assert "host-config" not in found.repair

    def test_what_was_seen_long_ago_says_nothing(self, services: Services, clock: Clock) -> None:
        self.look(services, "login")
        clock.advance(GOOD_FOR.total_seconds())
        assert causes(services) == {}
        services.workspace.pane_looks.write({"at": 5, "panes": {"worker-a": []}})
        assert causes(services) == {}

    def test_doctor_looks_itself_and_says_at_once_what_to_do(self, services: Services) -> None:
        def look_at(agent: Agent) -> tuple[str, str]:
            return "claude", "idle"

        findings = services.doctor(lambda _: None, look_at).examine()
        (found,) = (item for item in findings if item.check == "stuck")
        assert (found.level, found.subject) == ("problem", "worker-a")
        assert "without our MCP server" in found.finding
        assert "host-config claude --agent worker-a" in found.repair
        assert services.workspace.pane_looks.read() is None  # it has changed nothing

    def test_everybody_who_looks_is_shown_it(self, services: Services, clock: Clock) -> None:
        self.look(services, "login")
        clock.advance(60)
        rows = {row.agent.id: row.as_answer()["stuck"] for row in services.snapshots.take().agents}
        assert rows == {"owner": None, "admin": None, "worker-a": "login", "worker-b": None}


def test_the_limit_is_the_sessions_and_calls_are_written_down_often_enough_for_it(
    services: Services, clock: Clock
) -> None:
    limits = replace(services.settings.limits, stuck_minutes=0.1)
    hasty = replace(services, session=replace(services.session, settings=replace(services.settings, limits=limits)))
    session = hasty.sessions.open("worker-a", "task")
    running(hasty)
    for _ in range(4):
        clock.advance(5)
        session.touch()
        assert causes(hasty) == {}
    clock.advance(6)
    assert causes(hasty) == {"worker-a": "silent"}
    assert hasty.stuck_agents.patience.silence == timedelta(seconds=6)
