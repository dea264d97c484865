"""A derived SQLite database in one file, which may be deleted at any time: it is made anew when it is missing, damaged,
or of another version."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.system.containment import Containment
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
            with writing(database):
                if (version := database.execute("PRAGMA user_version").fetchone()[0]) == 0:
                    for statement in self._schema.strip().split(";\n"):
                        database.execute(statement)
                elif version != self._version:
                    raise sqlite3.DatabaseError("of another version")
        except BaseException:
            database.close()
            raise
        return database


@contextmanager
def writing(database: sqlite3.Connection) -> Iterator[None]:
    """A write transaction, which sees everything that was committed before it begins."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        yield
