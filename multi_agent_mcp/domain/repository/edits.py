"""Files that several agents edit (docs/protocol.md, Edits)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from multi_agent_mcp.domain.notification import Notification, derived_id

EDIT_OVERLAP = "edit_overlap"


@dataclass(frozen=True)
class FileEdit:
    """An edit of one file by an agent, while it worked on a task (None: on none)."""

    path: str
    repository: str | None
    agent_id: str
    task_id: str | None
    at: datetime


def episode(edits: Sequence[FileEdit], window: timedelta) -> list[FileEdit]:
    """The edits of one file that belong together with the last one, oldest first: without a gap of `window`."""
    ordered = sorted(edits, key=lambda edit: (edit.at, edit.agent_id))
    for index in range(len(ordered) - 1, 0, -1):
        if ordered[index].at - ordered[index - 1].at > window:
            return ordered[index:]
    return ordered


def overlap_notice(of: Sequence[FileEdit], target: FileEdit, other_id: str, reason: str) -> Notification:
    """The notification of an agent that another one edits the same file in this episode, without its text."""
    first, last = of[0], of[-1]
    return Notification(
        id=derived_id(EDIT_OVERLAP, first.repository, first.path, first.at, first.agent_id, target.agent_id),
        target_agent_id=target.agent_id,
        target_purpose=None,
        type="status_change",
        action=EDIT_OVERLAP,
        task_id=target.task_id,
        created_at=last.at,
        sender_id=other_id,
        reason=reason,
    )
