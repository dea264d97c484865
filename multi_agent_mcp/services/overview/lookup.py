"""Anything in a session by its id, or by the beginning of one (docs/protocol.md, Ids)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from multi_agent_mcp.domain.ids import id8, is_name
from multi_agent_mcp.errors import InvalidArguments, MessageNotFound
from multi_agent_mcp.store.archive import DIGITS

if TYPE_CHECKING:
    from multi_agent_mcp.domain.entity import Identified
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.errors import Refusal
    from multi_agent_mcp.store.collection import Collection, Partition
    from multi_agent_mcp.store.inbox import Inbox
    from multi_agent_mcp.store.workspace import Workspace

SHORTEST = 4
"""How many digits have to be given without the prefix: fewer may be an agent's name, or a slip."""
NAMED_MAX = 5


class Place(NamedTuple):
    """A file and the entity in it; `id` is what commands take."""

    id: str
    entity: Identified
    path: Path


class Source(Protocol):
    """The entities of one kind."""

    def beginning_with(self, start: str) -> Iterable[Place]:
        """Returns those whose id is, or begins with, `start`, which has the kind's prefix."""
        ...


class Filed:
    """The entities of a collection."""

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection

    def beginning_with(self, start: str) -> Iterable[Place]:
        exact = self._collection.locate(start)
        ids = [start] if exact is not None else self._collection.ids_beginning_with(start)
        found = [(entity_id, self._collection.locate(entity_id)) for entity_id in ids]
        name = self._collection.layout.name
        return [Place(key, at.entity, at.directory.path / name(key)) for key, at in found if at is not None]


class Mailed:
    """The entities in the inboxes of all agents. The copies of a broadcast are one, by the broadcast's id."""

    def __init__(self, agents: Callable[[], Iterable[str]], inbox: Callable[[str], Inbox[Any]]) -> None:
        self._agents = agents
        self._inbox = inbox

    def beginning_with(self, start: str) -> Iterable[Place]:
        found: dict[str, Place] = {}
        for agent_id in self._agents():
            for path, entity in self._inbox(agent_id).beginning_with(start):
                entity_id = _sent_as(entity, start)
                found.setdefault(entity_id, Place(entity_id, entity, path))
        return [found[start]] if start in found else [*found.values()]


class Stamped:
    """The entities of partitions, one for each agent, whose files are named by a time and the digits of the id."""

    def __init__(self, agents: Callable[[], Iterable[str]], partition: Callable[[str], Partition[Any]]) -> None:
        self._agents = agents
        self._partition = partition

    def beginning_with(self, start: str) -> Iterable[Place]:
        digits = id8(start.rpartition("_")[2])
        for partition in map(self._partition, self._agents()):
            for directory in (partition.home, *partition.archive.months()):
                for name in directory.names():
                    entity = directory.load(name) if name[DIGITS].startswith(digits) else None
                    if entity is not None and entity.id.startswith(start):
                        yield Place(entity.id, entity, directory.path / name)


def _sent_as(entity: Message, start: str) -> str:
    """Returns the id of a copy's broadcast if it begins so, too; else its own."""
    broadcast = getattr(entity, "metadata", {}).get("broadcast_id")
    return broadcast if isinstance(broadcast, str) and broadcast.startswith(start) else entity.id


class Kind(NamedTuple):
    """A kind of entity: its name in JSON (`task`), where its entities are, and the refusal for an id of none."""

    name: str
    source: Source
    missing: Callable[[str], Refusal]


class Match(NamedTuple):
    """What an id means."""

    kind: Kind
    place: Place


class Lookup:
    """Looks ids up. Reads only; nothing is cached."""

    def __init__(self, workspace: Workspace) -> None:
        agents = workspace.registry.all
        self.kinds: dict[str, Kind] = {
            "tsk": _filed("task", workspace.tasks),
            "msg": Kind("message", Mailed(agents, workspace.mailbox), _no_message),
            "cnv": _filed("conversation", workspace.conversations),
            "dlg": _filed("delegation", workspace.delegations),
            "qst": _filed("question", workspace.questions),
            "ntf": Kind("notification", Mailed(agents, workspace.notices), _no_message),
            "exec": _filed("execution", workspace.executions),
            "ses": _filed("session", workspace.sessions),
            "hnd": Kind("handoff", Stamped(agents, workspace.hand_offs), _nothing),
            "rcp": _filed("receipt", workspace.receipts),
            "rsv": _filed("reservation", workspace.reservations),
        }
        """The kinds, by the prefix of their ids; messages have none in theirs. A new kind is a line here."""

    def full_id(self, text: str, *prefixes: str) -> str:
        """The id of one of these kinds that begins with `text`; `text` itself if there is none, which the caller
        refuses in its own words. Raises `InvalidArguments` if there are several."""
        found = self._matches(text, prefixes)
        return found[0].place.id if found else text

    def find(self, text: str) -> Match:
        """What has this id, of whatever kind. Raises as `full_id`; if nothing has it, the refusal of the kind that its
        prefix names, or `InvalidArguments`."""
        if found := self._matches(text, self.kinds):
            return found[0]
        kind = self.kinds.get(text.partition("_")[0]) if "_" in text else None
        raise _nothing(text) if kind is None else kind.missing(text)

    def _matches(self, text: str, prefixes: Iterable[str]) -> list[Match]:
        starts = [(prefix, start) for prefix in prefixes if (start := _start(prefix, text)) is not None]
        kinds = [(self.kinds[prefix], start) for prefix, start in starts]
        found = [Match(kind, at) for kind, start in kinds for at in kind.source.beginning_with(start)]
        if exact := [match for match in found if match.place.id == text]:
            return exact[:1]
        if len(found) > 1:
            names = [match.place.id for match in found[:NAMED_MAX]] + ["…"] * (len(found) > NAMED_MAX)
            raise InvalidArguments("ambiguous_id", id=text, ids=", ".join(names))
        return found


def _filed(name: str, collection: Collection[Any]) -> Kind:
    return Kind(name, Filed(collection), collection.layout.missing)


def _nothing(text: str) -> Refusal:
    return InvalidArguments("nothing_with_id", id=text)


def _no_message(text: str) -> Refusal:
    return MessageNotFound(message_id=text)


def _start(prefix: str, text: str) -> str | None:
    """Returns how an id of this kind begins if `text`, with or without the prefix, is its beginning; None if it cannot
    be one."""
    digits = text.removeprefix(f"{prefix}_")
    if not is_name(digits) or (digits == text and len(text) < SHORTEST):
        return None
    return digits if prefix == "msg" else f"{prefix}_{digits}"
