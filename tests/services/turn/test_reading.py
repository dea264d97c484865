"""Reading: in order, within an answer's size, and nothing consumed that was not delivered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import MessageNotFound, StorageError
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import by_hand, contents, mail, read, send, size, unread
from tests.store.support import confirm_read

LIMIT = 9_000


def continued(services: Services, reader: str, message_id: str) -> str:
    """The whole content, fetched as an agent would: by message_id and offset until nothing is cut."""
    text = ""
    while True:
        answer = read(services, reader, message_id=message_id, offset=len(text))
        assert size(answer) < LIMIT
        (message,) = answer["messages"]
        text += str(message["content"])
        if not message.get("content_truncated"):
            assert "truncated" not in answer
            return text
        assert message["content_length"] > len(text)
        assert f"offset={len(text)}" in answer["how_to_continue"]
        assert message["content"]


def test_unread_mail_comes_urgent_first_and_then_oldest_first(services: Services, clock: Clock) -> None:
    for content, priority in [("1", "low"), ("2", "high"), ("3", "urgent"), ("4", "normal"), ("5", "urgent")]:
        send(services, "admin", "worker-a", content, priority=priority)
        clock.advance(1)
    answer = read(services, "worker-a")
    assert contents(answer) == ["3", "5", "1", "2", "4"]
    assert (answer["count"], answer["unread_remaining"], answer["dashboard_updated"]) == (5, 0, False)


def test_a_message_is_handed_over_once_with_the_time_it_was_read(services: Services, clock: Clock) -> None:
    sent = send(services, "admin", "worker-a", "x", subject="件名", metadata={"k": 1})
    clock.advance(1)
    (message,) = read(services, "worker-a")["messages"]
    assert message == {
        "id": sent.message_id,
        "sender_id": "admin",
        "receiver_id": "worker-a",
        "message_type": "request",
        "priority": "normal",
        "subject": "件名",
        "content": "x",
        "created_at": "2026-11-21T21:46:01.123456Z",
        "read_at": "2026-11-21T21:46:02.123456Z",
        "metadata": {"k": 1},
        "authority": "superior",
    }
    assert read(services, "worker-a")["messages"] == []


def test_a_limit_stops_early_says_so_and_marks_only_what_was_handed_over(services: Services) -> None:
    for number in range(5):
        send(services, "admin", "worker-a", str(number))
    answer = read(services, "worker-a", limit=2)
    assert (answer["count"], answer["unread_remaining"], answer["truncated"]) == (2, 3, True)
    assert answer["how_to_continue"]
    assert read(services, "worker-a", limit=3)["count"] == 3
    assert unread(services, "worker-a") == 0


def test_looking_without_marking_changes_nothing(services: Services) -> None:
    send(services, "admin", "worker-a")
    for _ in range(2):
        answer = read(services, "worker-a", mark_as_read=False)
        assert (answer["count"], answer["unread_remaining"]) == (1, 1)
        assert answer["messages"][0]["read_at"] is None


def test_one_type_can_be_asked_for_and_the_others_stay_unread(services: Services) -> None:
    send(services, "admin", "worker-a", "a", message_type="request")
    send(services, "admin", "worker-a", "b", message_type="system")
    assert contents(read(services, "worker-a", message_type="system")) == ["b"]
    assert contents(read(services, "worker-a", unread_only=False, message_type="system")) == ["b"]
    assert contents(read(services, "worker-a")) == ["a"]


def test_history_pages_newest_first_into_the_archive(services: Services, clock: Clock) -> None:
    for number in range(7):
        send(services, "admin", "worker-a", str(number))
        clock.advance(40 * 86_400)
    read(services, "worker-a")
    confirm_read(services.workspace.mailbox("worker-a"))
    send(services, "admin", "worker-a", "unread")
    pages: list[list[str]] = []
    before = None
    while True:
        answer = read(services, "worker-a", unread_only=False, limit=3, before=before)
        pages.append(contents(answer))
        if "truncated" not in answer:
            break
        before = answer["messages"][-1]["id"]
        assert before in answer["how_to_continue"]
    assert pages == [["unread", "6", "5"], ["4", "3", "2"], ["1", "0"]]
    assert unread(services, "worker-a") == 0


@pytest.mark.parametrize("query", [{"message_id": "gone"}, {"before": "gone", "unread_only": False}])
def test_a_message_that_is_not_there_is_said_to_be_missing(services: Services, query: dict[str, Any]) -> None:
    send(services, "admin", "worker-a")
    with pytest.raises(MessageNotFound):
        read(services, "worker-a", **query)
    assert unread(services, "worker-a") == 1


def test_a_message_in_somebody_elses_mailbox_is_not_there(services: Services) -> None:
    sent = send(services, "admin", "worker-b")
    with pytest.raises(MessageNotFound):
        read(services, "worker-a", message_id=sent.message_id)


HARD = {
    "plain": "0123456789" * 3_000,
    "control": "\x01\x1f\x7f\x00" * 8_000,
    "quotes": '"\\' * 10_000,
    "emoji": "👩‍👩‍👧🎉" * 5_000,
    "lines": "\r\n\t" * 10_000,
    "japanese": "本文" * 10_000,
    "separators": "\u2028\u2029\x85\ufeff" * 5_000,
}


@pytest.mark.parametrize("text", HARD.values(), ids=HARD.keys())
def test_a_long_message_is_cut_to_an_answer_and_continues_to_its_last_character(services: Services, text: str) -> None:
    sent = send(services, "admin", "worker-a", text, subject="s" * 500)
    answer = read(services, "worker-a")
    (message,) = answer["messages"]
    assert size(answer) < LIMIT
    assert (message["content_truncated"], message["content_length"]) == (True, len(text))
    assert text.startswith(message["content"])
    assert len(message["content"]) > 1_000
    assert unread(services, "worker-a") == 0
    assert continued(services, "worker-a", sent.message_id) == text


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(min_size=1, max_size=40), times=st.integers(1, 800), cut=st.integers(0, 40))
def test_any_text_can_be_read_piece_by_piece(services: Services, text: str, times: int, cut: int) -> None:
    whole = text * times + text[:cut]
    sent = send(services, "admin", "worker-b", whole)
    assert continued(services, "worker-b", sent.message_id) == whole


@pytest.mark.parametrize("length", [7_000, 7_800, 8_000, 8_050, 8_100, 8_150, 8_200, 8_300, 8_400, 8_500, 9_000])
def test_around_the_limit_an_answer_is_whole_or_cut_and_never_too_large(services: Services, length: int) -> None:
    sent = send(services, "admin", "worker-a", "x" * length)
    answer = read(services, "worker-a")
    assert size(answer) < LIMIT
    assert answer["messages"][0].get("content_truncated", False) == (len(answer["messages"][0]["content"]) < length)
    assert continued(services, "worker-a", sent.message_id) == "x" * length


def test_an_offset_beyond_the_end_is_empty_and_says_how_long_the_message_is(services: Services) -> None:
    sent = send(services, "admin", "worker-a", "short")
    (message,) = read(services, "worker-a", message_id=sent.message_id, offset=99)["messages"]
    assert (message["content"], message["content_truncated"], message["content_length"]) == ("", False, 5)


def test_many_messages_come_in_several_answers_each_below_the_limit(services: Services) -> None:
    for number in range(30):
        send(services, "admin", "worker-a", f"{number:02d}" + "\x01" * 200, subject="s" * 200)
    seen: list[str] = []
    while unread(services, "worker-a"):
        answer = read(services, "worker-a")
        assert size(answer) < LIMIT
        assert answer["messages"]
        seen += [text[:2] for text in contents(answer)]
        assert answer["unread_remaining"] == 30 - len(seen)
    assert sorted(seen) == [f"{number:02d}" for number in range(30)]


def test_a_long_message_behind_a_short_one_waits_for_the_next_answer(services: Services, clock: Clock) -> None:
    send(services, "admin", "worker-a", "short")
    clock.advance(1)
    send(services, "admin", "worker-a", "x" * 20_000)
    clock.advance(1)
    send(services, "admin", "worker-a", "last")
    first, second = read(services, "worker-a"), read(services, "worker-a")
    assert contents(first) == ["short"]
    assert second["messages"][0]["content_truncated"]
    assert contents(read(services, "worker-a")) == ["last"]


@pytest.mark.parametrize(
    "header",
    [
        "subject: " + "s" * 30_000,
        'subject: "' + "\\x01" * 5_000 + '"',
        "metadata: {k: " + "v" * 30_000 + "}",
        "sender_id: " + "s" * 30_000,
        "message_type: " + "s" * 30_000,
        "priority: " + "s" * 30_000,
    ],
)
def test_a_hand_written_header_beyond_all_measure_still_gives_a_small_answer(services: Services, header: str) -> None:
    by_hand(services, "worker-a", "big.md", f"---\n{header}\n---\n\n" + "body " * 5_000)
    send(services, "admin", "worker-a", "the other one")
    answers = []
    while unread(services, "worker-a"):
        answers.append(read(services, "worker-a"))
        assert size(answers[-1]) < LIMIT
    assert sum(answer["count"] for answer in answers) == 2
    assert continued(services, "worker-a", "big") == "body " * 5_000


def test_metadata_that_is_no_json_hides_no_message(services: Services) -> None:
    by_hand(services, "worker-a", "note.md", "---\nmetadata: {due: 2026-12-01, n: .nan}\n---\n\nlook")
    send(services, "admin", "worker-a", "other")
    assert sorted(contents(read(services, "worker-a"))) == ["look", "other"]


def test_what_cannot_be_read_is_counted_once_and_hides_nothing(services: Services) -> None:
    by_hand(services, "worker-a", "bad.md", "no front matter")
    send(services, "admin", "worker-a", "good")
    mailbox = services.workspace.mailbox("worker-a")
    assert contents(read(services, "worker-a")) == ["good"]
    assert mailbox.hot.quarantine.take_news() == 1
    assert mailbox.hot.quarantine.take_news() == 0


@pytest.mark.parametrize("name", ["b" * 250 + ".md", "\udcff.md"])
def test_a_file_that_cannot_be_read_hides_no_other_whatever_its_name(services: Services, name: str) -> None:
    (services.workspace.mailbox("worker-a").path / name).write_text("no front matter")
    send(services, "admin", "worker-a", "good")
    assert contents(read(services, "worker-a")) == ["good"]
    assert services.workspace.mailbox("worker-a").hot.quarantine.take_news() == 1


def test_two_files_with_one_id_are_both_delivered_one_by_one(services: Services) -> None:
    for number in (1, 2):
        by_hand(services, "worker-a", f"{number}.md", f"---\nid: template\nsubject: s{number}\n---\n\nbody {number}")
    answers = [read(services, "worker-a", limit=1) for _ in range(2)]
    assert sorted(text for answer in answers for text in contents(answer)) == ["body 1", "body 2"]


def test_two_files_with_one_id_keep_their_own_headers(services: Services) -> None:
    for number in (1, 2):
        by_hand(services, "worker-a", f"{number}.md", f"---\nid: template\nsubject: s{number}\n---\n\nbody {number}")
    shown = {(message["subject"], message["content"]) for message in read(services, "worker-a")["messages"]}
    assert shown == {("s1", "body 1"), ("s2", "body 2")}


def test_a_message_edited_in_place_is_read_as_it_is_now(services: Services) -> None:
    path = by_hand(services, "worker-a", "note.md", "---\nid: note\n---\n\ndraft")
    assert services.unread_mail_count("worker-a") == 1
    path.write_text("---\nid: note\n---\n\nfinal")
    assert contents(read(services, "worker-a")) == ["final"]


def test_messages_are_leased_before_they_are_marked(services: Services) -> None:
    send(services, "admin", "worker-a")
    (path,) = mail(services)
    told: list[tuple[tuple[str, ...], int]] = []
    read(services, "worker-a", lease=lambda ids: told.append((ids, unread(services, "worker-a"))))
    reference = f"{path.relative_to(services.workspace.path)} {format_time(services.clock())}"
    assert told == [((reference,), 1)]


def test_nothing_is_marked_when_it_cannot_be_held(services: Services) -> None:
    send(services, "admin", "worker-a")

    def refuse(message_ids: tuple[str, ...]) -> None:
        raise StorageError(path="ses.md", reason="disk full")

    with pytest.raises(StorageError):
        read(services, "worker-a", lease=refuse)
    assert unread(services, "worker-a") == 1


def test_nothing_is_leased_when_nothing_is_marked(services: Services) -> None:
    send(services, "admin", "worker-a")
    read(services, "worker-a")
    told: list[tuple[str, ...]] = []
    read(services, "worker-a", lease=told.append)
    read(services, "worker-a", lease=told.append, unread_only=False)
    send(services, "admin", "worker-a")
    read(services, "worker-a", lease=told.append, mark_as_read=False)
    assert told == []


def test_a_reader_that_dies_while_printing_has_consumed_nothing(services: Services, worker_a: Agent) -> None:
    send(services, "admin", "worker-a")
    handover = services.reading.select(worker_a, Query(whole=True, polling=False))
    answer = services.reading.preview(handover)
    assert (answer["count"], answer["unread_remaining"]) == (1, 0)
    assert unread(services, "worker-a") == 1
    services.reading.complete(handover)
    assert unread(services, "worker-a") == 0


def test_a_person_reads_a_long_message_in_one_piece(services: Services, worker_a: Agent) -> None:
    send(services, "admin", "worker-a", "x" * 100_000)
    handover = services.reading.select(worker_a, Query(whole=True, polling=False))
    assert contents(services.reading.preview(handover)) == ["x" * 100_000]


def test_counting_looks_at_every_file(services: Services, worker_a: Agent) -> None:
    assert services.reading.count(worker_a) == 0
    send(services, "admin", "worker-a")
    by_hand(services, "worker-a", "note.md", "---\nid: note\n---\n\nx")
    assert services.reading.count(worker_a) == services.unread_mail_count("worker-a") == 2


def test_a_message_put_in_the_place_of_one_that_is_just_handed_out_is_read_next(services: Services) -> None:
    note = by_hand(services, "worker-a", "n.md", "---\nsender_id: admin\n---\n\nfirst")

    def lease(_: tuple[str, ...]) -> None:
        other = note.with_name("other")
        other.write_text(note.read_text(encoding="utf-8").replace("first", "second"), encoding="utf-8")
        other.replace(note)

    assert [text.strip() for text in contents(read(services, "worker-a", lease))] == ["first"]
    left = services.workspace.mailbox("worker-a").hot.load("n.md")
    assert left is not None
    assert left.read_at is None
    assert [text.strip() for text in contents(read(services, "worker-a"))] == ["second"]
