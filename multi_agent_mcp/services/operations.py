"""Operations: changes of several files, made completely or not at all, even after `kill -9`
(docs/protocol.md, Operations).

An operation is first written as an intent (`store/intents.py`), then applied from it by a function that the next reader
calls, too, if the process dies midway. Every step of the function does nothing if it was already done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.store.codec import Unreadable
from multi_agent_mcp.store.intents import Intent, Intents
from multi_agent_mcp.store.workspace import Workspace

logger = logging.getLogger(__name__)

Apply = Callable[[Intent], Any]


@dataclass(frozen=True)
class Kind:
    """A kind of operation, with its name in the files of intents; declared where it is applied.

    A kind that `takes_itself_back` only adds files: if the disk fails, applying it removes them again, and nothing was
    done. Other kinds change existing files, and are finished as soon as the disk allows. One that is `only_mail`
    changes nothing that machines share, so it needs no hub.
    """

    name: str
    takes_itself_back: bool = False
    only_mail: bool = False


class HasKinds(Protocol):
    def kinds(self) -> Mapping[Kind, Apply]:
        """The kinds of operations that this service declares, each with the function that applies an intent."""
        ...


@dataclass(eq=False)
class Operations:
    """Runs operations, and finishes those of killed processes. `services` returns all services that declare kinds; it
    is called on first use, because they need this object themselves."""

    workspace: Workspace
    services: Callable[[], Iterable[HasKinds]]

    @cached_property
    def kinds(self) -> Mapping[str, Apply]:
        """The functions that apply intents, by the name of their kind."""
        return {kind.name: apply for service in self.services() for kind, apply in service.kinds().items()}

    @property
    def intents(self) -> Intents:
        return self.workspace.intents

    def run(self, kind: Kind, facts: Mapping[str, Any]) -> Any:
        """Runs an operation; returns the result of applying it. Raises as the function that applies it, and
        `StorageError`."""
        if not kind.only_mail:
            self.workspace.authority.require()  # else it might be finished later, although it was refused
        intent = self.intents.write(kind.name, facts)
        try:
            result = self.kinds[kind.name](intent)
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
        """Applies the intents that killed processes left behind; returns their number. Never raises: an intent that
        cannot be applied now waits for the next reader."""
        try:
            if not self.intents.left_behind():
                return 0
            with self.workspace.locks.held("intents"):
                return sum(self._finished(intent) for intent in self.intents.left_behind())
        except Refusal as refusal:
            logger.warning("what a killed process left could not be finished: %s", refusal)
            return 0

    def _finished(self, intent: Intent) -> bool:
        apply = self.kinds.get(intent.kind)
        if apply is None:
            logger.warning("the intent %s is of an unknown kind: %s", intent.id, intent.kind)
            return False
        try:
            apply(intent)
        except StorageError as refusal:
            logger.warning("the intent %s could not be finished yet: %s", intent.id, refusal)
            return False
        except (Unreadable, LookupError, TypeError, ValueError, AttributeError) as error:  # not written by this program
            logger.warning("the intent %s makes no sense: %r", intent.id, error)
            return False
        except Refusal as refusal:  # its subject has changed meanwhile
            logger.warning("the intent %s is not applied any more: %s", intent.id, refusal)
        self.intents.forget(intent)
        return True
