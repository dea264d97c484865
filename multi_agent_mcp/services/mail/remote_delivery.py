"""Delivery of mail and notifications to agents of other machines (docs/protocol.md, Several machines)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.times import now
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.authority import TOO_LARGE
from multi_agent_mcp.store.workspace import Workspace


class Parcel(NamedTuple):
    """A message or notification that was just stored: its receiver, id and file."""

    agent_id: str
    id: str
    path: Path


def away_machines(workspace: Workspace) -> frozenset[str]:
    """The machines that have not been heard of for long; none while this one is cut off, and does not know."""
    state = workspace.relay_state.read()
    known = state.get("machines", {}) if state.get("connected") else {}
    return frozenset(name for name, facts in known.items() if not facts.get("up"))


def remote_delivery(workspace: Workspace, stored: Iterable[Parcel]) -> dict[str, Delivery]:
    """The deliveries, by agent id, of items for agents of other machines: stored there, queued here until the hub is
    back, or stored here alone because they are too large. Items for this machine's agents are sent to the hub, too,
    without waiting. Never raises."""
    authority = workspace.authority
    if authority.here is None or not (parcels := list(stored)):
        return {}
    agents = workspace.registry.all()
    homes = {parcel: home for parcel in parcels if (home := workspace.elsewhere(agents.get(parcel.agent_id)))}
    waits = authority.queue([parcel.path for parcel in parcels], wait=bool(homes))
    if waits is not None and homes:
        if waits == TOO_LARGE:  # the relay has noted it
            return {parcel.agent_id: Delivery("stored", waits) for parcel in homes}
        with suppress(StorageError):  # nothing depends on it
            workspace.travel_log.add("queued", now(), [parcel.id for parcel in homes], reason=waits)
        return {parcel.agent_id: Delivery("queued", waits) for parcel in homes}
    away = away_machines(workspace) if homes else frozenset()
    return {
        parcel.agent_id: Delivery("stored", "machine_away" if home in away else "other_machine")
        for parcel, home in homes.items()
    }
