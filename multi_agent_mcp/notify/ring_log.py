"""Reads and writes the entries about doorbells in the delivery logs (docs/protocol.md, Delivery states)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import NAMED, Delivery, DoorbellItem, Due, Ring, UnreadItem, item_ids_of
from multi_agent_mcp.domain.times import format_time, is_recent, parse_time
from multi_agent_mcp.errors import TmuxTimeout
from multi_agent_mcp.notify.channel import HOOK
from multi_agent_mcp.store.workspace import Workspace


@dataclass(frozen=True)
class RingLog:
    """The delivery logs of one session's agents. A ring that was left to a waiter counts as pending for the time
    `recent`. Errors are `StorageError`."""

    workspace: Workspace
    clock: Callable[[], datetime]
    recent: timedelta

    def last(self, agent_id: str, counts: Callable[[Mapping[str, Any]], bool]) -> Ring | None:
        """The newest ring that reached the agent and for whose entry `counts` is true."""
        entries = filter(counts, self.workspace.delivery_log(agent_id).rings())
        rings = (Ring.of(entry) for entry in entries if entry.get("state") in ("rung", "submitted"))
        return next(filter(None, rings), None)

    def record(self, agent: Agent, decision: Due[DoorbellItem], delivery: Delivery, began: datetime) -> None:
        """Adds the outcome of an attempt that started at `began`, unless the log already says the same."""
        log = self.workspace.delivery_log(agent.id)
        about = [item.id for item in decision.items[:NAMED]]
        if delivery.state == "stored":
            if unrecorded := log.without_deferral(about, delivery.reason):
                self.defer(agent.id, unrecorded, delivery.reason)
            return
        if delivery.reason == HOOK and self._is_left_to_waiter(agent.id, about):
            return
        facts = {"pane": agent.pane_id, "attempt": decision.attempt, **_until(decision.items)}
        log.add("rung", began, about, reason=delivery.reason, **facts)
        if delivery.state == "submitted":
            entered = began + delivery.entered_after if delivery.entered_after else self.clock()
            log.add("submitted", entered, about, **facts)

    def defer(self, agent_id: str, about: Collection[str], reason: str | None) -> None:
        """Adds that nobody was rung about these items, and the reason."""
        self.workspace.delivery_log(agent_id).add("deferred", self.clock(), about, reason=reason)

    def found_silent(self, agent_id: str, since: datetime) -> bool:
        """Whether the newest entry says that the agent's tmux did not answer, not before `since`: who has waited for
        the doorbell meanwhile need not wait for tmux, too."""
        newest = next(self.workspace.delivery_log(agent_id).newest_first(), {})
        at = parse_time(newest.get("at"))
        return newest.get("reason") == TmuxTimeout.code and at is not None and at >= since

    def _is_left_to_waiter(self, agent_id: str, about: Collection[str]) -> bool:
        """Whether the newest entry already says that a waiter announces all of these items."""
        newest = next(self.workspace.delivery_log(agent_id).rings(), {})
        ring = Ring.of(newest)
        recent = ring is not None and is_recent(ring.at, self.clock(), self.recent)
        return recent and newest.get("reason") == HOOK and set(about) <= set(item_ids_of(newest))


def _until(items: Sequence[UnreadItem]) -> dict[str, str]:
    """For an entry about more items than it names, the time of the newest of them; see `Ring`."""
    return {"until": format_time(max(item.created_at for item in items))} if len(items) > NAMED else {}
