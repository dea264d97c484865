"""The exceptions of the program: refusals, as data.

A `Refusal` carries its code (docs/protocol.md, Error codes), the key of its sentence in the catalogue and the values
that fill it, among which a `Reason` or an `OSError` is put into words, too. Services raise it; only the doors (tool
wrapper, command line, web) put it into words.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar


class Reason:
    """A part of a sentence, also from the catalogue: the text `why.{key}`, filled with `values`."""

    def __init__(self, key: str, /, **values: Any) -> None:
        self.key = key
        self.values = values

    def __repr__(self) -> str:
        return _facts(self.key, self.values)


class Refusal(Exception):
    """Raised when a request is refused; nothing was changed. `key` names the sentence, `values` fill it."""

    code: ClassVar[str]
    default_key: ClassVar[str | None] = None
    language = ""
    """That of the session which could not be opened; "" where it is not known."""

    def __init__(self, key: str | None = None, /, **values: Any) -> None:
        self.key = f"error.{key or self.default_key or self.code}"
        self.values = values
        super().__init__(self.key, values)

    def __str__(self) -> str:
        return f"{self.code}: {_facts(self.key.removeprefix('error.'), self.values)}"


def _facts(key: str, values: dict[str, Any]) -> str:
    """A key with its values, for logs, each of which may be whatever a caller gave."""
    return f"{key}({', '.join(f'{name}={value!r:.500}' for name, value in values.items())})"


class InvalidId(Refusal):
    code = "invalid_id"


class InvalidArguments(Refusal):
    code = "invalid_arguments"


class InvalidSession(Refusal):
    code = "invalid_session"


class Unauthorized(Refusal):
    code = "unauthorized"


class WrongSessionPurpose(Refusal):
    code = "wrong_session_purpose"


class AgentNotFound(Refusal):
    code = "agent_not_found"


class AgentNotAssignedToProject(Refusal):
    code = "agent_not_assigned_to_project"


class TaskNotFound(Refusal):
    code = "task_not_found"


class ConversationNotFound(Refusal):
    code = "conversation_not_found"


class DelegationNotFound(Refusal):
    code = "delegation_not_found"


class ExecutionNotFound(Refusal):
    code = "execution_not_found"


class ReservationNotFound(Refusal):
    code = "reservation_not_found"


class Reserved(Refusal):
    """Raised where reservations are enforced, for files that another agent has reserved."""

    code = "reserved"


class MessageNotFound(Refusal):
    code = "message_not_found"


class QuestionNotFound(Refusal):
    code = "question_not_found"


class QuestionClosed(Refusal):
    """Raised when a question was closed before: by another answer, its default, or because it was taken back."""

    code = "question_closed"


class InvalidStatusTransition(Refusal):
    code = "invalid_status_transition"


class NotProven(Refusal):
    """Raised when a task with conditions is to become done, and they are not proven to be met."""

    code = "not_proven"


class NotCommitted(Refusal):
    """Raised when a task with conditions is to become done while files in its agent's worktree are not committed: they
    would not be delivered."""

    code = "not_committed"


class AlreadyExists(Refusal):
    code = "already_exists"


class HasSubordinates(Refusal):
    """Raised when an agent cannot be removed, because others would have no superior then."""

    code = "has_subordinates"


class NotParticipant(Refusal):
    code = "not_participant"


class ConversationNotActive(Refusal):
    code = "conversation_not_active"


class OwnerWaiting(Refusal):
    code = "owner_waiting"


class PollingBlocked(Refusal):
    code = "polling_blocked"


class ContentTooLarge(Refusal):
    code = "content_too_large"


class NotAnswered(Refusal):
    """Raised when a dialog was not answered: no key was pressed in its pane."""

    code = "not_answered"


class TmuxTimeout(Refusal):
    """Raised when a tmux server does not answer in time: it is stopped or overloaded. What it was asked may follow."""

    code = "tmux_timeout"


class StorageError(Refusal):
    """Raised when the disk refuses: full, read-only, a directory in place of a file. Nothing was half written."""

    code = "storage_error"


def system_error(error: OSError) -> StorageError:
    """The refusal for an `OSError` outside the store: a directory that is gone or another user's, a full disk."""
    if error.filename is None:
        return StorageError("system", reason=error)
    return StorageError("system_at", path=os.fsdecode(error.filename), reason=error)


class HubUnreachable(StorageError):
    """Raised in a shared session when the hub, which decides shared changes, cannot be asked."""

    code = "hub_unreachable"


class HubReplaced(StorageError):
    """Raised when the hub was replaced by an older copy, with less than this machine has received from it."""

    code = "hub_replaced"


class UntrustedSession(Refusal):
    """Raised for files that somebody else wrote, or may write to: what they name would be run as this user."""

    code = "untrusted_session"


class NoSuchSession(Refusal):
    """Raised when the session directory does not exist (yet); `init` creates it."""

    code = "invalid_session"
    default_key = "no_such_session"
