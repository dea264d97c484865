"""Reservations and edits of files on several machines: known everywhere; where reservations are enforced the hub
decides."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Thread

from multi_agent_mcp.domain.notification import derived_id
from multi_agent_mcp.errors import Reserved
from multi_agent_mcp.wiring import Services
from tests.hub.support import Machine, eventually
from tests.hub.test_machines import task_for
from tests.hub.test_notices import move

TRIES = 10


def enforced(machine: Machine) -> Services:
    services = machine.services
    settings = replace(services.settings, given={"reservations": "enforce"})
    return Services(replace(services.session, settings=settings), services.notifier)


def has_conflict(machine: Machine, agent_id: str) -> bool:
    unread = machine.services.workspace.notices(agent_id).unread()
    return any(notice.action == "reservation_conflict" for _, notice in unread)


def winners(contenders: Mapping[str, Services], path: str) -> list[str]:
    """The agents that got the file, of these that reserve it at once."""
    won: list[str] = []
    together = Barrier(len(contenders))

    def claim(agent_id: str, services: Services) -> None:
        together.wait()
        with suppress(Reserved):
            services.reservations.reserve(services.agents.get(agent_id), [path], minutes=5)
            won.append(agent_id)

    threads = [Thread(target=claim, args=each) for each in contenders.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_a_conflict_is_named_to_both_and_the_end_is_known_everywhere(desk: Machine, laptop: Machine) -> None:
    here, there = desk.services, laptop.services
    mine, _ = here.reservations.reserve(here.agents.get("admin"), ["shared/"], minutes=5)
    eventually(there.reservations.open)
    made, conflicts = there.reservations.reserve(there.agents.get("worker-a"), ["shared/app.py"], minutes=5)
    assert [one.id for one in conflicts] == [mine.id]
    eventually(lambda: has_conflict(desk, "admin") and has_conflict(laptop, "worker-a"))
    here.reservations.release(here.agents.get("admin"))
    there.reservations.release(there.agents.get("worker-a"), made.id)
    eventually(lambda: not there.reservations.open() and not here.reservations.open())


def test_of_two_at_once_exactly_one_wins(desk: Machine, laptop: Machine) -> None:
    contenders = {"admin": enforced(desk), "worker-a": enforced(laptop)}
    for number in range(TRIES):
        assert len(winners(contenders, f"file-{number}.py")) == 1


def has_overlap(machine: Machine, agent_id: str) -> bool:
    unread = machine.services.workspace.notices(agent_id).unread()
    return any(notice.action == "edit_overlap" for _, notice in unread)


def test_who_edits_one_file_on_two_machines_is_told(desk: Machine, laptop: Machine, tmp_path: Path) -> None:
    for agent_id in ("admin", "worker-a"):
        task_id = task_for(desk, agent_id)
        eventually(lambda task_id=task_id: laptop.services.workspace.tasks.find(task_id))  # type: ignore[misc]
        move(desk, task_id, "in_progress")
    eventually(lambda: laptop.services.workspace.tasks.in_progress("worker-a"))
    path = str(tmp_path / "app.py")
    for machine, agent_id in ((desk, "admin"), (laptop, "worker-a")):
        machine.services.edits.note(agent_id, [path], str(tmp_path))
    eventually(lambda: has_overlap(desk, "admin") and has_overlap(laptop, "worker-a"))


def told_of_the_end(machine: Machine, agent_id: str, reservation_id: str) -> dict[str, bytes]:
    inbox = machine.services.workspace.notices(agent_id)
    wanted = derived_id("reservation_ended", reservation_id, agent_id)
    return {path.name: path.read_bytes() for path, _ in inbox.find_all(lambda item: item.id == wanted, like=wanted)}


def test_machines_that_end_a_reservation_at_once_tell_it_in_the_same_bytes(desk: Machine, laptop: Machine) -> None:
    """Each is killed, as it were, after it has told: the other one tells the same, to the byte and under one name."""
    here, there = desk.services, laptop.services
    one, _ = here.reservations.reserve(here.agents.get("admin"), ["once/"], minutes=5)
    eventually(lambda: there.reservations.kept.find(one.id))
    decided = here.reservations.kept.update(one.id, lambda found: found.decide(here.clock(), "expired", None))
    eventually(lambda: there.reservations.kept.get(one.id).ended == "expired")
    assert one.id not in {each.id for each in there.reservations.open()}
    later = there.clock() + timedelta(minutes=1)
    slow = Services(replace(there.session, clock=lambda: later), laptop.recorder)
    slow.reservations._end(one, "task_ended", "worker-a")  # it has another reason, and another clock
    here.reservations._end(one, "expired", None)
    eventually(lambda: not here.reservations.kept.get(one.id).is_open)
    assert here.reservations.kept.get(one.id).released_at == decided.ended_at
    eventually(lambda: told_of_the_end(desk, "admin", one.id) == told_of_the_end(laptop, "admin", one.id) != {})
    assert len(told_of_the_end(desk, "admin", one.id)) == 1
