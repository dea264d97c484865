"""The endpoints of the console's page Files, and of what it can do: release a reservation, merge a delivery."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.repository.reservations import reservation_answer

if TYPE_CHECKING:
    from multi_agent_mcp.repository.edits import Edits
    from multi_agent_mcp.repository.merging import Merging
    from multi_agent_mcp.repository.reservation import FileEdit
    from multi_agent_mcp.repository.reservations import Reservations
    from multi_agent_mcp.repository.worktrees import Worktrees
    from multi_agent_mcp.web.request import ApiRequest


def files(call: ApiRequest) -> dict[str, Any]:
    """The files that were edited in the last hours, those that several agents edit first, then the newest; and the
    reservations. With `?words=` those whose path, or pattern, has all of them."""
    edits: Edits = call.services.edits
    reservations: Reservations = call.services.reservations
    words = (call.parameter("words") or "").casefold().split()
    found = [edit for edit in edits.recent() if _has(edit.path, words)]
    rows = sorted(
        _by_file(found, edits.shared(found)), key=lambda row: (bool(row["shared_by"]), row["at"]), reverse=True
    )
    return {
        "files": rows[: call.limit],
        "total": len(rows),
        "shared": sum(bool(row["shared_by"]) for row in rows),
        "reservations": [reservation_answer(one) for one in reservations.open() if _has(" ".join(one.patterns), words)],
    }


def _has(path: str, words: list[str]) -> bool:
    return all(word in path.casefold() for word in words)


def _by_file(edits: list[FileEdit], shared: dict[tuple[str, str | None], list[str]]) -> Iterator[dict[str, Any]]:
    def file(edit: FileEdit) -> tuple[str, str]:
        return edit.path, edit.repository or ""

    for (path, _), of in groupby(sorted(edits, key=file), file):  # the newest edit stays the first
        found = [*of]
        by = [{"agent_id": one.agent_id, "task_id": one.task_id, "at": format_time(one.at)} for one in found]
        key = (path, found[0].repository)
        yield {"path": path, "at": by[0]["at"], "edited_by": by, "shared_by": shared.get(key, [])}


def worktrees(call: ApiRequest) -> dict[str, Any]:
    """All worktrees with their states, and what was delivered from them and is not merged, each with its task; of what
    is merged the number."""
    known: Worktrees = call.services.worktrees
    rows = known.rows()
    ready: set[str] = set()
    with suppress(Refusal):  # each row says that git refuses
        ready = set(known.to_merge())
    for row in rows:
        left = [one for one in row["delivered"] if not one["merged"]]
        row["merged"] = len(row["delivered"]) - len(left)
        row["delivered"] = [
            {**one, "title": task.title, "status": task.status, "is_ready": task.id in ready}
            for one in left
            if (task := call.services.workspace.tasks.find(one["task_id"])) is not None
        ]
    return {"worktrees": rows}


def release(call: ApiRequest) -> dict[str, Any]:
    """Ends a reservation. Raises as `Reservations.release`."""
    reservations: Reservations = call.services.reservations
    return {"released": [reservation_answer(one) for one in reservations.release(call.me, call.path["reservation_id"])]}


def merge(call: ApiRequest) -> dict[str, Any]:
    """Merges what a done task delivered; `merged` is false if that conflicts, in these files: its author is
    notified."""
    merging: Merging = call.services.merging
    merged = merging.merge(call.me, call.services.task_changes.get(call.path["task_id"]))
    return {
        "merged": merged.commit is not None,
        "was_there": merged.was_there,
        "commit": merged.commit,
        "conflicts": list(merged.conflicts),
        "agent_id": merged.delivery.agent_id,
    }
