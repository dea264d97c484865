"""The problems of the tree found after a power cut."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.message import Message
from tests.crash.invariants import complaints, mail
from tests.crash.stage import Aftermath, Operation, forked

DERIVED = frozenset({".tmp", ".locks", ".hooks", ".doorbell", "dashboard"})
"""Directories that are not fsynced: their files are dispensable, or belong to a process that has died."""


def found_wrong(root: Path, acknowledged: list[dict[str, Any]]) -> list[str]:
    """The complaints of a fresh process, which leaves nothing open."""

    def work(channel: int) -> None:
        operation = Operation("powercut", act=lambda _: None, look=_lost)
        for complaint in (*_empty(root / "demo"), *complaints(operation, root, {}, acknowledged)):
            os.write(channel, json.dumps({"complaint": complaint}).encode() + b"\n")

    lines, _, error = forked(work)
    return [line["complaint"] for line in lines] + ([error] if error else [])


def _empty(session: Path) -> Iterator[str]:
    for path in sorted(session.rglob("*")):
        inside = path.relative_to(session)
        is_ours = inside.parts[0] not in DERIVED and path.suffix in (".md", ".json", ".yaml", ".key")
        if is_ours and path.is_file() and path.stat().st_size == 0:
            yield f"{inside} is empty"


def _lost(after: Aftermath) -> Iterable[str]:
    """Acknowledged messages that are not there exactly once, or not whole."""
    for agent_id in after.services.agents.all():
        box = mail(after.services, agent_id)
        known = Counter(key for message in box for key in _keys(message))
        whole = {(key, _digest(message)) for message in box for key in _keys(message)}
        for message in after.answers:
            if agent_id not in message["receivers"]:
                continue
            if known[message["id"]] != 1:
                yield f"{message['id']} is with {agent_id} {known[message['id']]} times"
            elif message["digest"] is not None and (message["id"], message["digest"]) not in whole:
                yield f"{message['id']} of {agent_id} is not what was sent"


def _keys(message: Message) -> Iterator[str]:
    """Yields the ids that a sender may have been given for the message: its own, and its broadcast's."""
    yield message.id
    if (shared := message.metadata.get("broadcast_id")) not in (None, message.id):
        yield str(shared)


def _digest(message: Message) -> str:
    return hashlib.sha256(message.content.encode()).hexdigest()
