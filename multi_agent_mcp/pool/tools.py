"""Tools for agents that take work themselves (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

from multi_agent_mcp.server.calls import REPORTERS, TASK, Answer, Call, Tool
from multi_agent_mcp.services.tasks.board import summary_of


def claim_task(call: Call, task_id: str | None = None) -> Answer:
    """Take an unassigned task of a superior's: this one, or the most urgent that you can do (task_id null: none)."""
    claims = call.services.claims
    task = claims.take(call.me) if task_id is None else claims.claim(call.me, task_id)
    if task is None:
        return {"task_id": None, "instruction": call.services.texts("claim.nothing")}
    return {**summary_of(task), "assignee_id": task.assignee_id, "instruction": call.services.texts("claim.claimed")}


TOOLS = (Tool(claim_task, "Claim task", roles=REPORTERS, purposes=TASK),)
