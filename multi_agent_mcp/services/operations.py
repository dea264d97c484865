"""Operations: operations over several files that are there whole or not at all, also after `kill -9`
(docs/protocol.md, Operations).

What is to be done is written down first (`store/intents.py`) and carried out from there, by the same function that the
next reader calls should the process die on the way. Every step of it does nothing when it was done already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.store.codec.frontmatter import Unreadable
from multi_agent_mcp.store.intents import Intent
from multi_agent_mcp.store.workspace import Workspace

logger = logging.getLogger(__name__)

Handler = Callable[[Intent], Any]


@dataclass(frozen=True)
class Kind:
    """A kind of undertaking, by its name in the intents' files.

    One that `takes_itself_back` only adds files: should the disk refuse, its carrier removes what it had added, and
    nothing was done. The others change what was there before, and are finished as soon as the disk allows.
    """

    name: str
    takes_itself_back: bool = False


SEND = Kind("send", takes_itself_back=True)
CREATE_TASKS = Kind("create_tasks", takes_itself_back=True)
SEND_TASK = Kind("send_task", takes_itself_back=True)
REQUEST_TASK = Kind("request_task", takes_itself_back=True)
DECIDE_REQUEST = Kind("decide_request")
ASSIGN_TASK = Kind("assign_task")
BLOCK_FAMILY = Kind("block_family")
REPORT_COMPLETED = Kind("report_completed")
BEGIN_CONVERSATION = Kind("begin_conversation", takes_itself_back=True)
SAY = Kind("say", takes_itself_back=True)
END_CONVERSATION = Kind("end_conversation")


class Operations:
    """`handlers` do what an intent of their kind says."""

    def __init__(self, workspace: Workspace, handlers: Mapping[Kind, Handler]) -> None:
        self.workspace = workspace
        self.intents = workspace.intents
        self.handlers = {kind.name: handler for kind, handler in handlers.items()}

    def run(self, kind: Kind, facts: Mapping[str, Any]) -> Any:
        """Does it as a whole; returns what the carrier returns. Raises what the carrier refuses, and `StorageError`."""
        intent = self.intents.write(kind.name, facts)
        try:
            result = self.handlers[kind.name](intent)
        except StorageError:
            if kind.takes_itself_back:
                self.intents.forget(intent)
            raise
        except Refusal:
            self.intents.forget(intent)
            raise
        finally:
            self.intents.rest(intent)
        self.intents.forget(intent)
        return result

    def finish(self) -> int:
        """Carries out what killed processes left behind; returns how much of it. Never raises: what cannot be done
        now waits for the next reader."""
        try:
            if not self.intents.left_behind():
                return 0
            with self.workspace.locks.held("intents"):
                return sum(self._finished(intent) for intent in self.intents.left_behind())
        except Refusal as refusal:
            logger.warning("what a killed process left could not be finished: %s", refusal)
            return 0

    def _finished(self, intent: Intent) -> bool:
        handler = self.handlers.get(intent.kind)
        if handler is None:
            logger.warning("the intent %s is of an unknown kind: %s", intent.id, intent.kind)
            return False
        try:
            handler(intent)
        except StorageError as refusal:
            logger.warning("the intent %s could not be finished yet: %s", intent.id, refusal)
            return False
        except (Unreadable, LookupError, TypeError, ValueError, AttributeError) as error:  # written by none of us
            logger.warning("the intent %s makes no sense: %r", intent.id, error)
            return False
        except Refusal as refusal:  # what it was about has changed meanwhile
            logger.warning("the intent %s is not carried out any more: %s", intent.id, refusal)
        self.intents.forget(intent)
        return True
