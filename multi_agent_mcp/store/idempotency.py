"""Idempotency keys: messages that a sender sends again with the same key are stored once.

`.claims/{sender_id}/{digest}.json` keeps a key for `REMEMBERED_DAYS`; once a day, a new claim removes the sender's
expired ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.workspace import Workspace

REMEMBERED_DAYS = 30
SWEPT_EVERY_SECONDS = 86_400.0
SWEPT_AT_ONCE = 2_000  # 0.1 s; the rest goes another day


def claim(workspace: Workspace, key: str, messages: list[Message]) -> tuple[list[Message], bool]:
    """Claims a key for messages of one sender; returns the messages to store, those of the first attempt if the key is
    known, and whether the key is new.

    The claim fixes ids and times before anything is stored, so a second attempt writes the same files, and only those
    that the first did not write. Raises `StorageError`.
    """
    first = messages[0]
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    path = workspace.path / ".claims" / first.sender_id / f"{digest}.json"
    claimed = {
        "created_at": format_time(first.created_at),
        "broadcast_id": first.metadata.get("broadcast_id"),
        "ids": {message.receiver_id: message.id for message in messages},
    }
    try:
        workspace.files.create(path, json.dumps(claimed).encode())
        _sweep(workspace, path.parent)
    except FileExistsError:
        data = workspace.files.read(path)
        try:
            return _as_claimed(first, json.loads(data or b"")), False
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise StorageError("claim_damaged", path=path.name) from error
    return messages, True


def _sweep(workspace: Workspace, directory: Path) -> None:
    """Removes expired claims. Never raises: a claim too many does no harm."""
    swept, now = directory / ".swept", time.time()
    with suppress(OSError, StorageError):
        if swept.exists() and 0 <= now - swept.stat().st_mtime < SWEPT_EVERY_SECONDS:
            return
        workspace.files.replace(swept, b"", durable=False)
        border = now - REMEMBERED_DAYS * 86_400
        with os.scandir(directory) as found:
            old = (item.path for item in found if item.name.endswith(".json") and item.stat().st_mtime < border)
            for path in islice(old, SWEPT_AT_ONCE):
                Path(path).unlink(missing_ok=True)


def _as_claimed(template: Message, claim: Mapping[str, Any]) -> list[Message]:
    """Returns the messages of the first attempt, by its claim."""
    metadata = {key: value for key, value in template.metadata.items() if key != "broadcast_id"}
    if claim["broadcast_id"]:
        metadata["broadcast_id"] = claim["broadcast_id"]
    created_at = parse_time(claim["created_at"]) or template.created_at
    return [
        replace(template, id=message_id, receiver_id=receiver_id, created_at=created_at, metadata=metadata)
        for receiver_id, message_id in claim["ids"].items()
    ]
