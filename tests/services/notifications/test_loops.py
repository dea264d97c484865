"""Two agents that only thank each other are told so, and their superior with them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest

from multi_agent_mcp.domain.loops import Exchange
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.times import stamp
from multi_agent_mcp.services.notifications.loops import RecentMail
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import by_hand, send, unread
from tests.services.tasks_support import delegate, notices, open_session, running

PAIR = ("worker-a", "worker-b")


def thank(services: Services, clock: Clock, count: int, *, pause: float = 20, pair: tuple[str, str] = PAIR) -> None:
    """Messages to and fro."""
    for number in range(count):
        clock.advance(pause)
        sender, receiver = pair if number % 2 == 0 else reversed(pair)
        send(services, sender, receiver, "Thank you!", subject="Re: " * (number % 3) + "Thanks")


def suspected(services: Services) -> dict[str, list[Notification]]:
    found = {
        agent_id: [notice for notice in notices(services, agent_id) if notice.action == "loop_suspected"]
        for agent_id in services.agents.all()
    }
    return {agent_id: some for agent_id, some in found.items() if some}


def test_the_tenth_message_is_sent_and_both_and_their_superior_are_told_once(services: Services, clock: Clock) -> None:
    thank(services, clock, 9)
    assert suspected(services) == {}
    thank(services, clock, 1, pair=("worker-b", "worker-a"))
    assert {agent_id: len(some) for agent_id, some in suspected(services).items()} == {
        "admin": 1, "worker-a": 1, "worker-b": 1,
    }  # fmt: skip
    assert unread(services, "worker-a") == unread(services, "worker-b") == 5
    (notice,) = suspected(services)["worker-a"]
    assert (notice.sender_id, notice.target_purpose, notice.type) == ("worker-b", "task", "status_change")
    assert notice.reason == "10 messages between worker-a and worker-b within 10 minutes"
    thank(services, clock, 20)
    assert {len(some) for some in suspected(services).values()} == {1}
    clock.advance(700)
    thank(services, clock, 12)
    assert {len(some) for some in suspected(services).values()} == {2}  # another episode


def test_of_agents_on_two_machines_only_one_process_tells(services: Services, clock: Clock) -> None:
    services.workspace.registry.update("worker-b", machine="laptop")
    thank(services, clock, 9)
    thank(services, clock, 1, pair=("worker-b", "worker-a"))
    assert suspected(services) == {}
    thank(services, clock, 1)
    assert {agent_id: len(some) for agent_id, some in suspected(services).items()} == {
        "admin": 1, "worker-a": 1, "worker-b": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "between",
    [
        lambda services, _: running(services),
        lambda _, clock: clock.advance(601),
        lambda services, _: services.workspace.registry.update("worker-b", type="human"),
    ],
    ids=["a task changes", "a rest", "a person"],
)
def test_who_gets_on_rests_or_is_a_person_is_in_no_loop(
    services: Services, clock: Clock, between: Callable[[Services, Clock], object]
) -> None:
    thank(services, clock, 8)
    between(services, clock)
    thank(services, clock, 8)
    assert suspected(services) == {}


def test_the_reports_of_one_who_gets_no_answers_are_not_read_again(services: Services, clock: Clock) -> None:
    mailbox = services.workspace.mailbox("admin")
    for _ in range(12):
        send(services, "worker-a", "admin", "Still at it.", subject="Progress")
        clock.advance(1)
    broken = mailbox.path / f"{stamp(clock())}_0a1b2c3d.md"
    broken.write_bytes(b"\xff")  # reading it sets it aside
    for _ in range(12):
        send(services, "worker-a", "admin", "Still at it.", subject="Progress")
    assert broken.exists()
    assert suspected(services) == {}


def test_what_is_said_in_a_conversation_is_told_to_any_session(services: Services, clock: Clock) -> None:
    talk = services.conversations
    first, second = (services.agents.get(agent_id) for agent_id in PAIR)
    conversation, *_ = talk.begin(first, second, "hello")
    for number in range(10):
        clock.advance(5)
        talk.say((first, second)[number % 2], conversation.id, Draft(content="Thank you!"))
    told = suspected(services)
    assert {agent_id: some[0].target_purpose for agent_id, some in told.items()} == {
        "admin": "task", "worker-a": None, "worker-b": None,
    }  # fmt: skip
    assert {some[0].conversation_id for some in told.values()} == {conversation.id}


def test_a_conversation_that_was_delegated_may_be_longer(services: Services, clock: Clock) -> None:
    delegation = delegate(services, open_session(services, "worker-a"))
    first, second = (services.agents.get(agent_id) for agent_id in PAIR)
    conversation, *_ = services.conversations.begin(first, second, "hello", delegation_id=delegation.id)
    for number, told in ((28, []), (2, ["admin", "worker-a", "worker-b"])):
        for turn in range(number):
            clock.advance(5)
            services.conversations.say((second, first)[turn % 2], conversation.id, Draft(content="りんご"))
        assert sorted(suspected(services)) == told


def test_who_is_not_answered_looks_into_no_mailbox_of_others(services: Services, clock: Clock) -> None:
    torn = by_hand(services, "worker-b", f"{stamp(clock.now)}_12345678.md", "no header")
    os.utime(torn, (0, 0))
    served = services.doorbell.serve("worker-b", "task")  # so that no sender rings
    assert served is not None
    for _ in range(30):
        clock.advance(1)
        send(services, "worker-a", "worker-b", subject="Progress")
    assert torn.exists()  # reading it sets it aside
    for _ in range(5):
        clock.advance(1)
        send(services, "worker-b", "worker-a", subject="Re: Progress")
    assert not torn.exists()
    assert suspected(services) != {}


def test_an_admin_that_writes_to_many_reads_no_file_for_it(
    services: Services, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    real = Directory[Message].load

    def load(self: Directory[Message], name: str, place: int | None = None) -> Message | None:
        loaded.append(name)
        return real(self, name, place)

    thank(services, clock, 8, pause=1)
    monkeypatch.setattr(Directory, "load", load)
    for receiver in ("worker-a", "worker-b", "owner") * 3:
        send(services, "admin", receiver, "Do it", subject=f"To {receiver}")
    before = len(loaded)
    monkeypatch.setattr(services.loops, "after_sending", lambda _: None)
    for receiver in ("worker-a", "worker-b", "owner") * 3:
        send(services, "admin", receiver, "Do it", subject="Once more")
    assert before <= len(loaded) - before


def test_each_message_is_looked_into_once_however_long_they_talk(
    services: Services, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: Counter[str] = Counter()
    real = Directory[Message].load

    def load(self: Directory[Message], name: str, place: int | None = None) -> Message | None:
        loaded[f"{self.path}/{name}"] += 1
        return real(self, name, place)

    mail, exchange = RecentMail(services.workspace), Exchange(*PAIR, None, "thanks")
    thank(services, clock, 60, pause=1)
    monkeypatch.setattr(Directory, "load", load)
    for _ in range(3):
        assert len(mail.since(clock() - timedelta(seconds=20), exchange, PAIR)) in range(19, 22)
        assert len(mail.episode(clock() - timedelta(seconds=20), exchange)) == 60
    assert (len(loaded), set(loaded.values())) == (60, {1})


def test_an_episode_goes_back_to_its_last_pause(services: Services, clock: Clock) -> None:
    thank(services, clock, 4, pause=500)
    clock.advance(700)
    thank(services, clock, 5, pause=500)
    assert len(RecentMail(services.workspace).episode(clock(), Exchange(*PAIR, None, "thanks"))) == 5
