"""What is recorded of messages and notifications on their way: rings and, between machines, the hub (docs/protocol.md,
Delivery states)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.delivery import item_ids_of
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.journal import Journal

Entry = Mapping[str, Any]


class StepLog(Journal):
    """An entry has `state`, `at`, and `messages` (the ids of messages and notifications). Derived, may be deleted."""

    def __init__(self, files: Files, path: Path) -> None:
        super().__init__(files, path, rotates=True)

    def add(self, state: str, at: datetime, items: Collection[str], **facts: Any) -> None:
        """Adds an entry. Raises `StorageError`."""
        self.append(state=state, at=format_time(at), messages=list(items), **facts)

    def steps(self) -> Mapping[str, list[Entry]]:
        """What the log says about each message or notification, oldest first: id → `{"state", "at", "reason"?,
        "machine"?}`."""
        about: dict[str, list[Entry]] = {}
        for entry in reversed(list(self.newest_first())):
            step = {key: entry[key] for key in ("state", "at", "reason", "machine") if entry.get(key) is not None}
            for item_id in item_ids_of(entry):
                about.setdefault(item_id, []).append(step)
        return about


class TravelLog(StepLog):
    """`.share/travel.jsonl`: between machines. An entry is `queued` here (with the `reason`), `on_hub`, `refused`
    (the same: it never travels), or `arrived` here (from a `machine`)."""


class DeliveryLog(StepLog):
    """`.doorbell/{agent_id}.jsonl`: what came of every attempt to ring an agent. An entry is `rung`, `submitted` or
    `deferred`, and has a `reason` where there is one; one that got across also its `pane` and `attempt`. Nothing but
    the time of the next ring depends on it."""

    def rings(self) -> Iterator[Entry]:
        """The entries that got across, newest first. The others are not even parsed: there may be many of them."""
        return self.newest_first(without=b'"deferred"')

    def without_deferral(self, items: Collection[str], reason: str | None) -> list[str]:
        """Those of the items whose last entry is not a deferral for this reason. What is unread is tried again and
        again: an entry for each attempt would make the log grow with the square of their number. Nothing is parsed that
        names none of them, nor what is older than the last entry of each."""
        unseen, deferred = set(items), set[str]()
        for entry in self.newest_first(*(json.dumps(item_id, ensure_ascii=False).encode() for item_id in items)):
            about = unseen.intersection(item_ids_of(entry))
            if (entry.get("state"), entry.get("reason")) == ("deferred", reason):
                deferred |= about
            unseen -= about
            if not unseen:
                break
        return [item_id for item_id in items if item_id not in deferred]
