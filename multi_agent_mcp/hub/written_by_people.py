"""Messages that people have written, whose file name may be that of another message."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.entity import EPOCH, Readable
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.store.authority import digest8
from multi_agent_mcp.store.inbox import Inbox, file_name
from multi_agent_mcp.system.file_status import modified_at

if TYPE_CHECKING:
    from multi_agent_mcp.hub.stream import Stored

STEM_LENGTH = 40


def is_by_hand(name: str, entity: Readable) -> bool:
    """Returns whether the program has not written this message, or not under this name."""
    return isinstance(entity, Message) and (entity.signature is None or name != file_name(entity))


def name_of_its_own(name: str, data: bytes) -> str:
    return f"{name.removesuffix('.md')[:STEM_LENGTH]}_{digest8(data)}.md"


def says(message: Readable) -> Readable:
    """Returns a message without what the program adds where a person has left it out: two that say the same are
    equal."""
    return replace(message, id="", created_at=EPOCH, read_at=None)  # type: ignore[call-arg]  # it has these fields


def make_way(inbox: Inbox[Any], name: str, stored: Stored) -> None:
    """Renames a message that a person has written if another one from the hub needs its name. Of two that say the same
    the older one stays, so that it is the same one on every machine. Raises `StorageError`."""
    if not os.path.lexists(f"{inbox.path}/{name}"):
        return
    path = inbox.path / name
    with inbox.files.locks.held(inbox.lock):
        if not (found := inbox.files.read(path)):
            return
        mine, theirs = inbox.hot.decode(found, path.stem, modified_at(path) / 1e9), decoded(inbox, name, stored)
        if not is_by_hand(name, mine):
            return
        if says(mine) != says(theirs):
            inbox.files.relocate([(path, path.with_name(name_of_its_own(name, found)))])
        elif theirs.created_at < mine.created_at:
            kept = theirs.mark_read(mine.read_at)
            inbox.files.replace(path, as_on_hub(inbox, kept, stored), modified=stored.written_at)


def decoded(inbox: Inbox[Any], name: str, stored: Stored) -> Readable:
    """Returns the message that a value is under this name. Raises `Unreadable`."""
    entity: Readable = inbox.hot.decode(stored.data, name.removesuffix(".md"), stored.written_at / 1e9)
    return entity


def as_on_hub(inbox: Inbox[Any], entity: Readable, known: Stored | None) -> bytes:
    """Returns the bytes of a message as every machine has them: those that the hub has of it, which another machine may
    have left incomplete, unless it is marked as read."""
    return inbox.hot.codec.encode(entity) if known is None or entity.read_at is not None else known.data
