"""Undertakings: operations over several files that are there whole or not at all, also after `kill -9` (contract §3).

What is to be done is written down first (`store/intents.py`) and carried out from there, by the same function that the
next reader calls should the process die on the way. Every step of it does nothing when it was done already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.store.frontmatter import Unreadable
from multi_agent_mcp.store.intents import Intent
from multi_agent_mcp.store.workspace import Workspace

logger = logging.getLogger(__name__)

Carrier = Callable[[Intent], Any]

UNDONE_BY_THEMSELVES = frozenset({"send", "create_tasks", "send_task", "request_task", "begin_conversation"})
"""Kinds that only add files: should the disk refuse, they take back what they added. The others change what was there
before, and are finished as soon as the disk allows."""


class Undertakings:
    """`carriers` do what an intent of their kind says."""

    def __init__(self, workspace: Workspace, carriers: Mapping[str, Carrier]) -> None:
        self.workspace = workspace
        self.intents = workspace.intents
        self.carriers = carriers

    def carry_out(self, kind: str, facts: Mapping[str, Any]) -> Any:
        """Does it as a whole; returns what the carrier returns. Raises what the carrier refuses, and `StorageError`."""
        intent = self.intents.write(kind, facts)
        try:
            result = self.carriers[kind](intent)
        except StorageError:
            if kind in UNDONE_BY_THEMSELVES:
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
        carrier = self.carriers.get(intent.kind)
        if carrier is None:
            logger.warning("the intent %s is of an unknown kind: %s", intent.id, intent.kind)
            return False
        try:
            carrier(intent)
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
