"""Tools for agents that take work themselves (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

from multi_agent_mcp.server.calls import REPORTERS, TASK, Answer, Call, Tool
from multi_agent_mcp.services.tasks.board import summary_of


def claim_task(call: Call, task_id: str | None = None) -> Answer:
    """Take an unassigned task of a superior's (null: the most urgent)."""
    claims = call.services.claims
    task = claims.take(call.me) if task_id is None else claims.claim(call.me, task_id)
    if task is None:
        return {"task_id": None, "instruction": call.services.texts("claim.nothing")}
    return {**summary_of(task), "assignee_id": task.assignee_id, "instruction": call.services.texts("claim.claimed")}


def notify_when(call: Call, target: str, state: str) -> Answer:
    """Notify me once: an agent idle, available; a task done, blocked, merged; a watch_id never."""
    watches = call.services.watches
    watch = watches.watch(call.me, target, state)
    held_up = None if watch.ended_at else watches.held_up("watch.notified", watch.target, watch.state)
    said = {} if held_up is None else {"instruction": held_up}
    return {"watch_id": watch.id, "target": watch.target, "state": watch.state, **said}


TOOLS = (Tool(claim_task, "Claim", roles=REPORTERS, purposes=TASK), Tool(notify_when, "Watch"))
