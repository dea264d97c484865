"""Operations: changes of several files, made completely or not at all, even after `kill -9`
(docs/protocol.md, Operations).

An operation is first written as an intent (`store/records.py`), then applied from it by a function that the next reader
calls, too, if the process dies midway. Every step of the function does nothing if it was already done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.codec import Unreadable, as_text, from_text

if TYPE_CHECKING:
    from multi_agent_mcp.store.records import Intent, Intents

logger = logging.getLogger(__name__)

FORMERLY = {"letters": "mail"}
"""The names of facts that earlier versions have written, whose operations are carried on → those of now."""


class Run(NamedTuple):
    """One application of an operation. `again` is true if another process may have begun to apply it."""

    intent_id: str
    again: bool = False


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What an operation is to do: completely, ids and times included, so that applying it twice has no further effect.
    Subclasses are declared where they are applied; `KIND` is their name in the files of intents.

    One that `TAKES_ITSELF_BACK` only adds files: if the disk fails, applying it removes them again, and nothing was
    done. Others change existing files, and are finished as soon as the disk allows. One that is `ONLY_MAIL` changes
    nothing that machines share, so it needs no hub.
    """

    KIND: ClassVar[str]
    TAKES_ITSELF_BACK: ClassVar[bool] = False
    ONLY_MAIL: ClassVar[bool] = False

    def facts(self) -> dict[str, Any]:
        """Returns the fields as JSON values, with entities as the texts of their files."""
        return {spec.name: _fact(getattr(self, spec.name)) for spec in fields(self)}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Returns the operation with these facts. Raises LookupError, TypeError, ValueError or `Unreadable` for
        others."""
        read = {spec.name: spec.metadata.get("read") for spec in fields(cls)}
        return cls(**{name: _read(value, read.get(name)) for name, value in facts.items()})


def read_by(parse: Callable[[Any], Any]) -> dict[str, Callable[[Any], Any]]:
    """The metadata of an operation's field that holds something else than texts, numbers and lists of them: how its
    facts are read, or each of a list of them."""
    return {"read": parse}


def read_as(kind: type[Entity]) -> dict[str, Callable[[Any], Any]]:
    """As `read_by`, for a field of entities of this kind."""
    return read_by(partial(from_text, kind))


def _read(value: Any, parse: Callable[[Any], Any] | None) -> Any:
    if value is None or parse is None:
        return value
    return [parse(one) for one in value] if isinstance(value, list) else parse(value)


class HasFacts(Protocol):
    """A part of an operation that is no entity."""

    @property
    def facts(self) -> Any: ...


def _fact(value: Any) -> Any:
    if isinstance(value, Entity):
        return as_text(value)
    if isinstance(value, (tuple, list)):
        return [_fact(item) for item in value]
    if value is None or isinstance(value, (str, int, float, dict)):
        return value
    part: HasFacts = value
    return part.facts


Apply = Callable[[Any, Run], Any]


@dataclass(eq=False)
class Operations(Service):
    """Runs operations, and finishes those of killed processes. The services
    that apply some are made on first use, because they need this object themselves."""

    @cached_property
    def applied(self) -> Mapping[type[Operation], Apply]:
        """The functions that apply operations."""
        return {kind: apply for service in self.contributions.operations() for kind, apply in service.applied().items()}

    @property
    def intents(self) -> Intents:
        return self.workspace.intents

    # Why an operation need not be undone: its intent holds everything that applying it decides, ids and times too, so
    # two processes that apply it write the same files, and the second finds each step done. Killed before the intent
    # was written, nothing has happened; afterwards the next reader of the session finishes it: every call and every
    # recovery begins with `finish`.
    #
    # A refusal (the task was finished by somebody else) forgets the intent, so a function that applies one has to
    # refuse at its first write, before anything is changed. A failing disk is another matter: what only adds files
    # takes them back, everything else leaves the intent to be finished.
    def run(self, operation: Operation) -> Any:
        """Runs an operation; returns the result of applying it. Raises as the function that applies it, and
        `StorageError`."""
        if not operation.ONLY_MAIL:
            self.workspace.authority.require()  # else it might be finished later, although it was refused
        intent = self.intents.write(operation.KIND, operation.facts())
        try:
            result = self.applied[type(operation)](operation, Run(intent.id))
        except StorageError:
            if operation.TAKES_ITSELF_BACK:
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
                return sum(self._finish(intent) for intent in self.intents.left_behind())
        except Refusal as refusal:
            logger.warning("what a killed process left could not be finished: %s", refusal)
            return 0

    def _finish(self, intent: Intent) -> bool:
        found = next(((kind, apply) for kind, apply in self.applied.items() if intent.kind == kind.KIND), None)
        if found is None:
            logger.warning("the intent %s is of an unknown kind: %s", intent.id, intent.kind)
            return False
        kind, apply = found
        facts = {FORMERLY.get(name, name): value for name, value in intent.facts.items()}
        try:
            apply(kind.of(facts), Run(intent.id, again=True))
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
