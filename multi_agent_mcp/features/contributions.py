"""What the features contribute to one session: their services, what follows when something happens, and the answers to
what the core asks without knowing who answers.

It is the one way from a service to others that it does not name as neighbours, and the only one that leads to optional
features: `multi_agent_mcp` can lack the folder of any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.features import called

if TYPE_CHECKING:
    from multi_agent_mcp.features import Features, Kind


class Contributions:
    """The contributions of the features of one session. Whatever is named is imported and made when it is called."""

    def __init__(self, features: Features, collection: Callable[[Kind], Any], service: Callable[[str], Any]) -> None:
        self.features = features
        self._collection = collection
        self.service = service
        """Returns the service of this name, made on first use. Raises `AttributeError` if no feature has it."""

    def call(self, where: str, *arguments: Any, given: tuple[Any, ...] = ()) -> Any:
        """Calls what a feature names: `service.method`, or a function of a module, which gets `given` before the
        arguments."""
        if ":" in where:
            return called(where, *given, *arguments)
        name, _, method = where.partition(".")
        return getattr(self.service(name), method)(*arguments)

    def each(self, field: str, *arguments: Any, given: tuple[Any, ...] = ()) -> Iterator[Any]:
        """Calls everything that this field of the features names; yields what is not None."""
        for where in self.features.each(field):
            if (found := self.call(where, *arguments, given=given)) is not None:
                yield found

    def tell(self, event: str, *arguments: Any) -> None:
        """Tells the features that are on of an event (`Feature.on`)."""
        for feature in self.features.on:
            if where := feature.on.get(event):
                self.call(where, *arguments)

    def ask(self, question: str, *arguments: Any) -> Any:
        """The answer to a question (`Feature.answers`); None if nobody answers it. A feature that is off answers, too:
        what it has made is still there."""
        for feature in self.features.all:
            if where := feature.answers.get(question):
                return self.call(where, *arguments)
        return None

    def expiring(self) -> Iterator[tuple[Any, str]]:
        """The collections of which something may end although no file changes, each with what ends it."""
        for feature in self.features.on:
            for kind in feature.kinds:
                if where := feature.expires.get(kind.directory):
                    yield self._collection(kind), where

    def settle(self) -> None:
        """Ends whatever has run out; a stat(2) for each kind where nothing is open."""
        for collection, where in self.expiring():
            if collection.open():
                self.call(where)
