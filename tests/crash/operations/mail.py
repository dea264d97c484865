"""Operations on mail: sending, reading, archiving."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.entity import EPOCH, new_message_id, session_name
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.services.team import upgrade
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.wiring import Services
from tests.crash.invariants import mail, notices
from tests.crash.operations.judging import of_one_piece, whole
from tests.crash.stage import Aftermath, Deed, Facts, Operation
from tests.store.support import confirm_read

OTHERS = ("owner", "admin", "worker-b")
LETTERS = ("one", "two", "three")
OLD = "old"


def send(deed: Deed) -> None:
    for content in LETTERS:
        deed.acknowledge(deed.seat("worker-a").call("send_message", receiver_id="worker-b", content=content))


def sent(after: Aftermath) -> Iterator[str]:
    there = [message.content for message in mail(after.services, "worker-b")]
    for number, content in enumerate(LETTERS):
        yield from of_one_piece({content: there.count(content)}, acknowledged=number < len(after.answers))


def send_again(deed: Deed) -> None:
    """The host did not hear the first answer and repeats the call."""
    for _ in range(2):
        deed.acknowledge(
            deed.seat("worker-a").call("send_message", receiver_id="worker-b", content="once", idempotency_key="k")
        )


def sent_once(after: Aftermath) -> Iterator[str]:
    yield from whole(after, once=[message.content for message in mail(after.services, "worker-b")].count("once"))


def broadcast(deed: Deed) -> None:
    deed.acknowledge(deed.seat("worker-a").call("send_message", content="hear, hear"))


def heard(after: Aftermath) -> Iterator[str]:
    copies = {name: [m.content for m in mail(after.services, name)].count("hear, hear") for name in OTHERS}
    yield from whole(after, **copies)


def with_mail(services: Services) -> Facts:
    ids = []
    for content in LETTERS:
        message = a_message(content, datetime.now(UTC))
        services.workspace.mailbox("worker-a").deliver(message)
        ids.append(message.id)
    return {"ids": ids}


def a_message(content: str, at: datetime, receiver: str = "worker-a", read_at: datetime | None = None) -> Message:
    return Message(
        id=new_message_id(),
        sender_id="admin",
        receiver_id=receiver,
        created_at=at,
        read_at=read_at,
        content=content,
    )


def read(deed: Deed) -> None:
    deed.acknowledge(deed.seat("worker-a").call("read_messages", limit=2))
    deed.acknowledge(deed.seat("worker-a").call("read_messages"))


def unread_again(after: Aftermath) -> Iterator[str]:
    """Yields mail that is not unread again although the killed reader did not confirm it by a further call."""
    box = {message.id: message for message in mail(after.services, "worker-a")}
    yield from (f"message {name} is gone" for name in after.told["ids"] if name not in box)
    confirmed = {item["id"] for answer in after.answers[:-1] for item in answer["messages"]}
    for name, message in box.items():
        if message.read_at is not None and name not in confirmed and not _just_confirmed(after, name):
            yield f"message {name} was consumed and never delivered"
    yield from (
        f"message {name} comes again although it was confirmed" for name in confirmed if box[name].read_at is None
    )


def _just_confirmed(after: Aftermath, name: str) -> bool:
    """The second call confirms the first answer before it answers itself."""
    return (
        bool(after.answers)
        and name in {item["id"] for item in after.answers[-1]["messages"]}
        and len(after.answers) == 1
    )


def read_in_terminal(deed: Deed) -> None:
    reading = deed.services.reading
    handover = reading.select(deed.services.agents.get("worker-a"), Query(whole=True, polling=False))
    deed.acknowledge(reading.preview(handover))
    reading.complete(handover)
    deed.acknowledge({"complete": True})


def printed(after: Aftermath) -> Iterator[str]:
    box = {message.id: message for message in mail(after.services, "worker-a")}
    yield from (f"message {name} is gone" for name in after.told["ids"] if name not in box)
    consumed = [name for name in after.told["ids"] if box[name].read_at is not None]
    if consumed and not after.answers:
        yield "consumed before it was printed"
    if len(after.answers) == 2 and len(consumed) < len(LETTERS):
        yield "printed, and unread again"


def with_a_notice(services: Services) -> Facts:
    return {"id": services.interrupts.pause("worker-a", None).id}


def read_notices(deed: Deed) -> None:
    deed.acknowledge(deed.seat("worker-a").call("get_notifications"))


def told(after: Aftermath) -> Iterator[str]:
    notice = {item.id: item for item in notices(after.services, "worker-a")}.get(after.told["id"])
    if notice is None:
        yield "the notification is gone"
    elif notice.read_at is not None:
        yield "the notification was consumed by a reader that died before its next call"


def with_old_mail(services: Services) -> Facts:
    box = services.workspace.mailbox("worker-a")
    long_ago = datetime.now(UTC) - timedelta(days=90)
    messages = [a_message(f"message {n}", long_ago + timedelta(minutes=n), read_at=long_ago) for n in range(8)]
    for message in messages:
        box.deliver(message)
    return {"ids": [message.id for message in messages]}


def archive(deed: Deed) -> None:
    confirm_read(deed.services.workspace.mailbox("worker-a"))
    deed.acknowledge({})


def archived(after: Aftermath) -> Iterator[str]:
    there = sorted(message.id for message in mail(after.services, "worker-a"))
    if there != sorted(after.told["ids"]):
        yield f"{len(there)} of {len(after.told['ids'])} messages are there"


def as_an_earlier_version_left_it(services: Services) -> Facts:
    """A second session, `old`, with old mail, read and not read, and some that a session has handed out and not
    confirmed, in one directory."""
    facts = with_old_mail(services)
    box = services.workspace.mailbox("worker-a")
    (held, _), *_ = box.hot.entities()
    session = services.sessions.open("worker-a")
    session.lease((box.reference(held, box.hot.load(held).read_at),))  # type: ignore[union-attr]
    unread = with_mail(services)["ids"]
    copy = services.workspace.root / OLD
    shutil.copytree(services.workspace.path, copy)
    (copy / upgrade.MARK).unlink()
    return {**facts, "unread": unread}


def open_old(deed: Deed) -> None:
    upgrade.upgrade(Workspace(deed.root, session_name(OLD)))
    deed.acknowledge({})


def moved_over(after: Aftermath) -> Iterator[str]:
    services = open_session(after.root, OLD)
    there = {"ids": [*after.told["ids"], *after.told["unread"]]}
    yield from archived(replace(after, services=services, told=there))
    box = services.workspace.mailbox("worker-a")
    waiting = [message.id for _, message in box.unread()]
    if sorted(waiting) != sorted(after.told["unread"]):
        yield f"{len(waiting)} messages are unread instead of {len(after.told['unread'])}"
    if len(box.hot.entities()) != len(waiting) + 1:
        yield "what was handed out and is not confirmed is not where it was"


def with_an_archive(services: Services) -> Facts:
    facts = with_old_mail(services)
    confirm_read(services.workspace.mailbox("worker-a"))
    fresh = with_mail(services)
    with_an_ended_conversation(services)
    base = services.workspace.path
    for kind in ("ipc/worker-a/archive", "conversations", "delegations"):
        for path in (base / kind).rglob("*.md"):
            os.utime(path, (0, 0))
    return {"old": facts["ids"], "ids": fresh["ids"]}


def with_an_ended_conversation(services: Services) -> None:
    """Creates a conversation that was delegated, read, and ended long ago."""
    admin, session = services.agents.get("admin"), services.sessions.open("admin", "chat")
    services.delegations.delegate(admin, session.record, "worker-b", "ask", None)
    conversation, _ = services.delegations.start_conversation(admin, session.record, "worker-b", "hello")
    services.conversations.end(admin, conversation.id)
    services.reading.read(services.agents.get("worker-b"), Query())  # unread mail would keep it
    services.workspace.conversations.update(conversation.id, lambda found: replace(found, ended_at=EPOCH))
    session.end()


def prune(deed: Deed) -> None:
    pruning, deleted = deed.services.pruning, []
    for item in pruning.prunable(datetime.now(UTC), timedelta(days=1)):
        pruning.delete(item)
        deleted.append(item.name)
    deed.acknowledge({"deleted": deleted})


def pruned(after: Aftermath) -> Iterator[str]:
    there = {message.id for message in mail(after.services, "worker-a")}
    yield from (f"unread message {name} is gone" for name in after.told["ids"] if name not in there)
    if after.answer is not None and there & set(after.told["old"]):
        yield "acknowledged and not deleted"
    if after.services.delegations.unstarted("admin"):
        yield "a delegation that was carried out seems never to have been"


def base(root: Path) -> Path:
    return root / "demo"


WORKER = (("worker-a", "task"),)

OPERATIONS = (
    Operation("send", send, sent, seats=WORKER),
    Operation("send_idempotent", send_again, sent_once, seats=WORKER),
    Operation("broadcast", broadcast, heard, seats=WORKER),
    Operation("read_messages", read, unread_again, with_mail, WORKER),
    Operation("cli_read", read_in_terminal, printed, with_mail),
    Operation("get_notifications", read_notices, told, with_a_notice, WORKER),
    Operation("archive", archive, archived, with_old_mail),
    Operation("upgrade", open_old, moved_over, as_an_earlier_version_left_it),
    Operation("prune", prune, pruned, with_an_archive),
)
