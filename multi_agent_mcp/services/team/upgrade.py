"""Moves what is over to its place, once, in a session directory that an earlier version has made: there, read mail and
finished things stayed where they were until there were more than 200 of them. To be deleted with that version's last
session.

Killed at any moment, it begins again with the next process that opens the session: every step moves one file, and what
has moved is not found again. `.layout` says that it is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multi_agent_mcp.store.collection import Collection
    from multi_agent_mcp.store.inbox import Inbox
    from multi_agent_mcp.store.workspace import Workspace

MARK = ".layout"
LAYOUT = b"2\n"


def upgrade(workspace: Workspace) -> None:
    """Moves what is over, unless that was done. Raises `StorageError`: half a move must not be read from, as read mail
    would be unread again."""
    mark = workspace.path / MARK
    if mark.exists():
        return
    with workspace.locks.held("upgrade"):
        if mark.exists():
            return
        for collection in (workspace.conversations, workspace.tasks, workspace.sessions, workspace.executions):
            _archive_over(collection)
        for agent_id in workspace.registry.all():
            workspace.retire_delegations(agent_id)
            for inbox in (workspace.mailbox(agent_id), workspace.notices(agent_id)):
                _archive_read(workspace, agent_id, inbox)
        workspace.files.replace(mark, LAYOUT)


def _archive_over(collection: Collection[Any]) -> None:
    for name in collection.partitions():
        collection.archive_over(name)


def _archive_read(workspace: Workspace, agent_id: str, inbox: Inbox[Any]) -> None:
    """Confirms what is marked read, but not what a session has handed out and not confirmed."""
    held = {reference for session in workspace.sessions.open(agent_id) for reference in session.unconfirmed}
    read = [inbox.reference(name, entity.read_at) for name, entity in inbox.hot.entities() if entity.read_at]
    inbox.confirm(reference for reference in read if reference not in held)
