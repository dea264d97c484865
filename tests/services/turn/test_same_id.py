"""A file is its path: files that say the same of themselves are messages of their own, each handed over and marked by
itself (docs/format.md, "One id, two files")."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.store.inbox_files import SAME_MAX
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import by_hand, contents, read, send, unread
from tests.services.tasks_support import dies, open_session
from tests.store.support import confirm_read

SAME = "---\nid: template\ncreated_at: '2026-11-21T12:00:00.000000Z'\nsubject: s\n{more}---\n\n{body}"


def twins(services: Services, count: int, body: str = "body", more: str = "sender_id: a{number}\n") -> list[Path]:
    """Creates files that are equal except for what `more` adds."""
    return [
        by_hand(services, "worker-a", f"{number}.md", SAME.format(more=more.format(number=number), body=body))
        for number in range(count)
    ]


def pages(services: Services, limit: int, cursor: str) -> list[dict[str, Any]]:
    """Returns the whole history, page by page; the next page is requested by the last message's id or by the answer's
    cursor."""
    found: list[dict[str, Any]] = []
    before = None
    for _ in range(20):
        answer = read(services, "worker-a", unread_only=False, limit=limit, before=before)
        found += answer["messages"]
        if "truncated" not in answer:
            return found
        before = answer["messages"][-1]["id"]
        if cursor == "hint":
            (before,) = re.findall(r'before="(.+?)"', answer["how_to_continue"])
    pytest.fail("the pages never end")


@pytest.mark.parametrize("more", ["sender_id: a{number}\n", "metadata: {{k: {number}}}\n", ""])
def test_of_two_files_that_are_equal_only_the_one_that_was_shown_is_marked(services: Services, more: str) -> None:
    twins(services, 2, more=more)
    first = read(services, "worker-a", limit=1)
    assert (first["count"], first["unread_remaining"]) == (1, 1)
    second = read(services, "worker-a", limit=1)
    assert (second["count"], second["unread_remaining"]) == (1, 0)
    if more:  # else nobody can tell them apart
        assert len({item["id"] for answer in (first, second) for item in answer["messages"]}) == 2


def test_of_an_id_that_very_many_files_have_each_is_known_by_its_path(services: Services) -> None:
    """Who puts a thousand files of one id into a mailbox has them read once and not for each of them."""
    twins(services, SAME_MAX + 1)
    read_first = read(services, "worker-a", limit=5)["messages"]
    assert [(item["id"], item["duplicate_of"]) for item in read_first] == [
        (f"{name}.md", "template") for name in (0, 1, 10, 11, 12)
    ]
    (again,) = read(services, "worker-a", message_id="11.md")["messages"]
    assert again["sender_id"] == "a11"


def test_of_two_equal_files_only_the_one_that_was_handed_out_is_given_back(services: Services) -> None:
    twins(services, 2)
    read(services, "worker-a", limit=1)  # by a person: confirmed
    session = open_session(services, "worker-a")
    (handed,) = read(services, "worker-a", session.lease)["messages"]
    dies(services, session)
    assert services.sessions.recover("worker-a") == 1
    assert [message["sender_id"] for message in read(services, "worker-a")["messages"]] == [handed["sender_id"]]


@pytest.mark.parametrize("cursor", ["id", "hint"])
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_paging_shows_every_file_once_whatever_their_ids_and_times(services: Services, limit: int, cursor: str) -> None:
    twins(services, 7)
    for number in range(3):  # of the same time, with ids of their own
        by_hand(
            services, "worker-a", f"own{number}.md", SAME.format(more="", body="x").replace("template", f"i{number}")
        )
    found = pages(services, limit, cursor)
    assert sorted(item["sender_id"] for item in found) == [*(f"a{number}" for number in range(7)), *["unknown"] * 3]
    assert len({item["id"] for item in found}) == 10


@pytest.mark.parametrize("cursor", ["id", "hint"])
def test_paging_shows_every_file_once_in_the_archive_too(services: Services, cursor: str) -> None:
    twins(services, 5)
    read(services, "worker-a")
    mailbox = services.workspace.mailbox("worker-a")
    confirm_read(mailbox)
    found = pages(services, 2, cursor)
    assert sorted(item["sender_id"] for item in found) == [f"a{number}" for number in range(5)]


def test_two_long_messages_with_one_id_are_each_read_to_their_own_end(services: Services) -> None:
    texts = [letter * 20_000 for letter in "xyz"]
    for number, text in enumerate(texts):
        by_hand(services, "worker-a", f"{number}.md", SAME.format(more="", body=text))
    whole = []
    while unread(services, "worker-a"):
        (begun,) = read(services, "worker-a")["messages"]
        text = str(begun["content"])
        while len(text) < begun["content_length"]:
            (item,) = read(services, "worker-a", message_id=begun["id"], offset=len(text))["messages"]
            assert item["id"] == begun["id"]
            text += item["content"]
        whole.append(text)
    assert sorted(whole) == texts


def test_the_first_file_keeps_the_id_and_the_others_say_whose_they_bear(services: Services) -> None:
    twins(services, 2)
    shown = {item["id"]: item for item in read(services, "worker-a")["messages"]}
    assert set(shown) == {"template", "1.md"}
    assert shown["1.md"]["duplicate_of"] == "template"
    assert "duplicate_of" not in shown["template"]
    again = [read(services, "worker-a", message_id=named)["messages"][0]["sender_id"] for named in shown]
    assert again == [shown[named]["sender_id"] for named in shown]


def test_a_copy_of_a_message_takes_nothing_from_the_original(services: Services) -> None:
    sent = send(services, "admin", "worker-a", "original")
    mailbox = services.workspace.mailbox("worker-a")
    ((name, _),) = mailbox.unread()
    (mailbox.path / "0.md").write_bytes((mailbox.path / name).read_bytes())  # comes first by its name
    assert {item["id"] for item in read(services, "worker-a")["messages"]} == {sent.message_id, "0.md"}
    confirm_read(mailbox)
    found = pages(services, 1, "id")
    assert [item["content"] for item in found] == ["original"] * 2
    assert found[0]["id"] != found[1]["id"]


@pytest.mark.parametrize("second", ["2026-10-21", "2026-11-21", "2026-12-21"])
@pytest.mark.parametrize("moves", [("1.md",), ("0.md",), ("1.md", "0.md"), ("0.md", "1.md")])
def test_an_id_leads_to_the_same_file_whatever_was_archived_since(
    services: Services, clock: Clock, second: str, moves: tuple[str, ...]
) -> None:
    for name, day in (("0.md", "2026-11-21"), ("1.md", second)):
        header = f"---\nid: template\nsender_id: of-{name}\ncreated_at: '{day}T12:00:00.000000Z'\n---\n\n"
        by_hand(services, "worker-a", name, header + "body")
    shown = {item["id"]: item["sender_id"] for item in read(services, "worker-a", mark_as_read=False)["messages"]}
    mailbox = services.workspace.mailbox("worker-a")
    for name in moves:
        mailbox.mark_read([name], clock())
        confirm_read(mailbox)
    (again,) = read(services, "worker-a", message_id="template")["messages"]
    assert (again["id"], again["sender_id"]) == ("template", shown["template"])


def test_a_file_whose_id_an_archived_one_has_is_told_from_it(services: Services) -> None:
    twins(services, 1, more="sender_id: earlier\n")
    read(services, "worker-a")
    confirm_read(services.workspace.mailbox("worker-a"))
    twins(services, 1, more="sender_id: later\n")
    (later,) = read(services, "worker-a")["messages"]
    assert (later["id"], later["duplicate_of"]) == ("0.md", "template")
    found = [read(services, "worker-a", message_id=named)["messages"][0] for named in ("0.md", "template")]
    assert [item["sender_id"] for item in found] == ["later", "earlier"]


def test_an_id_that_looks_like_anothers_file_name_leads_to_the_right_file(services: Services) -> None:
    by_hand(services, "worker-a", "a.md", "---\nid: b.md\n---\n\nthis is a")
    by_hand(services, "worker-a", "b.md", "---\nid: a.md\n---\n\nthis is b")
    shown = {item["id"]: item["content"] for item in read(services, "worker-a")["messages"]}
    assert len(shown) == 2
    for named, content in shown.items():
        assert contents(read(services, "worker-a", message_id=named)) == [content]


@pytest.mark.parametrize("named", ["../worker-b/x.md", "archive/../x.md", "/etc/x.md", ".md", "archive/2026-11/x.md"])
def test_a_path_names_nothing_outside_the_mailbox(services: Services, named: str) -> None:
    by_hand(services, "worker-b", "x.md", "---\nid: x\n---\n\nanother's")
    by_hand(services, "worker-a", "x.md", "---\nid: x\n---\n\nmine")
    assert services.workspace.mailbox("worker-a").find(named) is None


def test_pages_are_turned_to_the_end_although_a_reading_before_has_archived(services: Services) -> None:
    for number in range(46):
        by_hand(services, "worker-a", f"n{number:03d}.md", SAME.format(more="", body=str(number)))
    found = list(itertools.chain(read(services, "worker-a", limit=10)["messages"], pages(services, 10, "id")))
    assert {item["content"] for item in found} == {str(number) for number in range(46)}


ODD = [b"\xff.md", b"a\nb.md", b"c: 'd\".md", b"- e.md", b"null.md", b"f" * 250 + b".md", "\u202e.md".encode()]


@pytest.mark.parametrize("header", [b"subject: none\n", b"id: one\n"])
def test_a_file_may_have_any_name_and_is_handed_out_and_given_back_all_the_same(
    services: Services, header: bytes
) -> None:
    """Formerly a name that is not UTF-8 kept all the mail from its reader."""
    mailbox = services.workspace.mailbox("worker-a")
    for name in ODD:
        Path(os.fsdecode(os.fsencode(mailbox.path) + b"/" + name)).write_bytes(b"---\n" + header + b"---\n\nbody")
    session = open_session(services, "worker-a")
    shown = read(services, "worker-a", session.lease)["messages"]
    assert len({item["id"].encode() for item in shown}) == len(ODD)
    for item in shown:
        assert read(services, "worker-a", message_id=item["id"])["messages"][0]["id"] == item["id"]
    dies(services, session)
    assert services.sessions.recover("worker-a") == len(ODD)
    assert unread(services, "worker-a") == len(ODD)
