"""When a doorbell rings again: a table of what is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from multi_agent_mcp.domain.delivery import Delivery, Due, Pauses, Ring, due
from multi_agent_mcp.domain.message import Message

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
PAUSES = Pauses(timedelta(seconds=30), timedelta(seconds=900))
OLD, NEW = (Message(id=name, sender_id="admin") for name in ("old", "new"))


def rung(seconds_ago: float, *message_ids: str, attempt: int = 1) -> Ring:
    return Ring(NOW - timedelta(seconds=seconds_ago), frozenset(message_ids), attempt)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.mark.parametrize(
    ("unread", "last", "expected"),
    [
        pytest.param((), None, Due(), id="nothing unread"),
        pytest.param((), rung(1, "old"), Due(), id="all was read"),
        pytest.param((NEW,), None, Due((NEW,)), id="the first message"),
        pytest.param((NEW,), rung(1, "old"), Due((NEW,)), id="what was rung about has been read"),
        pytest.param((OLD,), rung(10, "old"), Due(after=seconds(20)), id="outstanding"),
        pytest.param((OLD, NEW), rung(10, "old"), Due(after=seconds(20)), id="outstanding, more came"),
        pytest.param((OLD, NEW), rung(30, "old"), Due((OLD, NEW), 2), id="the pause is over"),
        pytest.param((OLD,), rung(30, "old", attempt=2), Due(after=seconds(30)), id="the pause doubles"),
        pytest.param((OLD,), rung(0, "old", attempt=9), Due(after=seconds(900)), id="up to the longest"),
        pytest.param((OLD,), rung(901, "old", attempt=5000), Due((OLD,), 5001), id="attempts without end"),
        pytest.param((OLD,), rung(-60, "old"), Due((OLD,), 2), id="the clock was set back"),
        pytest.param((OLD,), rung(-60, "old", attempt=9), Due((OLD,), 10), id="set back, amid a long pause"),
        pytest.param((OLD,), rung(-0.5, "old"), Due(after=seconds(30)), id="a small step back rings nothing twice"),
        pytest.param((OLD,), rung(86400, "old", attempt=9), Due((OLD,), 10), id="the clock was set forward"),
    ],
)
def test_a_doorbell_is_due(unread: tuple[Message, ...], last: Ring | None, expected: Due[Message]) -> None:
    assert due(unread, [last], NOW, PAUSES) == expected


@pytest.mark.parametrize(
    ("rings", "expected"),
    [
        pytest.param([rung(40, "old"), rung(10, "old", attempt=2)], Due(after=seconds(50)), id="the later one"),
        pytest.param([rung(10, "old"), None, rung(40, "old")], Due(after=seconds(20)), id="in any order"),
        pytest.param([rung(-86400, "old"), rung(10, "old")], Due(after=seconds(20)), id="before one of a clock ahead"),
        pytest.param([rung(5, "other"), rung(10, "old")], Due((OLD,)), id="only the latest counts"),
    ],
)
def test_of_several_rings_the_latest_decides(rings: list[Ring | None], expected: Due[Message]) -> None:
    assert due((OLD,), rings, NOW, PAUSES) == expected


def test_a_reason_is_answered_only_where_there_is_one() -> None:
    assert Delivery("submitted").as_answer() == {"state": "submitted"}
    assert Delivery("stored", "no_pane").as_answer() == {"state": "stored", "reason": "no_pane"}


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"at": "yesterday"},
        {"at": "2026-11-21T21:46:01Z", "attempt": "many"},
        {"at": 5, "attempt": 1},
    ],
)
def test_an_entry_of_the_delivery_log_that_makes_no_sense_is_no_ring(entry: dict[str, object]) -> None:
    assert Ring.of(entry) is None


@pytest.mark.parametrize("messages", [5, None, "m", {"a": 1}, [["m"]]])
@pytest.mark.parametrize("attempt", [-5, 0, 10**400])
def test_a_ring_by_hand_rests_for_a_while_and_breaks_nothing(messages: object, attempt: int) -> None:
    ring = Ring.of({"at": "2026-11-21T21:46:01Z", "messages": messages, "attempt": attempt})
    assert ring is not None
    rests = ring.rests_for(ring.at, Pauses(timedelta(seconds=30), timedelta(days=10_000)))
    assert timedelta(seconds=30) <= rests <= timedelta(days=10_000)
