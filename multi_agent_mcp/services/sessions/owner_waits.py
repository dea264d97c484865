"""The Owner's wait-lock: a file that names the Admin whose answer the Owner awaits (docs/protocol.md, Owner wait)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import Agent, is_superior
from multi_agent_mcp.domain.entity import id8
from multi_agent_mcp.domain.times import stamp
from multi_agent_mcp.errors import InvalidArguments, OwnerWaiting, PollingBlocked, Refusal
from multi_agent_mcp.services.validation import require_text

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import OwnerWait
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.services.team.agents import Signatures
    from multi_agent_mcp.store.workspace import Workspace

ALLOWED_WHILE_WAITING = frozenset(
    {"read_messages", "get_unread_count", "unlock_owner_wait", "get_notifications", "answer_question"}
    | {"logout", "authenticate"}
)
EMPTY_CHECKS_ALLOWED = 1


class OwnerWaits:
    """The wait-locks of a session's owners. Released locks are kept in the archive."""

    def __init__(
        self, workspace: Workspace, signatures: Signatures, clock: Callable[[], datetime], audit: Callable[..., None]
    ) -> None:
        self.workspace = workspace
        self._signatures = signatures
        self.clock = clock
        self._audit = audit
        self.standing = workspace.owner_waits
        self._archive = workspace.released_waits

    def of(self, owner_id: str) -> OwnerWait | None:
        """The Owner's lock, or None when the Owner does not wait."""
        wait = self.standing.load(_name(owner_id))
        # The file's name decides whose lock it is, whatever the header says.
        return None if wait is None else replace(wait, owner_id=owner_id)

    def begin(self, wait: OwnerWait, *, again: bool = False) -> None:
        """Sets the lock. Raises `OwnerWaiting` if another one is set. With `again`, after a crash, does nothing if the
        lock is set already or has been released since."""
        with self._locked(wait.owner_id):
            standing = self.of(wait.owner_id)
            if again and (_is_same(standing, wait) or self._released(wait.owner_id, wait.message_id)):
                return
            if standing is not None:
                raise OwnerWaiting(admin_id=standing.admin_id)
            self.standing.replace(_name(wait.owner_id), wait)

    def take_back(self, wait: OwnerWait) -> None:
        """Removes a lock that was just set for a message that could not be stored."""
        with self._locked(wait.owner_id):
            if _is_same(self.of(wait.owner_id), wait):
                self.standing.remove(_name(wait.owner_id), sync=True)

    def require_allowed(self, agent: Agent, tool: str) -> None:
        """Raises `OwnerWaiting` if the agent is a waiting Owner and may not call this tool meanwhile."""
        if agent.role != "owner" or tool in ALLOWED_WHILE_WAITING:
            return
        wait = self.of(agent.id)
        if wait is not None:
            raise OwnerWaiting(admin_id=wait.admin_id)

    def checked(self, agent: Agent, unread: int) -> None:
        """Records that the Owner checked its mail and found `unread` messages. Raises `PollingBlocked` from the second
        empty check in a row on."""
        if agent.role != "owner" or self.of(agent.id) is None:
            return
        with self._locked(agent.id):
            wait = self.of(agent.id)
            if wait is None:
                return
            if not unread and wait.empty_checks >= EMPTY_CHECKS_ALLOWED:
                raise PollingBlocked
            if (changed := wait.checked(unread)) != wait:
                self.standing.replace(_name(agent.id), changed)

    def release_by(self, reader: Agent, messages: Iterable[Message], agents: Mapping[str, Agent]) -> bool:
        """Releases the lock if one of these messages, verified and about to be marked read, comes from the awaited
        Admin or any Admin below the Owner. Returns whether it did."""
        wait = self.of(reader.id) if reader.role == "owner" else None
        if wait is None:
            return False
        answers = [message.id for message in messages if self._answers(wait, message.sender_id, agents)]
        return bool(answers) and self.release(reader.id, by=answers[0])

    def unlock(self, actor: Agent, owner: Agent, reason: str | None = None) -> dict[str, Any]:
        """Releases the lock by hand, in emergencies, with a line in the audit log. Returns the answer, which says
        whether there was a lock."""
        require_text("reason", reason)
        if owner.role != "owner":
            raise InvalidArguments("waits_for_nobody", agent_id=owner.id)
        released = self.release(owner.id)
        self._audit("unlock_owner_wait", agent_id=actor.id, owner_id=owner.id, reason=reason, released=released)
        return {"owner_id": owner.id, "waiting_before": released, "waiting_after": False}

    def release(self, owner_id: str, by: str | None = None) -> bool:
        """Moves the lock to the archive, naming the message that released it. Returns whether there was one."""
        with self._locked(owner_id):
            wait = self.of(owner_id)
            if wait is None:
                return False
            name = f"{stamp(self.clock())}_{id8(wait.message_id)}_{_name(owner_id)}"
            self._archive.replace(name, replace(wait, released_by=by))
            self.standing.remove(_name(owner_id), sync=True)
            return True

    def restore(self, owner_id: str, message_ids: Iterable[str]) -> None:
        """Sets the lock again if it was released by one of these messages, which were not delivered after all, unless
        another session has read an answer meanwhile. The caller holds the mailbox's lock."""
        given_back = set(message_ids)
        with self._locked(owner_id):
            if not given_back or self.of(owner_id) is not None:
                return
            # All of them, not only the latest by name: the clock may have been set back.
            for name in sorted(self._archived(owner_id), reverse=True):
                wait = self._archive.load(name)
                if wait is not None and wait.released_by in given_back:
                    if self._is_answered(replace(wait, owner_id=owner_id)):
                        return
                    self.standing.replace(_name(owner_id), replace(wait, released_by=None))
                    self._archive.remove(name)
                    return

    def _released(self, owner_id: str, message_id: str) -> bool:
        waits = (self._archive.load(name) for name in self._archived(owner_id))
        return any(wait is not None and wait.message_id == message_id for wait in waits)

    def _archived(self, owner_id: str) -> list[str]:
        return [name for name in self._archive.entries() if name.endswith(f"_{_name(owner_id)}")]

    def _is_answered(self, wait: OwnerWait) -> bool:
        """Whether an answer that was read since the wait began stays read."""
        agents = self.workspace.registry.all()
        return any(
            self._answers(wait, message.sender_id, agents) and self._signatures.verifies(message, wait.owner_id)
            for message in self.workspace.mailbox(wait.owner_id).read_since(wait.since)
        )

    def _answers(self, wait: OwnerWait, sender_id: str, agents: Mapping[str, Agent]) -> bool:
        if sender_id == wait.admin_id:
            return True
        sender = agents.get(sender_id)
        try:
            return sender is not None and sender.role == "admin" and is_superior(wait.owner_id, sender_id, agents)
        except Refusal:
            return False  # a broken hierarchy releases nothing; unlock_owner_wait still does

    def _locked(self, owner_id: str) -> AbstractContextManager[None]:
        return self.workspace.locks.held(f"owner-wait-{owner_id}")


def _is_same(standing: OwnerWait | None, wait: OwnerWait) -> bool:
    return standing is not None and standing.message_id == wait.message_id


def _name(owner_id: str) -> str:
    return f"{owner_id}.md"
