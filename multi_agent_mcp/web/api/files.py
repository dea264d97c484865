"""Who edits and has reserved which files, and the agents' worktrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multi_agent_mcp.services.repository.reservations import edit_answer, reservation_answer

if TYPE_CHECKING:
    from multi_agent_mcp.web.request import ApiRequest

EDITS_SHOWN = 30


def of_agent(call: ApiRequest) -> dict[str, Any]:
    """The files that an agent has edited in the last hours, newest first, each with the others who edit it; its
    reservations; its worktree, if it has one."""
    services, agent = call.services, call.services.agents.get(call.path["agent_id"])
    found = services.edits.recent()
    shared = services.edits.shared(found)
    mine = [edit for edit in found if edit.agent_id == agent.id][:EDITS_SHOWN]
    others = (
        (edit, [name for name in shared.get((edit.path, edit.repository), ()) if name != agent.id]) for edit in mine
    )
    reserved = [one for one in services.reservations.open() if one.agent_id == agent.id]
    worktree = next((row for row in services.worktrees.rows() if row["agent_id"] == agent.id), None)
    return {
        "edits": [edit_answer(edit) | {"others": names} for edit, names in others],
        "reservations": list(map(reservation_answer, reserved)),
        "workspace": worktree,
    }
