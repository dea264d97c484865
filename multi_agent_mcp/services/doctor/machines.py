"""Several machines: the relay, the hub, who is away, what waits, and whether files are what the hub has."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.services.doctor.finding import NOTE, PROBLEM, CheckContext, Finding
from multi_agent_mcp.store.authority import Authority, revision_of
from multi_agent_mcp.store.files.locks import RELAY

CLOCK_SECONDS = 2.0
BEHIND = 1000
SAMPLE = 20


def machines(context: CheckContext) -> Iterator[Finding]:
    """How the exchange with the other machines stands; nothing for a session of one machine alone."""
    authority = context.workspace.authority
    if authority.here is None:
        return
    found = partial(context.found, "machines")
    if not context.workspace.locks.is_held(RELAY):
        yield found(PROBLEM, authority.here, "no_relay")
        return
    state = context.workspace.relay_state()
    if state.get("replaced"):
        yield found(PROBLEM, authority.here, "hub_replaced")
    elif not state.get("connected"):
        yield found(PROBLEM, authority.here, "hub_away", since=state.get("since"))
    if state.get("queued"):
        yield found(NOTE, authority.here, "queued", count=state["queued"])
    if state.get("conflicts"):
        yield found(NOTE, authority.here, "conflicts", count=state["conflicts"])
    if not state.get("serves"):
        yield found(NOTE, authority.here, "sync_unknown", version=state.get("version") or "-")
    yield from _others(context, state)
    yield from _sample(context, authority)


def _others(context: CheckContext, state: dict[str, Any]) -> Iterator[Finding]:
    for name, facts in state.get("machines", {}).items():
        if not facts.get("up"):
            yield context.found("machines", NOTE, name, "machine_away", since=facts.get("since"))
        if abs(facts.get("clock_offset", 0)) > CLOCK_SECONDS:
            yield context.found("machines", NOTE, name, "clock", seconds=facts["clock_offset"])
        if facts.get("behind", 0) > BEHIND:
            yield context.found("machines", NOTE, name, "behind", count=facts["behind"])


def _sample(context: CheckContext, authority: Authority) -> Iterator[Finding]:
    """Some open tasks, beside what the hub has of this revision."""
    shared = context.workspace.tasks.shared
    try:
        for task in islice(context.workspace.tasks.open(), SAMPLE):
            current = authority.current(f"tsk.{task.id}")
            if current is None:
                yield context.found("machines", PROBLEM, task.id, "not_on_hub")
            elif shared is not None and current.revision == revision_of(task) and not shared.is_marked(task, current):
                yield context.found("machines", PROBLEM, task.id, "other_than_hub")
    except HubUnreachable:
        return  # said already
