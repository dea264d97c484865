"""Operations: changes of several files that are made as a whole or not at all, also after `kill -9`
(docs/protocol.md, Operations).

An operation is first written down as an intent (`store/intents.py`), then applied from there by a function that the
next reader calls too, should the process die on the way. Every step of it does nothing when it was done already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.store.codec.frontmatter import Unreadable
from multi_agent_mcp.store.intents import Intent, Intents
from multi_agent_mcp.store.workspace import Workspace

logger = logging.getLogger(__name__)

Apply = Callable[[Intent], Any]


@dataclass(frozen=True)
class Kind:
    """A kind of operation, by its name in the intents' files; declared where it is applied.

    One that `takes_itself_back` only adds files: should the disk refuse, applying it removes what it had added, and
    nothing was done. The others change what was there before, and are finished as soon as the disk allows. One that is
    `only_mail` changes nothing that machines share, so it needs no hub.
    """

    name: str
    takes_itself_back: bool = False
    only_mail: bool = False


class HasKinds(Protocol):
    def kinds(self) -> Mapping[Kind, Apply]:
        """The kinds of operations that this service declares; each is applied as its intent says."""
        ...


@dataclass(eq=False)
class Operations:
    """Runs operations, and finishes those of killed processes. `services` are all that declare kinds, asked for when
    first needed: they need this object themselves."""

    workspace: Workspace
    services: Callable[[], Iterable[HasKinds]]

    @cached_property
    def kinds(self) -> Mapping[str, Apply]:
        """Every kind that can be finished, by its name in the intents' files."""
        return {kind.name: apply for service in self.services() for kind, apply in service.kinds().items()}

    @property
    def intents(self) -> Intents:
        return self.workspace.intents

    def run(self, kind: Kind, facts: Mapping[str, Any]) -> Any:
        """Does it as a whole; returns what applying it returns. Raises what that refuses, and `StorageError`."""
        if not kind.only_mail:
            self.workspace.authority.require()  # else it would be done some time later, although it was refused
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
        """Applies what killed processes left behind; returns how much of it. Never raises: what cannot be done
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
        apply = self.kinds.get(intent.kind)
        if apply is None:
            logger.warning("the intent %s is of an unknown kind: %s", intent.id, intent.kind)
            return False
        try:
            apply(intent)
        except StorageError as refusal:
            logger.warning("the intent %s could not be finished yet: %s", intent.id, refusal)
            return False
        except (Unreadable, LookupError, TypeError, ValueError, AttributeError) as error:  # written by none of us
            logger.warning("the intent %s makes no sense: %r", intent.id, error)
            return False
        except Refusal as refusal:  # what it was about has changed meanwhile
            logger.warning("the intent %s is not applied any more: %s", intent.id, refusal)
        self.intents.forget(intent)
        return True
