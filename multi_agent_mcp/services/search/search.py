"""Searches all of a session's files for words, archives included (docs/protocol.md, Search). The index only gives
candidates; answers are taken from the files."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from sqlite3 import Connection
from typing import Any

from multi_agent_mcp.domain.conversation import Conversation
from multi_agent_mcp.domain.execution import Execution
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.sanitize import one_line
from multi_agent_mcp.domain.times import asked_time, json_values
from multi_agent_mcp.errors import InvalidArguments, StorageError
from multi_agent_mcp.services.search.sources import LOGS, TOPS, Source, Sources
from multi_agent_mcp.services.team.agents import Agents
from multi_agent_mcp.store.search_index import Hit, SearchIndex, folded
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.writing import spelled

logger = logging.getLogger(__name__)

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
    """A search result. `kind` is `message`, `task`, `conversation` or `log`; `id` is that of the message, task,
    conversation or execution. `path` is relative to the session's directory; `line` is the first line of a log, counted
    from 1, with one of the words."""

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


class Search:
    """Searches one session. Marks nothing read."""

    def __init__(self, workspace: Workspace, agents: Agents) -> None:
        self.workspace = workspace
        self.agents = agents
        self.sources = Sources(workspace)
        path = workspace.path / ".search" / "index.sqlite"
        self.index = SearchIndex(workspace.path, path, TOPS, self.sources.documents, grows=lambda name: name == LOGS)

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
            case Execution(task_id=task_id):
                task = self.workspace.tasks.find(task_id)
                return task.title if task else ""
            case task:
                return task.title

    def _line(self, hit: Hit, text: str, words: list[str]) -> int:
        data = self.workspace.files.read(self.workspace.path / hit.path) or b""
        lines = enumerate(text.split("\n"))
        first = next((number for number, line in lines if any(word in folded(line) for word in words)), 0)
        return data.count(b"\n", 0, hit.start) + first + 1


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
