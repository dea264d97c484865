"""Reservations of files on several machines: known everywhere, and where they are enforced the hub decides."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from threading import Barrier, Thread

from multi_agent_mcp.errors import Reserved
from multi_agent_mcp.wiring import Services
from tests.hub.support import Machine, eventually

TRIES = 10


def enforced(machine: Machine) -> Services:
    services = machine.services
    settings = replace(services.settings, repository=replace(services.settings.repository, enforces=True))
    return Services(services.workspace, settings, services.texts, services.clock, services.notifier)


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
