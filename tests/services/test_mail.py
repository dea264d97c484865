"""Sending: one durable file per receiver, or nothing at all."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.errors import (
    AgentNotFound,
    ContentTooLarge,
    InvalidArguments,
    InvalidId,
    MessageNotFound,
    Refusal,
    StorageError,
    Unauthorized,
)
from multi_agent_mcp.store.records import REMEMBERED_DAYS
from multi_agent_mcp.texts import catalogue
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import by_hand, contents, mail, read, send, size, unread
from tests.store.support import confirm_read


def test_keys_that_are_old_are_forgotten_by_themselves_once_a_day(services: Services) -> None:
    directory = services.workspace.path / ".claims" / "admin"
    for key in ("old", "young"):
        send(services, "admin", "worker-a", idempotency_key=key)
    old, young = sorted(directory.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    past = time.time() - (REMEMBERED_DAYS + 1) * 86_400
    os.utime(old, (past, past))
    send(services, "admin", "worker-a", idempotency_key="today")
    assert old.exists()  # a sweep has already been done today
    os.utime(directory / ".swept", (past, past))
    send(services, "admin", "worker-a", idempotency_key="young")  # no new key: nothing to make room for
    assert old.exists()
    send(services, "admin", "worker-a", idempotency_key="tomorrow")
    assert not old.exists()
    assert young.exists()
    assert len(list(directory.glob("*.json"))) == 3


def test_a_sent_message_is_a_file_in_the_receivers_mailbox_and_rings(services: Services, recorder: Recorder) -> None:
    sent = send(services, "admin", "worker-a", " body \r\n", subject="s", priority="high", metadata={"k": [1]})
    ((_, message),) = services.workspace.mailbox("worker-a").unread()
    assert (message.id, message.sender_id, message.receiver_id) == (sent.message_id, "admin", "worker-a")
    assert (message.content, message.subject, message.priority, message.metadata) == (
        " body \r\n",
        "s",
        "high",
        {"k": [1]},
    )
    assert message.created_at == services.clock()
    assert sent.delivery == {"worker-a": Delivery("submitted")}
    assert recorder.rings == [("worker-a", "[IPC] New message: request from admin")]


@pytest.mark.parametrize(
    ("receiver", "refusal"),
    [
        ("nobody", AgentNotFound),
        ("admin", InvalidArguments),
        ("../worker-a", InvalidId),
        ("", InvalidId),
        ("worker-a\n", InvalidId),
    ],
)
def test_a_receiver_who_is_not_there_is_refused_and_gets_no_mailbox(
    services: Services, receiver: str, refusal: type[Refusal]
) -> None:
    with pytest.raises(refusal):
        send(services, "admin", receiver)
    assert mail(services) == []
    assert sorted(path.name for path in (services.workspace.path / "ipc").iterdir()) == [
        "admin",
        "owner",
        "worker-a",
        "worker-b",
    ]


def test_a_removed_agent_gets_no_mail(services: Services) -> None:
    services.agents.remove("worker-a")
    with pytest.raises(AgentNotFound):
        send(services, "admin", "worker-a")
    assert send(services, "admin", None).receiver_ids == ["owner", "worker-b"]


@pytest.mark.parametrize("text", ["a" * (1 << 20), "あ" * ((1 << 20) // 3), "🎉" * (1 << 18)])
def test_content_of_exactly_a_mebibyte_is_taken_and_one_byte_more_is_not(services: Services, text: str) -> None:
    text += "x" * ((1 << 20) - len(text.encode()))
    send(services, "admin", "worker-a", text)
    with pytest.raises(ContentTooLarge) as refusal:
        send(services, "admin", "worker-a", text + "x")
    assert refusal.value.values == {"size": (1 << 20) + 1, "limit": 1 << 20}
    assert unread(services, "worker-a") == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "\ud800"},
        {"content": "x", "subject": "\udfff"},
        {"content": "x", "metadata": {"k": "\ud800"}},
        {"content": "x", "metadata": {"\ud800": 1}},
        {"content": "x", "idempotency_key": "\ud800"},
        {"content": "x", "metadata": {"k": float("nan")}},
        {"content": "x", "metadata": {"k": object()}},
        {"content": "x", "metadata": {"k": {1, 2}}},
        {"content": "x", "message_type": "gossip"},
        {"content": "x", "priority": "extreme"},
    ],
)
def test_what_no_file_can_hold_is_refused_before_anything_is_written(
    services: Services, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArguments):
        send(services, "admin", "worker-a", **fields)
    assert mail(services) == []


@pytest.mark.parametrize("depth", [5, 40, 100, 300, 600, 1500])
def test_nested_metadata_is_delivered_and_readable_or_refused(services: Services, depth: int) -> None:
    nested: Any = "x"
    for _ in range(depth):
        nested = [nested]
    try:
        send(services, "admin", "worker-a", metadata={"k": nested})
    except InvalidArguments:
        assert depth > 5
        assert mail(services) == []
    else:
        (message,) = read(services, "worker-a")["messages"]
        assert message["metadata"] == {"k": nested}


@pytest.mark.parametrize(
    "fields",
    [
        {"subject": "s" * 4000},
        {"metadata": {"k": "v" * 4000}},
        {"subject": "\x01" * 3000},
        {"subject": "\x01" * 300, "metadata": {"k": "\x01" * 300}},
        {"subject": '"\\' * 1500},
    ],
)
def test_subject_and_metadata_that_are_accepted_always_fit_into_an_answer(
    services: Services, fields: dict[str, Any]
) -> None:
    try:
        send(services, "admin", "worker-a", "x" * 20_000, **fields)
    except ContentTooLarge:
        assert mail(services) == []
    else:
        answer = read(services, "worker-a")
        assert size(answer) < 9_000
        assert answer["messages"][0]["subject"] == fields.get("subject", "")


@pytest.mark.parametrize(
    ("language", "words"), [("en", "Subject and metadata are too large"), ("ja", "件名とメタデータが大きすぎます")]
)
@pytest.mark.parametrize("fields", [{"subject": "x" * 5000}, {"metadata": {"k": "x" * 5000}}])
def test_a_subject_or_metadata_too_large_is_not_called_content(
    services: Services, fields: dict[str, Any], language: str, words: str
) -> None:
    with pytest.raises(ContentTooLarge) as refused:
        send(services, "admin", "worker-a", **fields)
    assert catalogue(language).sentence(refused.value).startswith(words)


def test_a_broadcast_is_one_file_for_everybody_else_and_shares_an_id(services: Services, recorder: Recorder) -> None:
    sent = send(services, "admin", None, "all hands", message_type="broadcast")
    assert sorted(sent.receiver_ids) == ["owner", "worker-a", "worker-b"]
    messages = [services.workspace.mailbox(name).unread()[0][1] for name in sent.receiver_ids]
    assert {message.metadata["broadcast_id"] for message in messages} == {sent.message_id}
    assert {message.id[:8] for message in messages} == {sent.message_id[:8]}
    assert len({message.id for message in messages} | {sent.message_id}) == 4
    assert {path.name for path in mail(services)} == {f"20261121_214601_{sent.message_id[:8]}.md"}
    assert sorted(name for name, _ in recorder.rings) == ["owner", "worker-a", "worker-b"]


@pytest.mark.parametrize("shared", ["zz", None, ["x"], "x" * 300])
def test_a_broadcast_id_that_was_handed_in_is_no_part_of_a_single_message(
    services: Services, admin: Agent, shared: Any
) -> None:
    sent = send(services, "admin", "worker-a", metadata={"broadcast_id": shared, "task_id": "kept"})
    ((_, message),) = services.workspace.mailbox("worker-a").unread()
    assert (message.id, message.metadata) == (sent.message_id, {"task_id": "kept"})
    assert services.tracking.status(admin, sent.message_id)["receiver_id"] == "worker-a"
    assert [step["id"] for step in services.tracking.trace(sent.message_id)] == [sent.message_id]


def test_a_message_with_the_metadata_of_somebodys_broadcast_is_no_copy_of_it(services: Services, admin: Agent) -> None:
    broadcast = send(services, "admin", None, "all hands", message_type="broadcast").message_id
    before = services.tracking.status(admin, broadcast)
    forwarded = [
        send(services, sender, "owner", metadata={"broadcast_id": broadcast}) for sender in ("admin", "worker-a")
    ]
    metadata = {"broadcast_id": broadcast}
    by_hand(services, "worker-b", "forged.md", f"---\nsender_id: worker-a\nmetadata: {metadata}\n---\n\nforged")
    assert services.tracking.status(admin, broadcast) == before
    assert len(services.tracking.trace(broadcast)) == 3
    assert broadcast not in {sent.message_id for sent in forwarded}


def test_a_broadcast_needs_somebody_else(services: Services) -> None:
    for name in ("owner", "worker-a", "worker-b"):
        services.agents.registry.update(name, status="removed")
    with pytest.raises(InvalidArguments):
        send(services, "admin", None)


@pytest.mark.parametrize("broken", ["owner", "worker-a", "worker-b"])
def test_a_disk_that_fails_half_way_through_a_broadcast_leaves_nothing(
    services: Services, recorder: Recorder, broken: str
) -> None:
    mailbox = services.workspace.path / "ipc" / broken
    mailbox.rmdir()
    mailbox.write_text("a file where the mailbox should be")
    with pytest.raises(StorageError):
        send(services, "admin", None)
    assert mail(services) == []
    assert recorder.rings == []


def test_a_message_is_sent_although_no_lock_can_be_had_for_its_doorbell(services: Services) -> None:
    shutil.rmtree(services.workspace.locks.path)
    services.workspace.locks.path.write_text("in the way")
    sent = send(services, "admin", "worker-a")
    assert sent.delivery["worker-a"] == Delivery("stored", "storage_error")
    assert len(mail(services)) == 1


def test_a_doorbell_that_cannot_be_rung_is_no_failure(services: Services, recorder: Recorder) -> None:
    recorder.outcome = Delivery("stored", "copy_mode")
    assert send(services, "admin", "worker-a").delivery == {"worker-a": Delivery("stored", "copy_mode")}
    assert unread(services, "worker-a") == 1


def test_the_same_key_from_the_same_sender_gives_the_first_message_again(services: Services, clock: Clock) -> None:
    first = send(services, "admin", "worker-a", "once", idempotency_key="k")
    clock.advance(60)
    again = send(services, "admin", "worker-a", "twice", idempotency_key="k")
    assert again.message_id == first.message_id
    assert again.delivery == {"worker-a": Delivery("stored", "already_sent")}
    assert contents(read(services, "worker-a")) == ["once"]


@pytest.mark.parametrize("damage", ["", "[]", "{}", "[" * 100_000])
def test_a_damaged_claim_is_refused_and_sends_nothing_twice(services: Services, damage: str) -> None:
    send(services, "admin", "worker-a", "once", idempotency_key="k")
    (claim,) = (services.workspace.path / ".claims" / "admin").glob("*.json")
    claim.write_text(damage, encoding="utf-8")
    with pytest.raises(StorageError):
        send(services, "admin", "worker-a", "twice", idempotency_key="k")
    assert len(services.workspace.mailbox("worker-a").unread()) == 1


def test_keys_of_different_senders_and_different_keys_do_not_meet(services: Services) -> None:
    ids = {
        send(services, sender, "worker-a", idempotency_key=key).message_id
        for sender, key in [("admin", "k"), ("owner", "k"), ("admin", "../k"), ("admin", "K"), ("admin", "")]
    }
    assert len(ids) == unread(services, "worker-a") == 5


def test_a_key_holds_after_the_message_was_read_and_archived(services: Services) -> None:
    first = send(services, "admin", "worker-a", idempotency_key="k")
    read(services, "worker-a")
    confirm_read(services.workspace.mailbox("worker-a"))
    assert send(services, "admin", "worker-a", idempotency_key="k").message_id == first.message_id
    assert unread(services, "worker-a") == 0
    assert len(mail(services)) == 1


def test_a_broadcasts_key_sends_to_nobody_twice(services: Services) -> None:
    first = send(services, "admin", None, idempotency_key="k")
    again = send(services, "admin", None, idempotency_key="k")
    assert (again.message_id, sorted(again.receiver_ids)) == (first.message_id, sorted(first.receiver_ids))
    assert len(mail(services)) == 3


def test_a_second_attempt_completes_what_the_first_did_not_get_to(services: Services, clock: Clock) -> None:
    first = send(services, "admin", None, idempotency_key="k")
    before = {path: path.read_bytes() for path in mail(services)}
    for path in mail(services)[:2]:  # as if the first attempt had died after its first file
        path.unlink()
    clock.advance(60)
    again = send(services, "admin", None, idempotency_key="k")
    assert again.message_id == first.message_id
    assert {path: path.read_bytes() for path in mail(services)} == before


def test_a_failed_attempt_can_be_repeated_with_its_key(services: Services) -> None:
    mailbox = services.workspace.path / "ipc" / "worker-b"
    mailbox.rmdir()
    mailbox.write_text("in the way")
    with pytest.raises(StorageError):
        send(services, "admin", None, idempotency_key="k")
    mailbox.unlink()
    send(services, "admin", None, idempotency_key="k")
    assert len(mail(services)) == 3


def test_attempts_at_the_same_time_with_one_key_send_one_message(services: Services) -> None:
    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda _: send(services, "admin", "worker-a", idempotency_key="k"), range(16)))
    assert len({item.message_id for item in sent}) == 1
    assert len(mail(services)) == 1


def test_no_message_of_many_senders_at_once_is_lost(services: Services) -> None:
    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda number: send(services, "admin", "worker-a", str(number)), range(40)))
    assert len({item.message_id for item in sent}) == unread(services, "worker-a") == 40


def test_a_namesake_in_the_mailbox_is_not_overwritten(services: Services, clock: Clock) -> None:
    sent = send(services, "admin", "worker-a", "first", idempotency_key="k")
    ((name, first),) = services.workspace.mailbox("worker-a").unread()
    (services.workspace.mailbox("worker-a").path / name).unlink()
    stranger = replace(first, id=first.id[:8] + "-0000-4000-8000-000000000000", content="stranger")
    services.workspace.mailbox("worker-a").deliver(stranger)
    again = send(services, "admin", "worker-a", "first", idempotency_key="k")
    assert again.message_id == sent.message_id
    assert sorted(contents(read(services, "worker-a"))) == ["first", "stranger"]


def test_the_sender_can_follow_a_message_step_by_step(services: Services, admin: Agent, clock: Clock) -> None:
    sent = send(services, "admin", "worker-a")
    clock.advance(5)
    assert services.tracking.status(admin, sent.message_id)["state"] == "submitted"
    read(services, "worker-a")
    status = services.tracking.status(admin, sent.message_id)
    assert (status["state"], status["receiver_id"]) == ("read", "worker-a")
    assert [step["state"] for step in status["steps"]] == ["stored", "rung", "submitted", "read"]
    assert status["steps"][-1]["at"] == "2026-11-21T21:46:06.123456Z"


def test_a_deferred_doorbell_leaves_a_message_stored_and_says_why(
    services: Services, admin: Agent, recorder: Recorder
) -> None:
    recorder.outcome = Delivery("stored", "copy_mode")
    sent = send(services, "admin", "worker-a")
    status = services.tracking.status(admin, sent.message_id)
    assert (status["state"], status["reason"]) == ("stored", "copy_mode")


def test_a_broadcasts_status_names_every_receiver(services: Services, admin: Agent) -> None:
    sent = send(services, "admin", None)
    read(services, "worker-b")
    receivers = services.tracking.status(admin, sent.message_id)["receivers"]
    assert {name: progress["state"] for name, progress in receivers.items()} == {
        "owner": "submitted",
        "worker-a": "submitted",
        "worker-b": "read",
    }


def test_only_the_sender_may_ask_for_a_messages_status(services: Services, worker_b: Agent) -> None:
    sent = send(services, "admin", "worker-a")
    with pytest.raises(Unauthorized):
        services.tracking.status(worker_b, sent.message_id)
    with pytest.raises(MessageNotFound):
        services.tracking.status(worker_b, "../../agents.json")


def test_a_trace_says_where_each_copy_lies(services: Services) -> None:
    sent = send(services, "admin", "worker-a")
    (step,) = services.tracking.trace(sent.message_id)
    assert (services.workspace.path / step["path"]).is_file()
    assert services.tracking.trace("unknown") == []
