"""Search: whatever a session holds is found by any part of it, and nothing that is not there."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.errors import AgentNotFound, InvalidArguments
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.services.search import Found, SearchQuery, parts
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import by_hand, read, send, unread
from tests.services.tasks_support import new
from tests.store.support import confirm_read


def search(services: Services, *words: str, **wanted: object) -> list[Found]:
    return services.search.find(SearchQuery(words=words, **wanted)).found  # type: ignore[arg-type]


def titles(found: list[Found]) -> list[str]:
    return [item.title for item in found]


def test_thousands_of_words_are_looked_for_and_all_of_them_must_be_there(services: Services) -> None:
    words = [f"word{number}" for number in range(5_000)]
    send(services, "admin", "worker-a", " ".join(words), subject="all of them")
    send(services, "admin", "worker-a", " ".join(words[:-1]), subject="but the last")
    assert titles(search(services, *words)) == ["all of them"]
    assert titles(search(services, "word" * 50_000)) == []
    assert services.search.prepared(60) is None


@pytest.mark.parametrize(
    "word",
    ["ログイン", "ﾛｸﾞｲﾝ", "画面", "面", "画面の", "LOGIN", "ogi", "g", "login screen", "。", '"', "100%", "a_b", "end"],
)
def test_any_part_of_a_text_finds_it_whatever_its_case_and_width(services: Services, word: str) -> None:
    send(services, "admin", "worker-a", 'ログイン画面の設計。 The Login Screen: 100% "quoted" a_b end', subject="first")
    send(services, "admin", "worker-a", "何もなし", subject="second")
    assert titles(search(services, word)) == ["first"]


def test_all_the_words_are_wanted_in_any_order(services: Services, clock: Clock) -> None:
    send(services, "admin", "worker-a", "alpha beta", subject="both")
    clock.advance(1)
    send(services, "admin", "worker-a", "alpha", subject="one")
    assert titles(search(services, "beta", "alpha")) == ["both"]
    assert titles(search(services, "alpha")) == ["one", "both"]
    assert search(services, "beta alpha") == []


def test_tasks_conversations_and_logs_are_found_with_mail(services: Services) -> None:
    admin, worker = services.agents.get("admin"), services.agents.get("worker-a")
    new = NewTask(title="parser", description="zebra", assignee_id="worker-a")
    task = services.task_creation.create(admin, [new])[0]
    conversation, _ = services.conversations.begin(
        worker, services.agents.get("worker-b"), "hello", purpose="zebra talk"
    )
    session = services.sessions.open("worker-a", "task")
    execution = services.executions.begin(session.record, task.id)
    for number in range(1_000):
        services.executions.log(execution, f"line {number}" if number != 800 else "a zebra crossing")
    found = {item.kind: item for item in search(services, "zebra")}
    assert found.keys() == {"message", "task", "conversation", "log"}
    assert (found["task"].id, found["conversation"].id) == (task.id, conversation.id)
    log = found["log"]
    assert (log.id, log.task_id, log.title) == (execution.id, task.id, "parser")
    assert log.line is not None
    lines = (services.path / log.path).read_text().splitlines()
    assert "zebra" in lines[log.line - 1]
    services.executions.log(execution, "a quagga")
    assert [item.kind for item in search(services, "quagga")] == ["log"]


def test_questions_are_found_by_their_choices_answer_and_note_when_they_are_closed_too(services: Services) -> None:
    worker, admin = services.agents.get("worker-a"), services.agents.get("admin")
    asking = Asking(question="Which animal?\nOne only.", choices=("a zebra", "an okapi"))
    question = services.questions.ask(worker, asking, None)
    (found,) = search(services, "zebra", "okapi", sender_id="worker-a", receiver_id="admin")
    assert (found.kind, found.id, found.title) == ("question", question.id, "Which animal? One only.")
    services.questions.answer(admin, question.id, "an okapi", "it hides better")
    (found,) = search(services, "hides", "animal")
    assert (found.id, "archive" in found.path) == (question.id, True)


def test_filters_narrow_what_is_found(services: Services, clock: Clock) -> None:
    send(services, "admin", "worker-a", "the word", subject="down")
    clock.advance(1)
    send(services, "worker-a", "admin", "the word", subject="up", metadata={"task_id": "tsk_0123456789ab"})
    assert titles(search(services, "word", sender_id="admin")) == ["down"]
    assert titles(search(services, "word", receiver_id="admin")) == ["up"]
    assert titles(search(services, task_id="tsk_0123456789ab")) == ["up"]
    assert search(services, "word", sender_id="worker-b") == []
    with pytest.raises(AgentNotFound):  # a part of a name is not a name
        search(services, "word", sender_id="adm")
    newest = search(services, "word")[0].at
    assert titles(search(services, "word", until=newest - timedelta(microseconds=1))) == ["down"]
    assert titles(search(services, "word", since=newest)) == ["up"]


def test_a_broadcast_and_a_conversations_message_are_found_once(services: Services) -> None:
    send(services, "owner", None, "to everybody", subject="all")
    services.conversations.begin(services.agents.get("worker-a"), services.agents.get("worker-b"), "between us")
    assert len(search(services, "everybody")) == 1
    assert [item.kind for item in search(services, "between us")] == ["message"]


def test_what_was_changed_moved_or_removed_is_found_as_it_is_now(services: Services) -> None:
    send(services, "admin", "worker-a", "read and archived")
    by_hand(services, "worker-a", "note.md", "---\nsubject: x\n---\n\nby hand")
    assert len(search(services, "by hand")) == 1
    assert len(search(services, "archived")) == 1
    read(services, "worker-a")
    confirm_read(services.workspace.mailbox("worker-a"))
    (found,) = search(services, "archived")
    assert "/archive/" in found.path
    (by_hand_found,) = search(services, "by hand")
    (services.path / by_hand_found.path).unlink()
    assert search(services, "by hand") == []


def test_an_edit_in_place_is_never_answered_with_the_old_text(services: Services) -> None:
    path = by_hand(services, "worker-a", "note.md", "---\nsubject: x\n---\n\nthe old words")
    assert len(search(services, "old words")) == 1
    path.write_text("---\nsubject: x\n---\n\nthe new words")
    assert search(services, "old words") == []
    services.search.rebuild()
    assert len(search(services, "new words")) == 1


@pytest.mark.parametrize("damage", ["deleted", "garbage", "cut", "emptied", "scribbled over"])
def test_the_index_may_be_deleted_or_damaged_at_any_time(services: Services, damage: str) -> None:
    send(services, "admin", "worker-a", "still there")
    assert len(search(services, "still")) == 1
    path = services.search.index.path
    match damage:
        case "deleted":
            path.unlink()
        case "garbage":
            path.write_bytes(b"no database at all" * 1_000)
        case "cut":
            os.truncate(path, path.stat().st_size // 2)
        case "emptied":
            os.truncate(path, 0)
        case "scribbled over":
            whole = path.read_bytes()
            path.write_bytes(whole[:4096] + b"\xff" * 8_000 + whole[12_096:])
    for leftover in path.parent.glob("*-*"):
        leftover.unlink()
    assert len(search(services, "still")) == 1


def test_several_search_and_build_at_once(services: Services) -> None:
    for number in range(30):
        send(services, "admin", f"worker-{'ab'[number % 2]}", f"number {number} of many")
    counts: list[int] = []

    def look() -> None:
        counts.append(len(services.search.find(SearchQuery(words=("of many",)), limit=100).found))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [30] * 4


def test_what_an_id_names_is_found_whatever_is_in_the_place_of_a_mailbox(services: Services) -> None:
    task = new(services)
    mailbox = services.workspace.mailbox("worker-a").hot.path
    shutil.rmtree(mailbox)
    mailbox.write_text("no directory")
    assert services.lookup.find(task.id).place.entity == task


def test_a_search_for_nothing_is_refused(services: Services) -> None:
    with pytest.raises(InvalidArguments):
        search(services, " ", "")


def test_a_link_among_the_mail_leads_nowhere(services: Services, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "note.md").write_text("a secret")
    (services.path / "ipc" / "elsewhere").symlink_to(outside)
    (services.path / "ipc" / "worker-a" / "note.md").symlink_to(outside / "note.md")
    assert search(services, "secret") == []


def test_a_line_of_words_is_taken_apart_as_people_write_it(services: Services, clock: Clock) -> None:
    send(services, "admin", "worker-a", "from:nobody knows the word")
    assert parts('word "the word" from:admin  to:"worker-a"　画面') == [
        "word",
        '"the word"',
        "from:admin",
        'to:"worker-a"',
        "画面",
    ]
    for line in ('"the word" from:admin', "word to:worker-a", '"from:nobody"', f"word after:{clock.now:%Y-%m-%d}"):
        assert len(services.search.find(SearchQuery.parse(parts(line))).found) == 1, line
    for line in ("word from:worker-a", f"word before:{clock.now:%Y-%m-%d}"):
        assert services.search.find(SearchQuery.parse(parts(line))).found == [], line


def test_the_sender_of_a_hand_written_file_is_found_without_being_an_agent(services: Services) -> None:
    by_hand(services, "worker-a", "note.md", "---\nsender_id: ci\n---\n\nby hand\n")
    assert len(search(services, "hand", sender_id="ci")) == 1
    with pytest.raises(AgentNotFound):
        search(services, "elsewhere", sender_id="ci")


def test_a_search_that_was_killed_amid_building_is_gone_on_with(services: Services) -> None:
    for agent_id in ("worker-a", "worker-b"):
        send(services, "admin", agent_id, f"for {agent_id}")

    def killed() -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            services.search.find(SearchQuery(words=("for worker",)), told=killed)
    assert len(search(services, "for worker")) == 2


def test_a_name_that_is_no_text_hides_nothing(services: Services) -> None:
    path = by_hand(services, "worker-a", "good.md", "---\nsubject: good\n---\n\nzebra")
    odd = os.path.join(os.fsencode(path.parent), b"\xff\xfe.md")  # noqa: PTH118 - pathlib takes no bytes
    with open(odd, "wb") as file:
        file.write(b"---\nsubject: odd\n---\n\nzebra")
    found = search(services, "zebra")
    assert sorted(titles(found)) == ["good", "odd"]
    assert all(item.path.encode() for item in found)


def test_what_was_set_aside_is_not_found_and_stays_where_it_is(services: Services) -> None:
    mailbox = services.workspace.path / "ipc" / "worker-a"
    (mailbox / "broken.md").write_bytes(b"---\nsubject: [\n---\n\nhello")
    assert unread(services, "worker-a") == 0
    (mailbox / "quarantine" / "fixed.md").write_bytes(b"---\nsender_id: admin\n---\n\nhello")
    before = sorted(mailbox.rglob("*"))
    assert [search(services, "hello") for _ in range(2)] == [[], []]
    assert sorted(mailbox.rglob("*")) == before


def test_a_link_in_place_of_the_index_leads_nowhere(services: Services, tmp_path: Path) -> None:
    send(services, "admin", "worker-a", "found without an index")
    (services.path / ".search").symlink_to(tmp_path)
    assert len(search(services, "without")) == 1
    assert not (tmp_path / "index.sqlite").exists()


def test_a_table_that_somebody_dropped_is_made_again(services: Services) -> None:
    send(services, "admin", "worker-a", "still there")
    assert len(search(services, "still")) == 1
    with closing(sqlite3.connect(services.search.index.path)) as database:
        database.execute("DROP TABLE documents")
    assert len(search(services, "still")) == 1


def test_what_was_read_so_far_is_found_while_the_index_is_made(services: Services) -> None:
    for sender_id, receiver_id in (("admin", "worker-a"), ("admin", "worker-b"), ("worker-a", "admin")):
        send(services, sender_id, receiver_id, "hello")
    query, seen = SearchQuery(words=("hello",)), list[int]()
    services.search.find(query, told=lambda: seen.append(len(services.search.so_far(query, 20).found)))
    assert seen[0] == 0
    assert {1, 2} <= set(seen)
    assert len(services.search.so_far(query, 20).found) == 3
