"""The ledger `.usage/ledger.sqlite`: one row for each response that the hosts' files tell of, and how far each file was
read. It is derived, and holds numbers, ids and times, no text: what a response is known by is kept as a digest."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.config import home_of
from multi_agent_mcp.domain.agent import PURPOSES
from multi_agent_mcp.domain.entity import is_name
from multi_agent_mcp.domain.json_lines import fits, parsed, value_at
from multi_agent_mcp.domain.times import from_timestamp, local_zone
from multi_agent_mcp.services.sessions.host_conversations import named_by
from multi_agent_mcp.store.derived_databases import DerivedDatabase, writing
from multi_agent_mcp.system.file_status import signature_of
from multi_agent_mcp.system.other_files import BEGINNING, GrowingFile, ReadPosition, matching, named_from
from multi_agent_mcp.usage.limit import LimitReader, LimitRules, LimitSeen, limit_rules_of
from multi_agent_mcp.usage.tokens import Response, Tokens, UnreadableUsage, UsageRow, UsageRules, usage_rules_of

if TYPE_CHECKING:
    from multi_agent_mcp.store.workspace import Workspace

_COUNTS = ("input", "output", "cache_read", "cache_write", "reasoning")
_SUMS = ", ".join(f"SUM({name})" for name in _COUNTS)
_KEPT = ", ".join(f"{name} = MAX({name}, excluded.{name})" for name in _COUNTS)
FULL = 0.8
"""The part of its context from which a conversation counts as nearly full."""

LimitRead = Callable[[str, str, LimitSeen], None]
"""Is told what a host's own file says of an agent's limit: the agent, the host, what it says."""
Acted = Callable[[str, datetime], None]
"""Is told when an agent's model responded."""
TaskAt = Callable[[str, str, datetime], str | None]
"""Returns the task on which an agent's session of this purpose worked at a time."""


@dataclass(frozen=True)
class FileRead:
    """How far one file was read, and what its lines have said so far for those that follow. `context` is what its last
    response took of the `window`; `fillings` counts how often that came near its size; `unreadable` is when a line was
    last met that could not be read."""

    path: str
    agent_id: str
    conversation: str
    main: bool
    place: ReadPosition = BEGINNING
    model: str | None = None
    window: int | None = None
    context: int | None = None
    fillings: int = 0
    unreadable: float | None = None

    @classmethod
    def of(cls, row: Sequence[Any]) -> FileRead:
        path, agent_id, conversation, main, inode, read_to, mark, *facts = row
        return cls(path, agent_id, conversation, bool(main), ReadPosition(inode, read_to, mark), *facts)

    @property
    def row(self) -> tuple[Any, ...]:
        place = self.place
        told = (self.model, self.window, self.context, self.fillings, self.unreadable)
        return self.path, self.agent_id, self.conversation, self.main, place.inode, place.offset, place.mark, *told

    @property
    def share(self) -> float:
        """The part of its context that the conversation has used; 0 if that is not known."""
        return self.context / self.window if self.window and self.context else 0.0

    @property
    def is_full(self) -> bool:
        return FULL <= self.share <= 1

    def after(self, response: Response, rules: UsageRules) -> FileRead:
        """The state after a response: the size of the context that it says, else the model's."""
        model = response.model or self.model
        window = response.window or self.window or rules.window_of(model)
        tokens = response.tokens
        found = replace(self, model=model, window=window, context=tokens.context)
        return replace(found, fillings=self.fillings + (found.is_full and not self.is_full))


class Ledger(DerivedDatabase):
    """The ledger of one session. `task_at` says on what an agent worked; `limit_read` and `acted` are told what the
    files say beside tokens."""

    SCHEMA = """
        CREATE TABLE sources (agent_id TEXT NOT NULL, purpose TEXT NOT NULL, host TEXT NOT NULL,
                              conversation TEXT NOT NULL, path TEXT,
                              PRIMARY KEY (agent_id, conversation)) WITHOUT ROWID;
        CREATE TABLE files (path TEXT PRIMARY KEY, agent_id TEXT NOT NULL, conversation TEXT NOT NULL,
                            main INTEGER NOT NULL, inode INTEGER NOT NULL, read_to INTEGER NOT NULL,
                            mark TEXT NOT NULL, model TEXT, window INTEGER, context INTEGER,
                            fillings INTEGER NOT NULL, unreadable REAL) WITHOUT ROWID;
        CREATE TABLE strangers (path TEXT PRIMARY KEY) WITHOUT ROWID;
        CREATE TABLE responses (key BLOB PRIMARY KEY, agent_id TEXT NOT NULL, task_id TEXT, model TEXT,
                                at REAL NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL,
                                cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
                                reasoning INTEGER NOT NULL) WITHOUT ROWID;
        CREATE INDEX responses_by_agent ON responses (agent_id, at);
        CREATE INDEX responses_by_task ON responses (task_id);
        CREATE TABLE looked (at REAL NOT NULL);
        PRAGMA user_version = 1;
        """

    def __init__(
        self,
        base: Path,
        clock: Callable[[], datetime],
        task_at: TaskAt,
        limit_read: LimitRead = lambda *_: None,
        acted: Acted = lambda *_: None,
    ) -> None:
        super().__init__(base, base / ".usage" / "ledger.sqlite", self.SCHEMA, 1)
        self._clock = clock
        self._task_at = task_at
        self._limit_read = limit_read
        self._acted = acted

    # Reading the hosts' files.

    def looked_at(self, database: sqlite3.Connection) -> datetime | None:
        """When conversations were last looked for; None if never."""
        row = database.execute("SELECT MAX(at) FROM looked").fetchone()
        return None if row[0] is None else from_timestamp(row[0])

    def know(self, database: sqlite3.Connection, sources: Iterable[ConversationFile], looked_at: datetime) -> None:
        """Records which conversations are whose."""
        with writing(database):
            for found in sources:
                row = found.agent_id, found.purpose, found.host, found.conversation, found.path
                database.execute(
                    "INSERT INTO sources VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                    " SET path = COALESCE(excluded.path, path)",
                    row,
                )
            database.execute("DELETE FROM looked")
            database.execute("INSERT INTO looked VALUES (?)", (looked_at.timestamp(),))

    def sources(self, database: sqlite3.Connection) -> list[tuple[str, str, str, str, str | None]]:
        """The recorded conversations."""
        return database.execute("SELECT agent_id, purpose, host, conversation, path FROM sources").fetchall()

    def read(self, database: sqlite3.Connection, source: ConversationFile) -> set[str]:
        """Takes in what the files of a conversation have said since the last time; returns their paths. A file that
        cannot be read now is read the next time."""
        rules, found = source.rules, {source.path} if source.path else set()
        if rules is None:
            return found
        if (database_path := source.database()) is not None:
            self._read_database(database, source, rules, database_path)
            found |= {str(database_path), f"{database_path}-wal"}
        for path, main in source.files():
            found.add(str(path))
            self._read_file(database, source, rules, path, main=main)
            if main and source.path is None:
                where = str(path), source.agent_id, source.conversation
                with writing(database):
                    database.execute("UPDATE sources SET path = ? WHERE agent_id = ? AND conversation = ?", where)
            for other in source.later_files(path) if main else ():
                if self._belongs(database, source, rules, other):
                    found.add(str(other))
                    self._read_file(database, source, rules, other, main=False)
        return found

    def _read_file(
        self, database: sqlite3.Connection, source: ConversationFile, rules: UsageRules, path: Path, *, main: bool
    ) -> None:
        state = self._state(database, source, path, main=main)
        limits = LimitReader(source.limits, local_zone())
        file, needles = GrowingFile(path, state.place), (*rules.needles, *source.limits.needles)
        last: LimitSeen | datetime | None = None
        with suppress(OSError):
            if not file.may_have_grown():
                return
            with writing(database):
                for line in file.lines():
                    if any(needle in line for needle in needles):
                        told = parsed(line)
                        state, responded = self._take(database, source, rules, state, told)
                        last = limits.read(told, self._clock()) or responded or last
                self._keep(database, replace(state, place=file.place))
        if isinstance(last, LimitSeen):
            self._limit_read(source.agent_id, source.host, last)
        elif last is not None:
            self._acted(source.agent_id, last)

    def _read_database(
        self, database: sqlite3.Connection, source: ConversationFile, rules: UsageRules, path: Path
    ) -> None:
        """Takes in the messages of a conversation and of its sub-agents' (OpenCode's tables `session`, `message`) that
        have changed since the last time."""
        state = self._state(database, source, path / source.conversation, main=True)
        last, responded = state.place.offset, None
        changed = [signature_of(path), signature_of(f"{path}-wal")]
        if str(changed) == state.place.mark:
            return
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=1)) as theirs:
                rows = theirs.execute(_MESSAGES, (source.conversation, last)).fetchall()
        except sqlite3.Error:
            rows = []
            state = replace(state, unreadable=self._clock().timestamp())
        with writing(database):
            for message_id, changed_at, data in rows:
                last = max(last, changed_at)
                line = parsed(data)
                if isinstance(line, dict) and value_at(line, "time.completed"):
                    state, at = self._take(database, source, rules, state, {**line, "id": message_id})
                    responded = at or responded
            self._keep(database, replace(state, place=ReadPosition(0, last, str(changed))))
        if responded is not None:
            self._acted(source.agent_id, responded)

    def _take(
        self, database: sqlite3.Connection, source: ConversationFile, rules: UsageRules, state: FileRead, line: object
    ) -> tuple[FileRead, datetime | None]:
        """Takes in what one line says; returns the file's new state, and when the model responded, if it did."""
        responded = None
        for known in rules.remember:
            if fits(line, known.when):
                model, window = (value_at(line, path) if path else None for path in (known.model, known.window))
                state = replace(state, model=model or state.model, window=window or state.window)
        for found in rules.responses(line):
            if isinstance(found, UnreadableUsage):
                state = replace(state, unreadable=self._clock().timestamp())
            else:
                state = state.after(found, rules)
                self._count(database, source, replace(found, model=state.model))
                responded = found.at
        return state, responded

    def _count(self, database: sqlite3.Connection, source: ConversationFile, found: Response) -> None:
        """Counts a response once: of what the host wrote of it several times the largest values."""
        at = found.at or self._clock()
        task_id = self._task_at(source.agent_id, source.purpose, at)
        key = blake2b(f"{source.host}\n{found.key}".encode(errors="backslashreplace"), digest_size=16).digest()
        counts = (getattr(found.tokens, name) for name in _COUNTS)
        database.execute(
            "INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - names of ours
            f" ON CONFLICT (key) DO UPDATE SET {_KEPT}",
            (key, source.agent_id, task_id, found.model, at.timestamp(), *counts),
        )

    def _belongs(self, database: sqlite3.Connection, source: ConversationFile, rules: UsageRules, path: Path) -> bool:
        """Whether a file's first line names this conversation as its parent; for most it does not, which is kept."""
        where = (str(path),)
        if database.execute("SELECT 1 FROM files WHERE path = ? AND NOT main", where).fetchone() is not None:
            row = database.execute("SELECT conversation FROM files WHERE path = ?", where).fetchone()
            return bool(row[0] == source.conversation)
        stranger = f"{path}\n{source.conversation}"
        if database.execute("SELECT 1 FROM strangers WHERE path = ?", (stranger,)).fetchone() is not None:
            return False
        first: bytes | None = None
        with suppress(OSError):
            first = next(GrowingFile(path, BEGINNING).lines(), None)
        if first is None:
            return False  # not written yet
        if value_at(parsed(first), rules.parent) == source.conversation:
            return True
        with writing(database):
            database.execute("INSERT OR IGNORE INTO strangers VALUES (?)", (stranger,))
        return False

    def _state(self, database: sqlite3.Connection, source: ConversationFile, path: Path, *, main: bool) -> FileRead:
        row = database.execute("SELECT * FROM files WHERE path = ?", (str(path),)).fetchone()
        return FileRead(str(path), source.agent_id, source.conversation, main) if row is None else FileRead.of(row)

    def _keep(self, database: sqlite3.Connection, state: FileRead) -> None:
        database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", state.row)

    # Asking the ledger.

    def rows(
        self, database: sqlite3.Connection, since: datetime, until: datetime | None = None, task_id: str | None = None
    ) -> Iterator[UsageRow]:
        """Yields the sums by agent, task and model of a period (of one task), the largest first."""
        end = 1e12 if until is None else until.timestamp()
        found = database.execute(
            f"SELECT agent_id, task_id, model, {_SUMS} FROM responses WHERE at >= ? AND at < ?"  # noqa: S608
            " AND (? IS NULL OR task_id = ?) GROUP BY agent_id, task_id, model ORDER BY SUM(input + output) DESC",
            (since.timestamp(), end, task_id, task_id),
        )
        for agent_id, task, model, *counts in found:
            yield UsageRow(agent_id, task, model, Tokens(*counts))

    def unreadable(self, database: sqlite3.Connection, since: datetime) -> set[str]:
        """The agents of whose hosts' lines some could not be read."""
        rows = database.execute("SELECT DISTINCT agent_id FROM files WHERE unreadable >= ?", (since.timestamp(),))
        return {agent_id for (agent_id,) in rows}

    def total(
        self, database: sqlite3.Connection, agent_id: str, since: datetime | None = None, task_id: str | None = None
    ) -> int:
        """All tokens of an agent in a period, or of an agent for a task."""
        total = database.execute(
            f"SELECT TOTAL({' + '.join(_COUNTS)}) FROM responses WHERE agent_id = ? AND at >= ?"  # noqa: S608
            " AND (? IS NULL OR task_id = ?)",
            (agent_id, 0.0 if since is None else since.timestamp(), task_id, task_id),
        ).fetchone()[0]
        return int(total)

    def filled(self, database: sqlite3.Connection) -> list[FileRead]:
        """The conversations whose context is nearly full now."""
        rows = database.execute("SELECT * FROM files WHERE main AND context >= ? * window", (FULL,))
        return [state for state in map(FileRead.of, rows) if state.is_full]


_MESSAGES = """
WITH RECURSIVE mine (id) AS (SELECT ? UNION SELECT session.id FROM session JOIN mine ON session.parent_id = mine.id)
SELECT message.id, message.time_updated, message.data FROM message JOIN mine ON message.session_id = mine.id
WHERE message.time_updated >= ? ORDER BY message.time_updated
"""


# Which conversations of which hosts are an agent's, and which files the host keeps of them.

SHORT_ID = 8
RECENT = 3
"""The number of an agent's conversations that may still grow."""


@dataclass(frozen=True)
class ConversationFile:
    """One conversation of a host: whose it is, and its file, if the host told us."""

    agent_id: str
    purpose: str
    host: str
    conversation: str
    path: str | None = None

    @property
    def rules(self) -> UsageRules | None:
        """The host's rules; None for a host without any."""
        return usage_rules_of(self.host)

    @property
    def limits(self) -> LimitRules:
        """The host's rules of what tells of a limit."""
        return limit_rules_of(self.host) or LimitRules()

    def files(self) -> Iterator[tuple[Path, bool]]:
        """Yields the files of the conversation that exist, and whether it is its main line."""
        rules = self.rules
        if rules is None or rules.database or not is_name(self.conversation):
            return
        words = {"id": self.conversation, "id8": self.conversation[:SHORT_ID]}
        known = [Path(self.path)] if self.path else []
        found = [path for path in known if path.is_file()] or [
            path for home in [home_of(rules.variable, rules.home)] for path in matching(home, rules.transcripts, words)
        ]
        for path in found:
            yield path, True
            place = {**words, "dir": str(path.parent), "stem": str(path.with_suffix(""))}
            for pattern in rules.beside:
                yield from ((other, False) for other in matching(Path("/"), pattern, place) if other not in found)

    def later_files(self, main: Path) -> Iterator[Path]:
        """Yields files beside or after the main one, of which some may belong to it; their first line tells."""
        rules = self.rules
        if rules is not None and rules.later:
            yield from named_from(main, rules.later)

    def database(self) -> Path | None:
        """The host's database, if it keeps one and it exists."""
        rules = self.rules
        path = home_of(rules.variable, rules.home) / rules.database if rules is not None and rules.database else None
        return path if path is not None and path.is_file() else None


@dataclass(eq=False)
class ConversationFiles:
    """Finds the conversations of one session's agents: those that hooks were told, and those of agent sessions."""

    workspace: Workspace

    def all(self, since: datetime | None = None, *, recent: bool = False) -> Iterator[ConversationFile]:
        """Yields the conversations that are known, those of ended sessions only if they ended `since`; with `recent`,
        only the last ones that hooks were told."""
        agents = self.workspace.registry.all().values()
        holders: dict[str, set[str]] = {}
        for agent in agents:
            for name in named_by(self.workspace, agent.id):
                holders.setdefault(name, set()).add(agent.id)
        for agent in agents:
            for purpose in PURPOSES:
                told = list(self._told(agent.id, purpose, agent.host))
                yield from told[-RECENT:] if recent else told
            ended = self.workspace.sessions.closed(agent.id, since=since)
            for session in (*self.workspace.sessions.open(agent.id), *ended):
                host, conversation = (getattr(session, name, None) for name in ("host", "host_session"))
                is_own = agent.id in holders.get(str(conversation), {agent.id})
                if conversation and (host or agent.host) and is_own:
                    yield ConversationFile(agent.id, session.purpose, str(host or agent.host), str(conversation))

    def _told(self, agent_id: str, purpose: str, host: str | None) -> Iterator[ConversationFile]:
        told = self.workspace.hook_state(agent_id, purpose).facts().get("transcripts")
        for conversation, facts in told.items() if isinstance(told, Mapping) else ():
            with suppress(TypeError, ValueError):
                name, path = facts
                if isinstance(name or host, str):
                    yield ConversationFile(agent_id, purpose, str(name or host), conversation, _absolute(path))


def _absolute(path: Any) -> str | None:
    return path if isinstance(path, str) and os.path.isabs(path) else None  # noqa: PTH117 - a text from JSON
