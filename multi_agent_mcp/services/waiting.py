"""The Owner's wait-lock: a file that says whose answer the Owner waits for (seed 004, contract §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime

from multi_agent_mcp.domain.agent import Agent, is_superior
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.times import stamp
from multi_agent_mcp.domain.waiting import OwnerWait
from multi_agent_mcp.errors import OwnerWaiting, PollingBlocked, Refusal
from multi_agent_mcp.store.workspace import Workspace

ALLOWED_WHILE_WAITING = frozenset(
    {"read_messages", "get_unread_count", "unlock_owner_wait", "get_notifications", "logout", "authenticate"}
)
EMPTY_CHECKS_ALLOWED = 1


class Waiting:
    """Sets, shows and releases the wait-locks of a session's owners. Released locks are kept in the archive."""

    def __init__(self, workspace: Workspace, clock: Callable[[], datetime]) -> None:
        self.workspace = workspace
        self.clock = clock
        self.folder = workspace.owner_waits

    def of(self, owner_id: str) -> OwnerWait | None:
        """The lock that stands, if one does."""
        return self.folder.load(_name(owner_id))

    def begin(self, owner_id: str, *, admin_id: str, task_id: str, message_id: str) -> None:
        """From now on the Owner waits for this Admin; a lock that stood already is replaced."""
        wait = OwnerWait(
            owner_id=owner_id, admin_id=admin_id, task_id=task_id, message_id=message_id, since=self.clock()
        )
        with self._locked(owner_id):
            self.folder.replace(_name(owner_id), wait)

    def require_allowed(self, agent: Agent, tool: str) -> None:
        """Raises `OwnerWaiting` for what an owner may not call while the lock stands."""
        if agent.role != "owner" or tool in ALLOWED_WHILE_WAITING:
            return
        wait = self.of(agent.id)
        if wait is not None:
            raise OwnerWaiting(admin_id=wait.admin_id)

    def checked(self, agent: Agent, unread: int) -> None:
        """The Owner looked and found `unread` messages. Raises `PollingBlocked` from the second empty look on."""
        if agent.role != "owner" or self.of(agent.id) is None:
            return
        with self._locked(agent.id):
            wait = self.of(agent.id)
            if wait is None:
                return
            if not unread and wait.empty_checks >= EMPTY_CHECKS_ALLOWED:
                raise PollingBlocked
            if (changed := wait.checked(unread)) != wait:
                self.folder.replace(_name(agent.id), changed)

    def release_by(self, reader: Agent, messages: Iterable[Message], agents: Mapping[str, Agent]) -> bool:
        """Releases the lock if one of these messages, just marked read, comes from the awaited Admin or from any
        Admin below the Owner."""
        wait = self.of(reader.id) if reader.role == "owner" else None
        if wait is None:
            return False
        if any(self._answers(wait, message.sender_id, agents) for message in messages):
            return self.release(reader.id)
        return False

    def release(self, owner_id: str) -> bool:
        """Takes the lock away; whether one stood."""
        with self._locked(owner_id):
            path = self.folder.path / _name(owner_id)
            if not path.exists():
                return False
            released = self.folder.path / "archive" / f"{stamp(self.clock())}_{path.name}"
            self.workspace.files.relocate([(path, released)])
            return True

    def _answers(self, wait: OwnerWait, sender_id: str, agents: Mapping[str, Agent]) -> bool:
        if sender_id == wait.admin_id:
            return True
        sender = agents.get(sender_id)
        try:
            return sender is not None and sender.role == "admin" and is_superior(wait.owner_id, sender_id, agents)
        except Refusal:
            return False  # a broken hierarchy releases nothing; unlock_owner_wait still does

    def _locked(self, owner_id: str) -> AbstractContextManager[None]:
        return self.workspace.files.locked(f"owner-wait-{owner_id}")


def _name(owner_id: str) -> str:
    return f"{owner_id}.md"
