"""The whole exception tree: what was refused, as data.

A `Refusal` carries its code (docs/protocol.md, Error codes), the key of its sentence in the catalogue and the values
that fill it; a `Reason` and an `OSError` among them are put into words, too. Services raise it; only the doors (tool
wrapper, command line, web) catch it and put it into words.
"""

from __future__ import annotations

from typing import Any, ClassVar


class Reason:
    """Part of a sentence, in the catalogue like the sentence itself: the text `why.{key}`, filled with `values`."""

    def __init__(self, key: str, /, **values: Any) -> None:
        self.key = key
        self.values = values

    def __repr__(self) -> str:
        return _facts(self.key, self.values)


class Refusal(Exception):
    """Something was asked for that is not done; nothing was changed. `key` names the sentence, `values` fill it."""

    code: ClassVar[str]
    default_key: ClassVar[str | None] = None

    def __init__(self, key: str | None = None, /, **values: Any) -> None:
        self.key = f"error.{key or self.default_key or self.code}"
        self.values = values
        super().__init__(self.key, values)

    def __str__(self) -> str:
        return f"{self.code}: {_facts(self.key.removeprefix('error.'), self.values)}"


def _facts(key: str, values: dict[str, Any]) -> str:
    """For logs."""
    return f"{key}({', '.join(f'{name}={value!r}' for name, value in values.items())})"


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


class MessageNotFound(Refusal):
    code = "message_not_found"


class InvalidStatusTransition(Refusal):
    code = "invalid_status_transition"


class AlreadyExists(Refusal):
    code = "already_exists"


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
    """No key was pressed in the pane whose dialog was to be answered."""

    code = "not_answered"


class StorageError(Refusal):
    """The disk refused: full, read-only, a directory where a file should be. Nothing was half written."""

    code = "storage_error"


class HubUnreachable(StorageError):
    """The team is on several machines, and what decides between them cannot be asked now."""

    code = "hub_unreachable"


class HubReplaced(StorageError):
    """The hub is older than what this machine has received from it: it was restored from an older copy."""

    code = "hub_replaced"


class NoSuchSession(Refusal):
    """The session directory does not exist (yet): `init` makes it."""

    code = "invalid_session"
    default_key = "no_such_session"
