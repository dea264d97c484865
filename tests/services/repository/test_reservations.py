"""Reservations: named to each other, enforced where the session says so, and never ended silently."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from multi_agent_mcp import Refused
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.errors import InvalidArguments, ReservationNotFound, Reserved, Unauthorized
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.repository.reservation import Reservation
from multi_agent_mcp.windows.supervisor import Supervisor
from multi_agent_mcp.windows.window_registry import TeamWindows
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.server.seat import Seat
from tests.services.tasks_support import moved, running


def reserve(services: Services, agent_id: str, *patterns: str, **fields: object) -> Reservation:
    reserved: Reservation = services.reservations.reserve(services.agents.get(agent_id), patterns, **fields)[0]
    return reserved


def told(services: Services, agent_id: str, action: str) -> list[Notification]:
    services.notifications.refresh(agent_id, "task")
    unread = services.workspace.notices(agent_id).unread(fresh=True)
    return [notice for _, notice in unread if notice.action == action]


def enforced(services: Services) -> Services:
    settings = replace(services.settings, given={"reservations": "enforce"})
    return Services(replace(services.session, settings=settings), services.notifier)


def test_two_agents_may_reserve_one_file_and_both_are_told(services: Services) -> None:
    mine = reserve(services, "worker-a", "src/app.py", reason="the login")
    theirs, conflicts = services.reservations.reserve(services.agents.get("worker-b"), ["src/"], minutes=5)
    assert conflicts == [mine]
    assert (services.path / "reservations" / f"{theirs.id}.md").is_file()
    (to_a,), (to_b,) = (told(services, name, "reservation_conflict") for name in ("worker-a", "worker-b"))
    assert (to_a.sender_id, to_b.sender_id) == ("worker-b", "worker-a")
    assert to_a.reason == "worker-b has reserved src/, too."
    assert to_b.reason == "worker-a has reserved src/app.py, too. Reason given: the login"
    assert services.reservations.reserve(services.agents.get("worker-b"), ["docs/"])[1] == []


def test_where_reservations_are_enforced_the_second_is_refused_and_the_holder_told_once(services: Services) -> None:
    services = enforced(services)
    mine = reserve(services, "worker-a", "src/")
    for _ in range(2):
        with pytest.raises(Reserved) as refusal:
            reserve(services, "worker-b", "src/app.py")
    assert "worker-a" in services.texts.sentence(refusal.value)
    assert mine.id in services.texts.sentence(refusal.value)
    assert len(told(services, "worker-a", "reservation_conflict")) == 1
    assert services.reservations.open() == [replace(mine, asked_by=("worker-b",))]
    services.reservations.release(services.agents.get("worker-a"))
    assert [notice.action for notice in told(services, "worker-b", "reservation_ended")] == ["reservation_ended"]
    reserve(services, "worker-b", "src/app.py")


def test_it_ends_with_its_task_and_is_in_the_archive(services: Services, clock: Clock) -> None:
    task = running(services)
    made = reserve(services, "worker-a", "src/", task_id=task.id)
    clock.advance(1)
    moved(services, task, "done")
    (notice,) = told(services, "worker-a", "reservation_ended")
    assert not notice.rings
    assert not (services.path / "reservations" / f"{made.id}.md").exists()
    (over,) = [one for one in services.reservations.kept.closed() if one.id == made.id]
    assert (over.ended, over.released_at) == ("task_ended", clock.now)


def test_a_holder_that_died_frees_its_files_and_those_who_asked_are_told(services: Services) -> None:
    seat = Seat(services, "worker-a")
    assert seat.call("reserve_files", paths=["src/"])["conflicts"] == []
    reserve(services, "worker-b", "src/app.py")
    seat.binding.close()
    (gone,) = told(services, "worker-b", "reservation_ended")
    assert gone.reason is not None
    assert "no server and no program of worker-a" in gone.reason
    assert [one.agent_id for one in services.reservations.open()] == ["worker-b"]


def test_the_supervisors_look_ends_what_a_dead_holder_had_reserved(services: Services, tmp_path: Path) -> None:
    seat = Seat(services, "worker-a")
    seat.call("reserve_files", paths=["src/"])
    supervisor = Supervisor(TeamWindows(services, str(tmp_path / "socket")))
    supervisor.look_after_agents()
    assert services.reservations.kept.open()
    seat.binding.close()
    supervisor.look_after_agents()
    assert [one.ended for one in services.reservations.kept.closed()] == ["holder_gone"]


def test_a_persons_reservation_lasts_an_hour_or_as_long_as_it_says(services: Services, clock: Clock) -> None:
    hour, minute = reserve(services, "owner", "a"), reserve(services, "owner", "b", minutes=1)
    assert (hour.expires_at, minute.expires_at) == (clock.now + timedelta(hours=1), clock.now + timedelta(minutes=1))
    clock.advance(60)
    assert [one.id for one in services.reservations.open()] == [hour.id]
    assert [notice.reason for notice in told(services, "owner", "reservation_ended")] == [
        "The reservation of b by owner has expired."
    ]


def test_the_tools_answer_with_the_reservation_and_release_it(agent_team: MakeTeam) -> None:
    team = agent_team()
    first, second = team["worker-a"], team["worker-b"]
    made = first.reserve_files(["src/", "*.md"], reason="docs", minutes=0.5)
    answer = second.reserve_files(["README.md"])
    assert [(one["agent_id"], one["patterns"]) for one in answer["conflicts"]] == [("worker-a", ["src/", "*.md"])]
    with pytest.raises(Refused, match="unauthorized"):
        second.release_files(made["reservation_id"])
    with pytest.raises(Refused, match="reservation_not_found"):
        second.release_files("rsv_000000000000")
    with pytest.raises(Refused, match="invalid_arguments"):
        second.reserve_files(["../x"])
    assert first.release_files()["released"] == [made["reservation_id"]]
    assert first.release_files()["released"] == []
    assert second.release_files(answer["reservation_id"])["success"]


def test_a_superior_or_a_person_may_release_it_and_the_holder_is_told(services: Services) -> None:
    made = reserve(services, "worker-a", "src/")
    with pytest.raises(Unauthorized):
        services.reservations.release(services.agents.get("worker-b"), made.id)
    with pytest.raises(ReservationNotFound):
        services.reservations.release(services.agents.get("admin"), "rsv_000000000000")
    services.reservations.release(services.agents.get("admin"), made.id)
    assert len(told(services, "worker-a", "reservation_ended")) == 1
    assert services.reservations.release(services.agents.get("owner"), made.id) == []


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan"), float("inf")])
def test_odd_minutes_are_refused(services: Services, minutes: float) -> None:
    with pytest.raises(InvalidArguments):
        reserve(services, "worker-a", "src/", minutes=minutes)
    assert services.reservations.open() == []
