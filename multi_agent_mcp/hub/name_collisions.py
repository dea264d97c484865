"""Renames hand-written messages whose file name is that of another message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.entity import Readable
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.store.authority import digest8
from multi_agent_mcp.store.inbox import Inbox, file_name

STEM_LENGTH = 40


def is_by_hand(name: str, entity: Readable) -> bool:
    """Returns whether the program has not written this message, or not under this name."""
    return isinstance(entity, Message) and (entity.signature is None or name != file_name(entity))


def name_of_its_own(name: str, data: bytes) -> str:
    return f"{name.removesuffix('.md')[:STEM_LENGTH]}_{digest8(data)}.md"


def content_of(inbox: Inbox[Any], data: bytes, name: str) -> str:
    """Returns the content of a message, without its header."""
    return str(inbox.hot.decode(data, name.removesuffix(".md"), 0.0).content)


def make_way(inbox: Inbox[Any], name: str, data: bytes) -> None:
    """Renames a hand-written message whose name is needed for another one from the hub. Raises `StorageError`."""
    path = inbox.path / name
    if not path.exists():
        return
    with inbox.files.locks.held(inbox.lock):
        found = inbox.files.read(path)
        if found and _is_another(inbox, name, found, data):
            inbox.files.relocate([(path, Path(inbox.path, name_of_its_own(name, found)))])


def _is_another(inbox: Inbox[Any], name: str, found: bytes, data: bytes) -> bool:
    entity = inbox.hot.decode(found, name.removesuffix(".md"), 0.0)
    return is_by_hand(name, entity) and content_of(inbox, found, name) != content_of(inbox, data, name)
