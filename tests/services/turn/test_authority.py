"""What `authority` says of somebody's words: one table of cases for mail, and who gives what is to be done next."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.history import Change, History
from multi_agent_mcp.domain.message import Message, public_key
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.wiring import Services
from tests.services.support import by_hand, mail, read, send
from tests.services.tasks_support import converse, delegate, new, open_session
from tests.services.turn.test_forgeries import (
    by_another_key,
    drop,
    genuine,
    misplaced,
    tampered,
    unsigned,
    without_a_key,
)

Case = Callable[[Services], None]


def from_admin(services: Services) -> None:
    send(services, "admin", "worker-a")


def from_the_top(services: Services) -> None:
    send(services, "owner", "worker-a")


def from_a_peer(services: Services) -> None:
    send(services, "worker-b", "worker-a")


def from_itself(services: Services) -> None:
    drop(services, genuine, "worker-a", "worker-a")


def renamed_file(services: Services) -> None:
    from_admin(services)
    (path,) = mail(services)
    path.rename(path.with_name("2026.md"))


def renamed_sender(services: Services) -> None:
    from_a_peer(services)
    (path,) = mail(services)
    path.write_text(path.read_text().replace("sender_id: worker-b", "sender_id: admin"))


def stranger(services: Services) -> None:
    by_hand(services, "worker-a", "note.md", "---\nsender_id: nobody\n---\n\nhello\n")


def of_another_machine(services: Services) -> None:
    from_admin(services)
    services.agents.registry.update("admin", machine="office", machines=["office"])


def of_a_moved_superior(services: Services) -> None:
    """Its key is made again on the machine that it moves to; what it signed before stays its own."""
    from_admin(services)
    keys = {"public_key": public_key("another"), "former_public_keys": [services.agents.get("admin").public_key]}
    services.agents.registry.update("admin", machine="office", **keys)


def of_one_that_is_removed(services: Services) -> None:
    from_a_peer(services)
    services.agents.remove("worker-b")


def of_one_that_came_back(services: Services) -> None:
    of_one_that_is_removed(services)
    services.agents.add(Agent(id="worker-b", role="worker", parent_id="admin"))


def of_one_that_came_back_with_another_key(services: Services) -> None:
    of_one_that_is_removed(services)
    services.workspace.key_path("worker-b").unlink()
    services.agents.add(Agent(id="worker-b", role="worker", parent_id="admin"))


def of_a_former_superior(services: Services) -> None:
    services.agents.add(Agent(id="lead", role="admin", parent_id="admin"))
    services.agents.change("worker-a", parent_id="lead")
    send(services, "lead", "worker-a")
    services.agents.change("worker-a", parent_id="admin")


def of_one_that_was_demoted(services: Services) -> None:
    """Who was above its reader is beside it by now, in role and place."""
    services.agents.add(Agent(id="lead", role="admin", parent_id="admin"))
    services.agents.change("worker-a", parent_id="lead")
    send(services, "lead", "worker-a")
    services.agents.registry.update("worker-a", parent_id="admin")
    services.agents.registry.update("lead", role="worker")


def of_one_that_is_below_by_now(services: Services) -> None:
    of_one_that_was_demoted(services)
    services.agents.registry.update("lead", parent_id="worker-a")


def edited(services: Services) -> None:
    """A person has changed a word of it with an editor."""
    send(services, "admin", "worker-a", content="Mend the red one")
    (path,) = mail(services)
    path.write_text(path.read_text().replace("red", "blue"))


def saved_unchanged(services: Services) -> None:
    """An editor writes the same file again, in place of the old one."""
    from_admin(services)
    (path,) = mail(services)
    copy = path.with_name(f".{path.name}~")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def with_its_lines_ended_as_on_windows(services: Services) -> None:
    from_admin(services)
    (path,) = mail(services)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def renamed_receiver(services: Services) -> None:
    """Sent to somebody else, put into this mailbox, and made to look as if it was meant for it."""
    send(services, "admin", "worker-b")
    (path,) = mail(services)
    text = path.read_text().replace("receiver_id: worker-b", "receiver_id: worker-a")
    (services.path / "ipc" / "worker-a" / path.name).write_text(text)


def put_back(services: Services) -> None:
    """Its reader has read it; somebody moves it from the archive back into the mailbox, as unread."""
    from_admin(services)
    assert len(read(services, "worker-a")["messages"]) == 1
    (path,) = (services.path / "ipc" / "worker-a" / "archive").rglob("*.md")
    text = re.sub(r"^read_at: .*\n", "", path.read_text(), flags=re.MULTILINE)
    path.unlink()
    (services.path / "ipc" / "worker-a" / path.name).write_text(text)


def of_another_machine_whose_key_is_unknown(services: Services) -> None:
    """Its machine has not published it, or this one has not heard of it yet."""
    from_admin(services)
    services.agents.registry.update("admin", machine="office", public_key=None)


def in_a_broken_hierarchy(services: Services) -> None:
    from_admin(services)
    services.agents.registry.update("admin", parent_id="worker-a")
    services.agents.registry.update("worker-a", parent_id="admin")


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (from_admin, "superior"),
        (from_the_top, "superior"),
        (from_a_peer, "colleague"),
        (from_itself, "self"),
        (renamed_file, "superior"),
        (renamed_sender, "unverified"),
        (stranger, "unverified"),
        (of_another_machine, "superior"),
        (of_a_moved_superior, "superior"),
        (of_one_that_is_removed, "unverified"),
        (of_one_that_came_back, "colleague"),
        (of_one_that_came_back_with_another_key, "unverified"),
        (of_a_former_superior, "colleague"),
        (of_one_that_was_demoted, "colleague"),
        (of_one_that_is_below_by_now, "colleague"),
        (edited, "unverified"),
        (saved_unchanged, "superior"),
        (with_its_lines_ended_as_on_windows, "superior"),
        (renamed_receiver, "unverified"),
        (put_back, "superior"),
        (of_another_machine_whose_key_is_unknown, "unverified"),
    ],
)
def test_a_message_says_what_its_words_are_to_its_reader(services: Services, case: Case, expected: str) -> None:
    session = open_session(services, "worker-a")
    case(services)
    action = services.next_action.next_action(services.agents.get("worker-a"), session)
    assert (action["action"], action["authority"]) == ("read_messages", expected)
    reader = services.agents.get("worker-a")
    for query in (Query(unread_only=False, mark_as_read=False), Query(), Query(unread_only=False)):
        assert [item["authority"] for item in services.reading.read(reader, query)["messages"]] == [expected]


def test_in_a_circle_of_superiors_each_message_is_still_read(services: Services) -> None:
    in_a_broken_hierarchy(services)
    assert [message["authority"] for message in read(services, "worker-a")["messages"]] == ["superior"]


@pytest.mark.parametrize("forge", [unsigned, tampered, misplaced, by_another_key, without_a_key, genuine])
def test_no_forgery_speaks_with_a_superiors_authority(
    services: Services, forge: Callable[[Services, Message], Message]
) -> None:
    drop(services, forge, "admin", "worker-a")
    expected = "superior" if forge is genuine else "unverified"
    assert [message["authority"] for message in read(services, "worker-a")["messages"]] == [expected]


def test_a_message_that_is_played_again_has_its_authority_once(services: Services) -> None:
    from_admin(services)
    (path,) = mail(services)
    shutil.copy(path, path.with_name("again.md"))
    shown = read(services, "worker-a")["messages"]
    assert sorted((message["authority"], "duplicate_of" in message) for message in shown) == [
        ("superior", False),
        ("unverified", True),
    ]


def test_what_a_message_is_depends_on_who_reads_it(services: Services) -> None:
    for receiver in ("worker-b", "owner", "worker-a"):
        send(services, "admin", receiver)
    readers = ("worker-b", "owner", "worker-a")
    assert [read(services, who)["messages"][0]["authority"] for who in readers] == ["superior", "colleague", "superior"]


def test_words_of_a_conversation_have_it_too(services: Services) -> None:
    conversation = converse(services, open_session(services, "admin", "chat").record, "worker-a")
    (words,) = services.conversations.messages_of(conversation.id)
    spoken = services.conversations.spoken
    assert spoken(conversation, words, "worker-a")["authority"] == "superior"
    assert spoken(conversation, words, "admin")["authority"] == "self"
    assert spoken(conversation, replace(words, content="changed"), "worker-a")["authority"] == "unverified"
    assert "authority" not in spoken(conversation, words)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("admin", "superior"),
        ("owner", "superior"),
        ("worker-a", "self"),
        ("worker-b", "colleague"),
        ("gone", "unverified"),
    ],
)
def test_work_has_the_authority_of_who_gave_it(services: Services, by: str, expected: str) -> None:
    task = new(services)
    services.workspace.tasks.update(task.id, lambda found: replace(found, created_by=by, history=History()))
    session = open_session(services, "worker-a")
    action = services.next_action.next_action(services.agents.get("worker-a"), session)
    assert (action["action"], action["authority"]) == ("work", expected)
    words = {"superior": "a superior of yours", "colleague": "a colleague", "unverified": "not in the team"}
    assert words.get(expected, "yourself") in services.briefings.of("worker-a").splitlines()[1]


def test_a_request_has_the_authority_of_who_approved_it(services: Services) -> None:
    task = new(services, by="worker-a")
    assert task.given_by == "worker-a"
    pending = replace(task, approval_status="pending")
    assert pending.decided(Change(by="admin", at=services.clock()), approve=True).given_by == "admin"


def test_what_the_product_says_itself_is_the_systems(services: Services) -> None:
    session = open_session(services, "worker-a")
    action = services.next_action.next_action(services.agents.get("worker-a"), session)
    assert (action["action"], action["authority"]) == ("wait", "system")


def test_a_delegation_of_ones_own_task_session_is_ones_own(services: Services) -> None:
    delegate(services, open_session(services, "worker-a"), "worker-b")
    chat = open_session(services, "worker-a", "chat").record
    action = services.chat_action.next_action(services.agents.get("worker-a"), chat)
    assert (action["action"], action["authority"]) == ("process_delegation", "self")


def test_a_conversation_has_the_authority_of_the_other_participant(services: Services) -> None:
    converse(services, open_session(services, "admin", "chat").record, "worker-a")
    chat = open_session(services, "worker-a", "chat").record
    action = services.chat_action.next_action(services.agents.get("worker-a"), chat)
    assert (action["action"], action["authority"]) == ("conversation_request", "superior")
