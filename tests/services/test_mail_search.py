"""Everything anybody wrote, for people who look: paged, filtered, and nothing is marked read by it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.errors import MessageNotFound
from multi_agent_mcp.services.mail_search import MailSearch
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import by_hand, read, send, unread


def shown(services: Services, **asked: object) -> list[str]:
    return [message.content for message in services.mail_search.page(**asked).messages]  # type: ignore[arg-type]


@pytest.fixture
def talk(services: Services, clock: Clock) -> Services:
    """admin → a, a → admin, admin → b, owner → admin, one second apart."""
    lines = [("admin", "worker-a"), ("worker-a", "admin"), ("admin", "worker-b"), ("owner", "admin")]
    for number, (sender, receiver) in enumerate(lines):
        send(services, sender, receiver, f"{number}: {sender} to {receiver}")
        clock.advance(1)
    return services


def test_a_page_shows_all_mailboxes_newest_first(talk: Services) -> None:
    assert shown(talk) == [
        "3: owner to admin",
        "2: admin to worker-b",
        "1: worker-a to admin",
        "0: admin to worker-a",
    ]


def test_looking_marks_nothing_read(talk: Services) -> None:
    talk.mail_search.get(talk.mail_search.page().messages[0].id)
    assert [unread(talk, agent_id) for agent_id in ("admin", "worker-a", "worker-b")] == [2, 1, 1]


def test_pages_follow_one_another_without_gap_or_repetition(talk: Services) -> None:
    first = talk.mail_search.page(limit=3)
    assert first.more
    rest = talk.mail_search.page(limit=3, before=first.messages[-1].id)
    assert not rest.more
    assert [message.content[0] for message in (*first.messages, *rest.messages)] == ["3", "2", "1", "0"]


def test_files_of_one_time_and_one_id_stay_on_one_page(services: Services) -> None:
    """The next page is asked for by an id, which does not tell them apart."""
    for number in range(5):
        by_hand(services, "worker-a", f"{number}.md", f"---\nid: same\ncreated_at: 2026-11-21\n---\n\n{number}")
    by_hand(services, "worker-a", "older.md", "---\nid: older\ncreated_at: 2026-11-20\n---\n\nolder")
    first = services.mail_search.page(limit=2)
    assert sorted(message.content for message in first.messages) == list("01234")
    assert first.more
    assert [item.content for item in services.mail_search.page(limit=2, before="same").messages] == ["older"]


def test_a_page_that_holds_exactly_the_rest_says_that_there_is_no_more(talk: Services) -> None:
    assert not talk.mail_search.page(limit=4).more


def test_messages_are_chosen_by_receiver_sender_and_pair(talk: Services) -> None:
    assert shown(talk, receiver_id="admin") == ["3: owner to admin", "1: worker-a to admin"]
    assert shown(talk, sender_id="admin") == ["2: admin to worker-b", "0: admin to worker-a"]
    assert shown(talk, between=("worker-a", "admin")) == ["1: worker-a to admin", "0: admin to worker-a"]
    assert shown(talk, receiver_id="nobody") == []


def test_only_unread_mail_is_shown_when_asked_also_after_a_place_that_was_read(talk: Services) -> None:
    read(talk, "admin")
    assert shown(talk, unread_only=True) == ["2: admin to worker-b", "0: admin to worker-a"]
    newest = talk.mail_search.page().messages[0]
    assert newest.read_at is not None
    assert shown(talk, unread_only=True, before=newest.id) == ["2: admin to worker-b", "0: admin to worker-a"]


def test_the_mail_of_a_removed_agent_is_still_history(talk: Services) -> None:
    talk.agents.remove("worker-b")
    assert "2: admin to worker-b" in shown(talk)


def test_a_hand_written_note_is_shown_where_its_time_puts_it(talk: Services) -> None:
    by_hand(talk, "worker-b", "note.md", "---\nsender_id: owner\ncreated_at: 2026-11-21T21:46:02.5Z\n---\n\nby hand")
    assert shown(talk, limit=3) == ["3: owner to admin", "2: admin to worker-b", "by hand"]


def test_a_page_has_the_beginning_of_a_message_and_get_all_of_it(services: Services) -> None:
    sent = send(services, "admin", "worker-a", "x" * 50_000)
    (head,) = services.mail_search.page().messages
    assert len(head.content) < 1_000
    assert services.mail_search.get(sent.message_id).content == "x" * 50_000


@pytest.mark.parametrize("unknown", ["nothing", "../../secrets", ""])
def test_an_unknown_message_is_refused(talk: Services, unknown: str) -> None:
    with pytest.raises(MessageNotFound):
        talk.mail_search.get(unknown)
    with pytest.raises(MessageNotFound):
        talk.mail_search.page(before=unknown)


def found_messages(services: Services, clock: Clock) -> list[tuple[str, str, str]]:
    """Of the last hour, as a process that has just started finds them."""
    found, _ = MailSearch(services.session).during(clock.now - timedelta(hours=1), clock.now, 100)
    return [(message.sender_id, message.receiver_id, message.subject) for message in found]


@pytest.fixture
def noted(talk: Services, clock: Clock) -> Path:
    """The index of what the admin has read, which somebody has counted."""
    for agent_id in ("admin", "worker-a", "worker-b"):
        read(talk, agent_id)
    found_messages(talk, clock)
    (index,) = talk.path.glob(".index/ipc/admin/archive/*.envelopes")
    return index


def test_what_was_counted_once_is_counted_from_its_index(noted: Path, talk: Services, clock: Clock) -> None:
    before = found_messages(talk, clock)
    assert [pair[:2] for pair in before] == [
        ("admin", "worker-a"),
        ("worker-a", "admin"),
        ("admin", "worker-b"),
        ("owner", "admin"),
    ]
    noted.write_text(noted.read_text().replace('"owner"', '"whoever"'))
    assert found_messages(talk, clock)[-1][0] == "whoever"


@pytest.mark.parametrize("damage", ["", "{", "[" * 100_000, "[1]", "[[1, 2, 3]]", '{"a": 1}', "\udcff"])
def test_a_damaged_index_is_made_again(noted: Path, talk: Services, clock: Clock, damage: str) -> None:
    before, content = found_messages(talk, clock), noted.read_text()
    noted.write_bytes(damage.encode(errors="surrogateescape"))
    assert found_messages(talk, clock) == before
    assert noted.read_text() == content


def test_a_message_that_a_person_edited_is_read_again(noted: Path, talk: Services, clock: Clock) -> None:
    (path,) = (path for path in talk.path.glob("ipc/admin/archive/*/*.md") if "sender_id: owner" in path.read_text())
    path.write_text(path.read_text().replace("sender_id: owner", "sender_id: worker-b"))
    assert found_messages(talk, clock)[-1][0] == "worker-b"
    path.unlink()
    assert len(found_messages(talk, clock)) == 3
    assert noted.exists()
