"""Tools for agents that work in one repository (docs/protocol.md, Reservations)."""

from __future__ import annotations

from multi_agent_mcp.repository.reservations import reservation_answer
from multi_agent_mcp.server.calls import Answer, Call, Tool


def reserve_files(call: Call, paths: list[str], reason: str | None = None, minutes: float | None = None) -> Answer:
    """Reserve files before you edit them (patterns as in .gitignore), until released or your task ends."""
    services = call.services
    task = services.task_changes.in_hand(call.me.id, call.session.record.task_id)
    made, conflicts = services.reservations.reserve(
        call.me,
        paths,
        reason=reason,
        minutes=minutes,
        task_id=task.id if task is not None else None,
        session_id=call.session.record.id,
    )
    answer = {
        "reservation_id": made.id,
        "expires_at": reservation_answer(made)["expires_at"],
        "instruction": services.texts("reservation.shared" if conflicts else "reservation.made"),
    }
    return call.fitting(answer, "conflicts", list(map(reservation_answer, conflicts)))


def release_files(call: Call, reservation_id: str | None = None) -> Answer:
    """Release a reservation, or all of yours."""
    return {"released": [one.id for one in call.services.reservations.release(call.me, reservation_id)]}


TOOLS = (Tool(reserve_files, "Reserve files"), Tool(release_files, "Release files"))
