"""Derived SQLite databases, each in one file, which may be deleted at any time: it is made again when it is missing,
damaged, or of another version. One of them is the index of `search`."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.directory import QUARANTINE
from multi_agent_mcp.store.durable_files import Containment
from multi_agent_mcp.system.file_status import is_settled, modified_at, signature
from multi_agent_mcp.system.files import FILE_MODE, make_directory, storage_errors

T = TypeVar("T")
BUSY_SECONDS = 60
PRIMARY = 0xFF
"""The mask of the primary result code in an extended result code of SQLite."""
NOT_ITS_CONTENT = frozenset(
    (
        *(
            sqlite3.SQLITE_PERM,
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
            sqlite3.SQLITE_NOMEM,
            sqlite3.SQLITE_READONLY,
        ),
        *(sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN),
    )
)
"""Result codes of errors that do not mean that the file is damaged."""


class DerivedDatabase:
    """The database in the file `path` inside `base`. `schema` are the statements that make it, `version` is what its
    `PRAGMA user_version` sets."""

    def __init__(self, base: Path, path: Path, schema: str, version: int) -> None:
        self.base = base
        self.path = path
        self.containment = Containment(base)
        self._schema = schema
        self._version = version

    def use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Calls `work` with the database and returns its result. The database is made if missing, and recreated once if
        it is damaged or not ours. Raises `StorageError`."""
        for attempt in (1, 2):
            try:
                with closing(self._open()) as database:
                    return work(database)
            except sqlite3.DatabaseError as error:
                if attempt == 2 or getattr(error, "sqlite_errorcode", 0) & PRIMARY in NOT_ITS_CONTENT:
                    raise StorageError("derived_database", path=self.path.name, error=error) from error
                self.delete()
        raise AssertionError("the second attempt returns or raises")

    def delete(self) -> None:
        """Deletes the database; the next use recreates it. Raises `StorageError`."""
        for suffix in ("", "-wal", "-shm"):
            with storage_errors(self.path), suppress(FileNotFoundError):
                self.path.with_name(self.path.name + suffix).unlink()

    def _open(self) -> sqlite3.Connection:
        self.containment.require(self.path.parent)
        with storage_errors(self.path):
            make_directory(self.path.parent, within=self.base)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, FILE_MODE))
        database = sqlite3.connect(self.path, timeout=BUSY_SECONDS)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = OFF")  # derived: it may be lost by a power cut
            if _version_of(database) != self._version:  # asked without the lock: whoever only reads waits for no writer
                with writing(database):
                    self._make(database)
        except BaseException:
            database.close()
            raise
        return database

    def _make(self, database: sqlite3.Connection) -> None:
        version = _version_of(database)
        if version not in (0, self._version):
            raise sqlite3.DatabaseError("of another version")
        for statement in self._schema.strip().split(";\n") if version == 0 else ():
            database.execute(statement)


def _version_of(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def writing(database: sqlite3.Connection) -> Iterator[None]:
    """A write transaction, which sees everything that was committed before it begins."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        yield


# The index of `search`: SQLite's FTS5 with trigrams, so that any substring is found, Japanese too. It gives locations,
# and the texts are read from the files. It is updated before each search; an unchanged directory costs one stat(2). An
# edit in place does not change its directory's modification time: its text is found once the directory changes, or
# after `delete`.

TRIGRAM = 3
SAME_TIME = 1_000
"""The number of keys for documents of the same microsecond."""
LAST_KEY = 2**63 - 1
WORDS_MAX = 32
WORD_MAX = 1_000
"""How much of a word is looked up."""
UNSEEN = -1
"""The modification time of a directory that was not indexed yet, or that was indexed too soon after a change."""

_SCHEMA = """
CREATE TABLE directories (path TEXT PRIMARY KEY, modified INTEGER NOT NULL);
CREATE TABLE files (id INTEGER PRIMARY KEY, directory TEXT NOT NULL, name TEXT NOT NULL, signature TEXT NOT NULL,
                    UNIQUE (directory, name));
CREATE TABLE documents (id INTEGER PRIMARY KEY, file INTEGER NOT NULL, start INTEGER NOT NULL);
CREATE INDEX documents_of_file ON documents (file, start);
CREATE VIRTUAL TABLE words USING fts5(text, facts, tokenize = 'trigram case_sensitive 1');
CREATE VIRTUAL TABLE trigrams USING fts5vocab(words, col);
PRAGMA user_version = 2;
"""
_VERSION = 2


class IndexedText(NamedTuple):
    """A searchable text of a file, from byte `start` on. `facts` are matched only as a whole (`from=admin`)."""

    text: str
    at: datetime
    facts: tuple[str, ...] = ()
    start: int = 0


class Hit(NamedTuple):
    """The location of a document: its file, relative to the base, and the byte it starts at."""

    path: Path
    start: int


Reader = Callable[[Path, int], Iterable[IndexedText]]
"""Reads the documents of a file (relative to the base) from a byte on; none if the file is not searchable."""


class SearchIndex(DerivedDatabase):
    """The index of the files below `tops`, directories in `base`, without dot-files and links.

    `grows` returns whether the files of a directory (by its name) are appended to, which does not change the
    directory's modification time.
    """

    def __init__(
        self, base: Path, path: Path, tops: Sequence[str], read: Reader, grows: Callable[[str], bool] = lambda _: False
    ) -> None:
        super().__init__(base, path, _SCHEMA, _VERSION)
        self._tops = tops
        self._read = read
        self._grows = grows

    def is_new(self, database: sqlite3.Connection) -> bool:
        """Returns whether nothing is indexed yet."""
        return database.execute("SELECT 1 FROM files LIMIT 1").fetchone() is None

    def refresh(self, database: sqlite3.Connection, told: Callable[[], None] = lambda: None) -> None:
        """Updates the index with changed files; calls `told` after each file that is read."""
        rows = database.execute("SELECT path, modified FROM directories")
        known = {_name(path): modified for path, modified in rows}
        inside = defaultdict(list)
        for path in known:
            inside[path.rpartition("/")[0]].append(path)
        waiting, seen = list(self._tops), set()
        while waiting:
            directory = waiting.pop()
            seen.add(directory)
            modified = modified_at(self.base / directory)
            if known.get(directory) != modified or self._grows(Path(directory).name):
                waiting += self._take_in(database, directory, modified, told)
            else:
                waiting += inside[directory]
        for gone in known.keys() - seen:
            with database:
                self._drop(database, "directory = ?", _text(gone))
                database.execute("DELETE FROM directories WHERE path = ?", (_text(gone),))

    def files(self) -> Iterator[Path]:
        """Yields the files that are indexed, relative to the base, from the disk."""
        waiting = list(self._tops)
        while waiting:
            directory = waiting.pop()
            for name, status in _listing(self.base / directory):
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(f"{directory}/{name}")
                else:
                    yield Path(directory, name)

    def find(
        self,
        database: sqlite3.Connection,
        words: Sequence[str],
        facts: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[Hit]:
        """Yields the locations of documents that may contain all words (as `folded`) and facts, newest first. Of very
        many words the longest `WORDS_MAX` are looked up: SQLite has limits, and the files are asked anyway."""
        sought = sorted({folded(word)[:WORD_MAX] for word in words}, key=len, reverse=True)[:WORDS_MAX]
        terms = [f"text : {_quoted(word)}" for word in sought if len(word) >= TRIGRAM]
        terms += [f"facts : {_quoted(_fact(fact))}" for fact in facts]
        short = [word for word in sought if len(word) < TRIGRAM]
        if not terms:  # looking up a word shorter than a trigram is slow: only if no other term narrows the search
            begun = _beginning_with(database, short.pop(0))
            if begun is None:
                return
            terms.append(begun)
        rows = database.execute(
            "SELECT directory, name, start FROM words JOIN documents ON documents.id = words.rowid"  # noqa: S608
            " JOIN files ON files.id = documents.file"
            f" WHERE words MATCH ? AND words.rowid BETWEEN ? AND ?{' AND instr(words.text, ?)' * len(short)}"
            " ORDER BY words.rowid DESC",
            (
                " AND ".join(f"({term})" for term in terms),
                0 if since is None else _key(since),
                LAST_KEY if until is None else _key(until) + SAME_TIME - 1,
                *short,
            ),
        )
        for directory, name, start in rows:
            yield Hit(Path(_name(directory), _name(name)), start)

    def _take_in(
        self, database: sqlite3.Connection, directory: str, modified: int, told: Callable[[], None]
    ) -> list[str]:
        """Updates the index of one directory in one transaction. Returns the directories in it."""
        began = time.time_ns()
        with writing(database):
            known = {
                _name(name): (file, known)
                for file, name, known in database.execute(
                    "SELECT id, name, signature FROM files WHERE directory = ?", (_text(directory),)
                )
            }
            below = []
            for name, status in _listing(self.base / directory):
                if stat.S_ISDIR(status.st_mode):
                    below.append(f"{directory}/{name}")
                    # Recorded before it is indexed: if this process is killed, the next one continues there.
                    values = _text(below[-1]), UNSEEN
                    database.execute("INSERT OR IGNORE INTO directories VALUES (?, ?)", values)
                    continue
                file, before = known.pop(name, (None, ""))
                now = "{} {} {}".format(*signature(status))
                if before != now:
                    self._index(database, (file, directory, name, now), before)
                    told()
            for file, _ in known.values():
                self._drop(database, "id = ?", file)
            settled = modified if is_settled(modified, began) else UNSEEN
            database.execute("INSERT OR REPLACE INTO directories VALUES (?, ?)", (_text(directory), settled))
        return below

    def _index(self, database: sqlite3.Connection, row: tuple[int | None, str, str, str], before: str) -> None:
        """Indexes a file that is new or has changed. A file that has only grown is read from its last document on."""
        file, directory, name, now = row
        start = self._grown_from(database, file, before, now) if self._grows(Path(directory).name) else 0
        if file is not None:
            database.execute(
                "DELETE FROM words WHERE rowid IN (SELECT id FROM documents WHERE file = ? AND start >= ?)",
                (file, start),
            )
            database.execute("DELETE FROM documents WHERE file = ? AND start >= ?", (file, start))
        values = file, _text(directory), _text(name), now
        file = database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", values).lastrowid
        for document in self._read(Path(directory, name), start):
            key = _free_key(database, document.at)
            database.execute("INSERT INTO documents VALUES (?, ?, ?)", (key, file, document.start))
            # Padding, so that a word of one or two letters at the very end begins a trigram, too.
            text = folded(document.text) + "\n" * (TRIGRAM - 1)
            facts = "".join(map(_fact, document.facts))
            database.execute("INSERT INTO words (rowid, text, facts) VALUES (?, ?, ?)", (key, text, facts))

    @staticmethod
    def _grown_from(database: sqlite3.Connection, file: int | None, before: str, now: str) -> int:
        if file is None or before.split()[2:] != now.split()[2:] or int(before.split()[1]) > int(now.split()[1]):
            return 0
        last = database.execute("SELECT max(start) FROM documents WHERE file = ?", (file,)).fetchone()[0]
        return int(last or 0)

    @staticmethod
    def _drop(database: sqlite3.Connection, which: str, *values: object) -> None:
        """Deletes files and their documents. `which` is an SQL condition, never user input."""
        files = f"SELECT id FROM files WHERE {which}"  # noqa: S608
        documents = f"SELECT id FROM documents WHERE file IN ({files})"  # noqa: S608
        database.execute(f"DELETE FROM words WHERE rowid IN ({documents})", values)  # noqa: S608
        database.execute(f"DELETE FROM documents WHERE file IN ({files})", values)  # noqa: S608
        database.execute(f"DELETE FROM files WHERE {which}", values)  # noqa: S608


def _text(name: str) -> str:
    """Encodes a path for SQLite, as it need not be UTF-8."""
    return os.fsencode(name).decode("latin-1")


def _name(text: str) -> str:
    """Decodes a path encoded by `_text`."""
    return os.fsdecode(text.encode("latin-1"))


def folded(text: str) -> str:
    """Returns the text normalised for comparison: case and width are ignored (`ﾛｸﾞｲﾝ` is `ログイン`)."""
    whole = text.encode(errors="replace").decode()  # SQLite takes no lone surrogates
    return unicodedata.normalize("NFKC", whole).casefold().replace("\0", "\n")


def _listing(directory: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yields name and status of the directories and regular files in a directory, without quarantines; none if it is
    gone or a link."""
    if directory.is_symlink():
        return
    with storage_errors(directory), suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as found:
        for item in found:
            with suppress(FileNotFoundError):
                status = item.stat(follow_symlinks=False)
                is_searched = item.name != QUARANTINE and not item.name.startswith(".")
                if is_searched and (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                    yield item.name, status


def _beginning_with(database: sqlite3.Connection, word: str) -> str | None:
    """Returns the FTS5 query for texts that contain a word shorter than a trigram: those with any trigram that begins
    with it. None if there is no such trigram."""
    rows = database.execute(
        "SELECT term FROM trigrams WHERE col = 'text' AND term >= ? AND term < ?", (word, word + chr(0x10FFFF))
    )
    begun = " OR ".join(_quoted(term) for (term,) in rows)
    return f"text : ({begun})" if begun else None


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _fact(fact: str) -> str:
    """Returns a fact between line ends, so that it is matched only as a whole."""
    return f"\n{' '.join(fact.split())}\n"


def _key(at: datetime) -> int:
    """Returns the first key for a time. Keys are ordered by time, so that newest first is an order of the index."""
    microseconds = int(at.timestamp() * 1_000_000)
    return min(max(microseconds, 0), LAST_KEY // SAME_TIME - 1) * SAME_TIME


def _free_key(database: sqlite3.Connection, at: datetime) -> int:
    first = _key(at)
    while True:
        last = database.execute(
            "SELECT max(id) FROM documents WHERE id BETWEEN ? AND ?", (first, first + SAME_TIME - 1)
        ).fetchone()[0]
        if last is None or last < first + SAME_TIME - 1:
            return first if last is None else int(last) + 1
        first += SAME_TIME  # all keys of this microsecond are used: it takes one of the next
