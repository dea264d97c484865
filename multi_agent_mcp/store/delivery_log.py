"""Logs of the delivery of messages and notifications: rings and, between machines, steps through the hub
(docs/protocol.md, Delivery states)."""

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
    """A log whose entries have `state`, `at`, and `messages` (ids of messages and notifications). It may be deleted."""

    def __init__(self, files: Files, path: Path) -> None:
        super().__init__(files, path, rotates=True)

    def add(self, state: str, at: datetime, items: Collection[str], **facts: Any) -> None:
        """Appends an entry. Raises `StorageError`."""
        self.append(state=state, at=format_time(at), messages=list(items), **facts)

    def steps(self) -> Mapping[str, list[Entry]]:
        """Returns the entries about each message or notification, oldest first: id → `{"state", "at", "reason"?,
        "machine"?}`."""
        about: dict[str, list[Entry]] = {}
        for entry in reversed(list(self.newest_first())):
            step = {key: entry[key] for key in ("state", "at", "reason", "machine") if entry.get(key) is not None}
            for item_id in item_ids_of(entry):
                about.setdefault(item_id, []).append(step)
        return about


class TravelLog(StepLog):
    """`.share/travel.jsonl`: the way of mail between machines. The state of an entry is `queued` (on this machine, with
    the `reason`), `on_hub`, `refused` (it is never sent, with the `reason`) or `arrived` (from a `machine`)."""


class DeliveryLog(StepLog):
    """`.doorbell/{agent_id}.jsonl`: the outcome of every attempt to ring an agent. The state of an entry is `rung`,
    `submitted` or `deferred`. An entry may have a `reason`; one that is not deferred also has `pane` and `attempt`.
    Only the time of the next ring depends on this log."""

    def rings(self) -> Iterator[Entry]:
        """Yields the entries that are not deferred, newest first, without parsing the others, which may be many."""
        return self.newest_first(without=b'"deferred"')

    def without_deferral(self, items: Collection[str], reason: str | None) -> list[str]:
        """Returns those items whose last entry is not a deferral for this reason. Unread items are tried again and
        again: an entry for every attempt would make the log grow with the square of their number. Only lines that name
        one of the items are parsed, and none older than the last entry of each."""
        unseen, deferred = set(items), set[str]()
        for entry in self.newest_first(*(json.dumps(item_id, ensure_ascii=False).encode() for item_id in items)):
            about = unseen.intersection(item_ids_of(entry))
            if (entry.get("state"), entry.get("reason")) == ("deferred", reason):
                deferred |= about
            unseen -= about
            if not unseen:
                break
        return [item_id for item_id in items if item_id not in deferred]
