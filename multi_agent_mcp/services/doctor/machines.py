"""Checks of several machines: the relay, the hub, machines that are away, what waits, and files against the hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from itertools import islice

from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import HubReplaced, HubUnreachable
from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding
from multi_agent_mcp.services.overview.machines import (
    AWAY,
    CONNECTED,
    CUT_OFF,
    HERE,
    LEFT,
    REPLACED,
    SHUT_OUT,
    WITHOUT_RELAY,
    MachineRow,
    Machines,
)
from multi_agent_mcp.store.authority import Authority, is_marked, revision_of

CLOCK_SECONDS = 2.0
BEHIND = 1000
FINDINGS = {CUT_OFF: "hub_away", SHUT_OUT: "shut_out", REPLACED: "hub_replaced"}
SAMPLE = 20


def machines(context: CheckContext) -> Iterator[Finding]:
    """Problems in the exchange with other machines; nothing for a session of one machine."""
    seen = Machines(context.workspace, context.agents).look()
    if seen is None:
        return
    found = partial(context.found, "machines")
    if seen.exchange in WITHOUT_RELAY:
        yield found(PROBLEM, seen.here, seen.exchange, pid=seen.relay_pid)
        return
    if seen.exchange != CONNECTED:
        yield found(PROBLEM, seen.here, FINDINGS[seen.exchange], since=_moment(seen.since))
    if seen.unwritten is not None:
        yield found(PROBLEM, seen.here, "disk_refuses", **seen.unwritten)
    if seen.queued:
        yield found(NOTE, seen.here, "queued", count=seen.queued)
    if seen.edits:
        yield found(NOTE, seen.here, "conflicts", count=len(seen.edits))
    if seen.own_hub:  # else the hub is our own, which syncs every write
        yield found(NOTE, seen.here, "sync_unknown", version=seen.version or "-")
    for row in seen.machines:
        yield from _machine(row, found)
    yield from _sample(context, context.workspace.authority)


def _machine(row: MachineRow, found: Callable[..., Finding]) -> Iterator[Finding]:
    for trouble in row.troubles:
        if row.state != HERE or trouble != "disk":  # else it is said in detail
            yield found(PROBLEM, row.name, f"machine_{trouble}", machine=row.name, count=row.behind)
    if row.state == AWAY:
        yield found(NOTE, row.name, "machine_away" if row.since else "machine_unheard", since=_moment(row.since))
    if row.state == LEFT:
        yield found(NOTE, row.name, "machine_left", agents=", ".join(row.agents))
    if abs(row.clock_offset or 0) > CLOCK_SECONDS:
        yield found(NOTE, row.name, "clock", seconds=row.clock_offset)
    if (row.behind or 0) > BEHIND:
        yield found(NOTE, row.name, "behind", count=row.behind)


def _moment(moment: datetime | None) -> str:
    return "-" if moment is None else format_time(moment)


def _sample(context: CheckContext, authority: Authority) -> Iterator[Finding]:
    """Differences between some open tasks and their values on the hub, for equal revisions."""
    try:
        for task in islice(context.workspace.tasks.open(), SAMPLE):
            current = authority.current(f"tsk.{task.id}")
            if current is None:
                yield context.found("machines", PROBLEM, task.id, "not_on_hub")
            elif current.revision == revision_of(task) and not is_marked(task, current):
                yield context.found("machines", PROBLEM, task.id, "other_than_hub")
    except (HubUnreachable, HubReplaced):
        return  # reported already
