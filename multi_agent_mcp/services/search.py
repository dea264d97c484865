"""Searches all of a session's files for words, archives included (docs/protocol.md, Search), and finds anything by its
id. The index only gives candidates; answers are taken from the files."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from multi_agent_mcp.domain.agent import Execution, HandOff
from multi_agent_mcp.domain.entity import Identified, id8, is_name
from multi_agent_mcp.domain.message import Conversation, Message
from multi_agent_mcp.domain.question import Question
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.domain.times import asked_time, json_values, parse_time, stamp
from multi_agent_mcp.errors import InvalidArguments, MessageNotFound, Refusal, StorageError
from multi_agent_mcp.features import load
from multi_agent_mcp.services.background import Background, PartsDone
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.store.archive import DIGITS
from multi_agent_mcp.store.derived_databases import Hit, IndexedText, SearchIndex, folded
from multi_agent_mcp.store.directory import EntityFiles
from multi_agent_mcp.system.files import spelled

if TYPE_CHECKING:
    from multi_agent_mcp.features import Kind
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.store.collection import Collection
    from multi_agent_mcp.store.inbox import Inbox
    from multi_agent_mcp.store.partition import Partition
    from multi_agent_mcp.store.workspace import Workspace

logger = logging.getLogger(__name__)

# The documents that a search covers: mail, tasks, questions, conversations, hand-offs, the logs of executions.

LOGS = "logs"
CHUNK_BYTES = 8_192
"""The size of a log's documents, up to the next end of a line."""
LINE_BYTES = 1 << 20
_LINE_TIME = re.compile(r"\[(?P<at>[^\]\n]{20,32})\] ")

Filed = Message | Task | Question | Conversation | HandOff
Entity = Filed | Execution


@dataclass(frozen=True)
class Source:
    """One document and its entity. `key` is equal for copies of one message, as of a broadcast or in a conversation."""

    kind: str
    entity: Entity
    document: IndexedText

    @property
    def key(self) -> tuple[str, ...]:
        if isinstance(self.entity, Message):
            return self.kind, id8(self.entity.id), stamp(self.entity.created_at), self.entity.sender_id
        return self.kind, self.entity.id

    @property
    def facts(self) -> dict[str, str]:
        """The author (`from`), the receiver (`to`) and the `task`, as far as known."""
        return dict(fact.split("=", 1) for fact in self.document.facts)


class Sources:
    """Reads the documents of the kinds that are searched; paths are relative to the session's directory."""

    def __init__(self, workspace: Workspace, kinds: Iterable[Kind] = ()) -> None:
        self.workspace = workspace
        self._others = {kind.directory: kind for kind in kinds if kind.entity and kind.is_searched}
        """The kinds of other packages, by their directories."""

    def documents(self, path: Path, start: int = 0) -> Iterator[IndexedText]:
        """The documents of a file for the index; of a log, those from byte `start` on."""
        return (source.document for source in self.read(path, start))

    def read(self, path: Path, start: int = 0) -> Iterator[Source]:
        """The sources in a file, none if it is not to be searched."""
        if path.suffix == ".log":
            yield from self._chunks(path, start)
        elif path.suffix == ".md" and (entity := self._load(path)) is not None:
            kind = self._others.get(path.parts[0])
            yield _source(entity) if kind is None else _source_of_other(kind.name, entity)

    def _load(self, path: Path) -> Filed | None:
        files, directory = self.workspace.files, self.workspace.path / path.parent
        match path.parts:
            case ("ipc", agent_id, *_, name):
                return EntityFiles(files, directory, Message, receiver_id=agent_id).load(name)
            case ("tasks", _, name) | ("tasks", _, "archive", _, name):
                return EntityFiles(files, directory, Task).load(name)
            case ("questions", name) | ("questions", "archive", _, name):
                return EntityFiles(files, directory, Question).load(name)
            case ("handoffs", agent_id, name) | ("handoffs", agent_id, "archive", _, name):
                return EntityFiles(files, directory, HandOff, place={"agent_id": agent_id}).load(name)
            case ("conversations", _, "conversation.md" as name):
                return EntityFiles(files, directory, Conversation).load(name)
            case ("conversations", _, name):
                return EntityFiles(files, directory, Message).load(name)
            case (top, name) | (top, "archive", _, name) if top in self._others:
                return EntityFiles(files, directory, load(self._others[top].entity)).load(name)
        return None

    def _chunks(self, path: Path, start: int) -> Iterator[Source]:
        """A log in pieces of whole lines, each with the time of its first line."""
        execution = self._execution(path)
        at = execution.started_at
        facts = _facts(**{"from": execution.agent_id, "task": execution.task_id})
        for data in self._pieces(path, start):
            text = data.decode(errors="replace")
            at = _line_time(text) or at
            yield Source("log", execution, IndexedText(text, at, facts, start))
            start += len(data)

    def _pieces(self, path: Path, start: int) -> Iterator[bytes]:
        """A log from this byte on in pieces of whole lines, unless one is longer than `LINE_BYTES`."""
        data = b""
        for block in self.workspace.files.blocks(self.workspace.path / path, start):
            data += block
            while end := data.find(b"\n", CHUNK_BYTES) + 1 or (len(data) > LINE_BYTES and len(data)):
                yield data[:end]
                data = data[end:]
        if data:
            yield data

    def _execution(self, log: Path) -> Execution:
        """The execution of a log; if its file is lost, one with only the fields that the path tells."""
        return self.workspace.executions.find(log.stem) or Execution(id=log.stem, agent_id=log.parts[1])


def _source(entity: Filed) -> Source:
    match entity:
        case Message():
            facts = _facts(
                **{"from": entity.sender_id, "to": entity.receiver_id, "task": entity.metadata.get("task_id")}
            )
            return Source(
                "message", entity, IndexedText(f"{entity.subject}\n{entity.content}", entity.created_at, facts)
            )
        case Task():
            facts = _facts(**{"from": entity.created_by, "to": entity.assignee_id, "task": entity.id})
            return Source("task", entity, IndexedText(_task_text(entity), entity.created_at, facts))
        case Question():
            facts = _facts(**{"from": entity.asker_id, "to": entity.to_id, "task": entity.task_id})
            return Source("question", entity, IndexedText(_question_text(entity), entity.created_at, facts))
        case HandOff():
            facts = _facts(**{"from": entity.agent_id, "task": entity.task_id})
            return Source("handoff", entity, IndexedText(entity.content, entity.created_at, facts))
        case Conversation():
            facts = _facts(**{"from": entity.initiator_id, "to": entity.target_agent_id, "task": entity.task_id})
            return Source("conversation", entity, IndexedText(entity.purpose or "", entity.started_at, facts))


def _source_of_other(kind: str, entity: Any) -> Source:
    """The document of an entity of another package: all of its texts."""
    said = {spec.name: getattr(entity, spec.name) for spec in fields(entity) if spec.name not in ("id", "extra")}
    words = "\n".join(value for value in said.values() if isinstance(value, str))
    facts = _facts(**{"from": said.get("agent_id"), "task": said.get("task_id")})
    return Source(kind, entity, IndexedText(words, getattr(entity, entity.BEGAN), facts))


def _task_text(task: Task) -> str:
    words = [task.title, task.description, task.blocked_reason, task.completion_summary, task.next_steps]
    return "\n".join(filter(None, [*words, *(str(item.get("text", "")) for item in task.checklist)]))


def _question_text(question: Question) -> str:
    return "\n".join(filter(None, [question.question, *question.choices, question.answer, question.note]))


def _facts(**said: object) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in said.items() if isinstance(value, str) and value)


def _line_time(text: str) -> datetime | None:
    found = _LINE_TIME.match(text)
    return parse_time(found["at"]) if found else None


FILTERS = {"from": "sender_id", "to": "receiver_id", "task": "task_id", "after": "since", "before": "until"}
TIMES = ("after", "before")
_PART = re.compile(r'(?:[a-z]+:)?(?:"[^"]*"?|[^\s"]+)')
EXCERPT_BEFORE, EXCERPT_LENGTH = 40, 200


@dataclass(frozen=True, kw_only=True)
class SearchQuery:
    """Words that must all occur, in any order, and filters. `since` and `until` limit the time of a message or log
    line, or the start of a task or conversation."""

    words: tuple[str, ...] = ()
    sender_id: str | None = None
    receiver_id: str | None = None
    task_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def parse(cls, parts: Iterable[str]) -> SearchQuery:
        """Parses a query's parts as people write them: a word, a phrase, `from:AGENT`, `to:AGENT`, `task:ID`,
        `after:TIME` or `before:TIME`. Of two filters with one name the last counts. Raises `InvalidArguments`."""
        words: list[str] = []
        filters: dict[str, Any] = {}
        for part in parts:
            name, colon, value = part.partition(":")
            if colon and value and name in FILTERS:
                value = value.strip('"')
                filters[FILTERS[name]] = asked_time(f"{name}:", value) if name in TIMES else value
            else:
                words.append(part.strip('"'))
        return cls(words=tuple(words), **filters)

    def require_something(self) -> None:
        """Raises `InvalidArguments` for a query without words and facts."""
        if not self.facts and not self.folded_words:
            raise InvalidArguments("search_for_nothing")

    @property
    def folded_words(self) -> list[str]:
        return [folded(word) for word in self.words if word.strip()]

    @property
    def facts(self) -> dict[str, str]:
        """The facts that a `Source` must have."""
        wanted = {"from": self.sender_id, "to": self.receiver_id, "task": self.task_id}
        return {name: value for name, value in wanted.items() if value is not None}

    def fits(self, source: Source) -> bool:
        """Whether the source matches the query, apart from its time."""
        text = folded(source.document.text)
        return self.facts.items() <= source.facts.items() and all(word in text for word in self.folded_words)

    def covers(self, at: datetime) -> bool:
        """Whether the time is in the query's period."""
        return (self.since is None or self.since <= at) and (self.until is None or at <= self.until)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A search result. `kind` is `message`, `task`, `question`, `conversation`, `handoff` or `log`; `id` is that of the
    message, task, question, conversation, hand-off or execution. `path` is relative to the session's directory; `line`
    is the first line of a log, counted from 1, with one of the words."""

    kind: str
    id: str
    at: datetime
    title: str
    sender_id: str | None
    receiver_id: str | None
    task_id: str | None
    excerpt: str
    path: str
    line: int | None

    def as_answer(self) -> dict[str, Any]:
        """The result as JSON values."""
        return asdict(self, dict_factory=json_values)


@dataclass(frozen=True)
class Results:
    """Search results, newest first; `more`: older ones follow."""

    found: list[Found]
    more: bool


class Search(Service):
    """Searches one session. Marks nothing read."""

    def __init__(self, session: Session, agents: Agents) -> None:
        super().__init__(session)
        self.agents = agents
        self.sources = Sources(session.workspace, session.features.each("kinds"))
        self._reading = Background("search index", self._update)
        path = session.workspace.path / ".search" / "index.sqlite"
        tops = tuple(kind.directory for kind in session.features.each("kinds") if kind.is_searched)
        self.index = SearchIndex(
            session.workspace.path, path, tops, self.sources.documents, grows=lambda name: name == LOGS
        )

    def find(self, query: SearchQuery, limit: int = 20, told: Callable[[], None] = lambda: None) -> Results:
        """The newest `limit` results. The first search reads every file and calls `told` for each; so does every search
        where no index can be kept, as on a read-only disk.

        Raises `InvalidArguments` for an empty query, `StorageError`, and as `Agents.filtered` if there are none and a
        name in the query is nobody's: a hand-written file's sender need not be an agent.
        """
        query.require_something()
        try:
            results = self.index.use(partial(self._find, query=query, limit=limit, told=told))
        except StorageError as error:
            logger.info("searching without an index: %s", error)
            results = self._confirmed(self._read_all(query, told), query, limit)
        if not results.found:
            for name in (query.sender_id, query.receiver_id):
                self.agents.filtered(name)
        return results

    def _find(self, database: Connection, query: SearchQuery, limit: int, told: Callable[[], None]) -> Results:
        self.index.refresh(database, told)
        return self._in_index(database, query, limit)

    def so_far(self, query: SearchQuery, limit: int) -> Results:
        """The newest results among what the index has by now, while it is made (`prepared`)."""
        with suppress(StorageError):
            return self.index.use(partial(self._in_index, query=query, limit=limit))
        return Results([], more=False)

    def _in_index(self, database: Connection, query: SearchQuery, limit: int) -> Results:
        facts = [f"{name}={value}" for name, value in query.facts.items()]
        hits = self.index.find(database, query.folded_words, facts, query.since, query.until)
        return self._confirmed(hits, query, limit)

    def _read_all(self, query: SearchQuery, told: Callable[[], None]) -> list[Hit]:
        """Reads every file; returns the locations of what matches the query, newest first."""
        found: list[tuple[datetime, Hit]] = []
        for path in self.index.files():
            fitting = (source.document for source in self.sources.read(path) if query.fits(source))
            found += [(document.at, Hit(path, document.start)) for document in fitting if query.covers(document.at)]
            told()
        return [hit for _, hit in sorted(found, reverse=True)]

    def _confirmed(self, hits: Iterable[Hit], query: SearchQuery, limit: int) -> Results:
        """The hits that the files confirm, each item once."""
        found: dict[tuple[str, ...], Found] = {}
        for hit in hits:
            source = next(self.sources.read(hit.path, hit.start), None)
            if source is None or not query.fits(source) or source.key in found:
                continue
            if len(found) == limit:
                return Results([*found.values()], more=True)
            found[source.key] = self._found(hit, source, query)
        return Results([*found.values()], more=False)

    def prepared(self, seconds: float) -> PartsDone | None:
        """Updates the index in the background and waits for it so long: None if it is up to date, else how many files
        have been read. Where no index can be kept there is nothing to wait for."""
        return self._reading.done_within(seconds)

    def _update(self, reading: PartsDone) -> None:
        def refresh(database: Connection) -> None:
            if self.index.is_new(database):
                reading.total = sum(1 for _ in self.index.files())
            self.index.refresh(database, reading.told)

        with suppress(StorageError):  # `find` reads everything then
            self.index.use(refresh)

    def rebuild(self) -> None:
        """Deletes the index; the next search recreates it."""
        self.index.delete()

    def _found(self, hit: Hit, source: Source, query: SearchQuery) -> Found:
        document, facts = source.document, source.facts
        return Found(
            kind=source.kind,
            id=source.entity.id,
            at=document.at,
            title=self._title(source),
            sender_id=facts.get("from"),
            receiver_id=facts.get("to"),
            task_id=facts.get("task"),
            excerpt=excerpt(document.text, query.folded_words),
            path=spelled(str(hit.path)),
            line=self._line(hit, document.text, query.folded_words) if source.kind == "log" else None,
        )

    def _title(self, source: Source) -> str:
        match source.entity:
            case Message(subject=subject):
                return subject
            case Conversation(purpose=purpose):
                return purpose or ""
            case Question(question=question):
                return one_line(question[:EXCERPT_LENGTH])
            case Execution(task_id=task_id) | HandOff(task_id=task_id):
                task = self.workspace.tasks.find(task_id) if task_id is not None else None
                return task.title if task else ""
            case Task(title=title):
                return title
        return one_line(source.document.text[:EXCERPT_LENGTH])

    def _line(self, hit: Hit, text: str, words: list[str]) -> int:
        lines = enumerate(text.split("\n"))
        first = next((number for number, line in lines if any(word in folded(line) for word in words)), 0)
        before, left = 0, hit.start
        for block in self.workspace.files.blocks(self.workspace.path / hit.path):
            before, left = before + block.count(b"\n", 0, left), left - len(block)
            if left <= 0:
                break
        return before + first + 1


def parts(text: str) -> list[str]:
    """Splits a query written on one line into parts; phrases are in quotation marks."""
    return _PART.findall(text)


def excerpt(text: str, words: list[str]) -> str:
    """The text around the first of the words, on one line."""
    low = text.casefold()  # nearly always of equal length, and an excerpt need not be exact
    places = [place for place in map(low.find, words) if place >= 0]
    start = max(min(places, default=0) - EXCERPT_BEFORE, 0)
    shown = one_line(text[start : start + EXCERPT_LENGTH])
    return f"{'…' if start else ''}{shown}{'…' if start + EXCERPT_LENGTH < len(text) else ''}"


# Anything in a session by its id, or by the beginning of one (docs/protocol.md, Ids).

SHORTEST = 4
"""How many digits have to be given without the prefix: fewer may be an agent's name, or a slip."""
NAMED_MAX = 5


class FoundEntity(NamedTuple):
    """A file and the entity in it; `id` is what commands take."""

    id: str
    entity: Identified
    path: Path


class Findable(Protocol):
    """The entities of one kind."""

    def beginning_with(self, start: str) -> Iterable[FoundEntity]:
        """Returns those whose id is, or begins with, `start`, which has the kind's prefix."""
        ...


class Collected:
    """The entities of a collection."""

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection

    def beginning_with(self, start: str) -> Iterable[FoundEntity]:
        exact = self._collection.locate(start)
        ids = [start] if exact is not None else self._collection.ids_beginning_with(start)
        found = [(entity_id, self._collection.locate(entity_id)) for entity_id in ids]
        name = self._collection.layout.name
        return [FoundEntity(key, at.entity, at.directory.path / name(key)) for key, at in found if at is not None]


class Mailed:
    """The entities in the inboxes of all agents. The copies of a broadcast are one, by the broadcast's id."""

    def __init__(self, agents: Callable[[], Iterable[str]], inbox: Callable[[str], Inbox[Any]]) -> None:
        self._agents = agents
        self._inbox = inbox

    def beginning_with(self, start: str) -> Iterable[FoundEntity]:
        found: dict[str, FoundEntity] = {}
        for agent_id in self._agents():
            for path, entity in self._inbox(agent_id).beginning_with(start):
                entity_id = _sent_as(entity, start)
                found.setdefault(entity_id, FoundEntity(entity_id, entity, path))
        return [found[start]] if start in found else [*found.values()]


class Stamped:
    """The entities of partitions, one for each agent, whose files are named by a time and the digits of the id."""

    def __init__(self, agents: Callable[[], Iterable[str]], partition: Callable[[str], Partition[Any]]) -> None:
        self._agents = agents
        self._partition = partition

    def beginning_with(self, start: str) -> Iterable[FoundEntity]:
        digits = id8(start.rpartition("_")[2])
        for partition in map(self._partition, self._agents()):
            for directory in (partition.home, *partition.archive.months()):
                for name in directory.names():
                    entity = directory.load(name) if name[DIGITS].startswith(digits) else None
                    if entity is not None and entity.id.startswith(start):
                        yield FoundEntity(entity.id, entity, directory.path / name)


def _sent_as(entity: Message, start: str) -> str:
    """Returns the id of a copy's broadcast if it begins so, too; else its own."""
    broadcast = getattr(entity, "metadata", {}).get("broadcast_id")
    return broadcast if isinstance(broadcast, str) and broadcast.startswith(start) else entity.id


class FindableKind(NamedTuple):
    """A kind of entity: its name in JSON (`task`), where its entities are, and the refusal for an id of none."""

    name: str
    source: Findable
    missing: Callable[[str], Refusal]


class Match(NamedTuple):
    """What an id means."""

    kind: FindableKind
    place: FoundEntity


class Lookup(Service):
    """Looks ids up. Reads only; nothing is cached."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.kinds = {
            kind.prefix: self._kind(kind) for kind in session.features.each("kinds") if kind.prefix and kind.name
        }
        """The kinds, by the prefix of their ids; messages have none in theirs."""

    def _kind(self, kind: Kind) -> FindableKind:
        workspace, agents = self.workspace, self.workspace.registry.all
        match kind.directory:
            case "ipc":
                return FindableKind(kind.name, Mailed(agents, workspace.mailbox), _no_message)
            case "notifications":
                return FindableKind(kind.name, Mailed(agents, workspace.notices), _no_message)
            case "handoffs":
                return FindableKind(kind.name, Stamped(agents, workspace.hand_offs), _nothing)
        collection = workspace.collection(kind)
        return FindableKind(kind.name, Collected(collection), collection.layout.missing)

    def full_id(self, text: str, *prefixes: str) -> str:
        """The id of one of these kinds, as far as the session has them, that begins with `text`; `text` itself if there
        is none, which the caller refuses in its own words. Raises `InvalidArguments` if there are several."""
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
        own, found = text.partition("_")[0], list[Match]()
        # the kind that it names comes first: then the mail of all agents need not be searched
        for prefix in sorted(filter(self.kinds.__contains__, prefixes), key=lambda each: each != own):
            kind, start = self.kinds[prefix], _start(prefix, text)
            some = [] if start is None else [Match(kind, at) for at in kind.source.beginning_with(start)]
            if exact := [match for match in some if match.place.id == text]:
                return exact[:1]
            found += some
        if len(found) > 1:
            names = [match.place.id for match in found[:NAMED_MAX]] + ["…"] * (len(found) > NAMED_MAX)
            raise InvalidArguments("ambiguous_id", id=text, ids=", ".join(names))
        return found


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
