"""When two agents go round in circles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.loops import Exchange, ExchangeMessage, common_superior, loop_in
from multi_agent_mcp.domain.message import Message

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def exchange(*minutes: float) -> list[ExchangeMessage]:
    messages = (
        Message(id=f"{number}", sender_id="ab"[number % 2], created_at=START + timedelta(minutes=minute))
        for number, minute in enumerate(minutes)
    )
    return [ExchangeMessage.of(message) for message in messages]


@pytest.mark.parametrize(
    ("minutes", "changed", "first"),
    [
        (range(9), None, None),
        (range(10), None, "0"),
        (range(30), None, "0"),
        ([number * 1.2 for number in range(30)], None, None),  # slower than ten in ten minutes
        ([0, 5, *range(20, 30)], None, "2"),  # after a pause a new episode begins
        (range(15), 4, "5"),
        (range(14), 4, None),
        (range(10), -1, "0"),
    ],
)
def test_ten_messages_within_ten_minutes_without_a_task_changing_are_a_loop(
    minutes: list[float], changed: float | None, first: str | None
) -> None:
    changed_at = None if changed is None else START + timedelta(minutes=changed)
    loop = loop_in(exchange(*minutes), changed_at)
    assert (loop.message_id if loop else None) == first


def test_who_gets_no_answers_is_in_no_loop() -> None:
    messages = [message._replace(sender_id="a") for message in exchange(*range(10))]
    assert loop_in(messages, None) is None
    assert loop_in([*messages[:7], *exchange(*range(10))[7:]], None) is None
    answers = [message._replace(sender_id="b") for message in messages[7:]]
    assert loop_in([*messages[:7], *answers], None) is not None


def test_what_they_write_about_is_the_conversation_or_the_subject_however_often_it_was_answered() -> None:
    def of(sender: str, receiver: str, subject: str, **metadata: str) -> Exchange:
        return Exchange.of(
            Message(id="1", sender_id=sender, receiver_id=receiver, subject=subject, metadata=dict(metadata))
        )

    assert of("a", "b", "Thanks") == of("b", "a", "Re: RE:thanks ")
    assert of("a", "b", " ") == of("b", "a", "")
    assert of("a", "b", "Thanks") != of("a", "c", "Thanks")
    assert of("a", "b", "x", conversation_id="cnv_1") == of("b", "a", "y", conversation_id="cnv_1")
    assert of("a", "b", "x", conversation_id="cnv_1") != of("a", "b", "x")


def test_the_nearest_above_both_that_is_neither_of_them_hears_of_it() -> None:
    people = [
        ("o", "owner", None),
        ("m", "admin", "o"),
        ("n", "admin", "o"),
        ("a", "worker", "m"),
        ("b", "worker", "m"),
    ]
    agents = {name: Agent(id=name, role=role, parent_id=parent) for name, role, parent in people}
    agents["c"] = Agent(id="c", parent_id="nobody")

    def superior(first: str, second: str) -> str | None:
        found = common_superior(Exchange(first, second, None, ""), agents)
        return found.id if found else None

    assert [superior("a", "b"), superior("a", "m"), superior("a", "n"), superior("a", "c")] == ["m", "o", "o", "o"]
    assert superior("m", "o") is None
