"""Opening the database file: its settings, its mode, and whether it is still the file we opened."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from cordata import clock
from cordata.errors import ConfigError, StoreUnavailable
from cordata.store.queries import Queries
from cordata.store.sqlite.fault import DIRECTORY_HINT, is_busy, translate
from cordata.store.sqlite.tx import SqliteTx

#: Measured with six small inserts per unit: 2 MiB of cache is as fast as 64, and pages of 4096
#: bytes as fast as 16384 (smaller ones are 20 % slower). The kernel's cache holds the rest.
_WRITER_CACHE_KIB = 4096
_READER_CACHE_KIB = 2048
_STATEMENTS = 512
#: A foreign program (sqlite3 in a shell) may hold a write transaction for so long.
_FOREIGN_MS = 5000

_SETTINGS = (
    "PRAGMA synchronous = FULL",  # a commit is on disk when it returns
    "PRAGMA wal_autocheckpoint = 0",  # checkpoints only under the write lock
    "PRAGMA mmap_size = 0",  # an I/O error is an error, not a SIGBUS
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",  # savepoint journals of a batch stay off the disk
    "PRAGMA trusted_schema = OFF",
    "PRAGMA secure_delete = ON",  # what is deleted is no longer in the file; Debian's default
)


def database_path(url: str, state_dir: Path) -> Path:
    """The file of a `[store] url`. Raises: ConfigError that quotes nothing of it."""
    if "\0" in url:
        raise ConfigError("[store] url has a NUL character")
    if url == "sqlite:":
        return state_dir / "cordata.db"
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return Path(url.removeprefix("sqlite://"))
    raise ConfigError("[store] url is no file", hint='"sqlite:" or "sqlite:///path/to/file.db"')


class Database:
    """The file, and connections to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.wal_path = path.with_name(path.name + "-wal")
        #: One lock per file. The default one has a plain name that operators can remember.
        default = path.name == "cordata.db"
        self.lock_path = path.with_name("write.lock" if default else path.name + ".lock")
        self._identity = (0, 0)

    def anchor(self) -> sqlite3.Connection | None:
        """A connection if the file is there and ready; None when `create` has to come first.

        Keep it until another one is open: the last one to close would fold the log back without
        the write lock. Raises: StoreUnavailable when it is no database.
        """
        if not self.path.exists():
            return None
        connection = self._connect()
        try:
            ready = connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            connection.close()
            if is_busy(error):
                return None
            raise self.told(error, "opening") from error
        if not ready:
            connection.close()
            return None
        self._remember()
        return connection

    def create(self, *, lost: bool) -> None:
        """Make the file, or make it ready; under the write lock.

        `lost`: it was there before. Raises: StoreUnavailable with the next step.
        """
        there = self.path.exists()
        if lost and not (there and self.path.stat().st_size):
            raise StoreUnavailable(
                f"{self.path} is {'empty' if there else 'gone'}, although it was in use before",
                hint=f"restore it from a backup, or start anew by deleting {self.lock_path}",
            )
        if not there:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                os.close(os.open(self.path, flags, 0o600))
            except OSError as error:
                raise StoreUnavailable(
                    f"{self.path} cannot be made: {error.strerror}",
                    hint=DIRECTORY_HINT,
                ) from error
        connection = self._connect()
        try:
            connection.execute(f"PRAGMA busy_timeout = {_FOREIGN_MS}")
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreUnavailable(f"{self.path}: WAL mode was refused (it is {mode})")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            raise self.told(error, "opening") from error
        finally:
            connection.close()
        self._remember()

    def open(self, *, write: bool) -> sqlite3.Connection:
        """A connection with our settings that never waits. Raises: StoreUnavailable."""
        self.check()
        connection = self._connect()
        try:
            for setting in _SETTINGS:
                connection.execute(setting)
            cache = _WRITER_CACHE_KIB if write else _READER_CACHE_KIB
            connection.execute(f"PRAGMA cache_size = -{cache}")
            if not write:
                connection.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            connection.close()
            raise self.told(error, "opening") from error
        return connection

    def check(self) -> None:
        """See that the path still leads to the file we know; a write elsewhere would be lost.

        Another file in its place is refused until the next start: SQLite would apply the old
        file's log to it, whoever opened it first. Raises: StoreUnavailable.
        """
        if self._stat() != self._identity:
            name = self.path.name
            raise StoreUnavailable(
                f"{self.path} was replaced while in use",
                hint=f"stop all processes, delete {name}-wal and {name}-shm, put the right file"
                " in its place, start them again",
            )

    def told(self, error: sqlite3.Error, what: str) -> StoreUnavailable:
        """The caller's error for a failure of the file itself."""
        told = translate(error, f"{self.path}: {what}", folder=self.path.parent)
        if isinstance(told, StoreUnavailable):
            return told
        return StoreUnavailable(str(told), hint=told.hint)

    def _remember(self) -> None:
        self._identity = self._stat()

    def _stat(self) -> tuple[int, int]:
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise StoreUnavailable(
                f"{self.path} cannot be read: {error.strerror}",
                hint="put the file back; the store takes it up by itself",
            ) from error
        return status.st_dev, status.st_ino

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: a missing file is an error, never a new empty database.
        uri = f"file:{quote(str(self.path.absolute()))}?mode=rw"
        try:
            connection = sqlite3.connect(
                uri,
                uri=True,
                timeout=0,
                isolation_level=None,
                cached_statements=_STATEMENTS,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise self.told(error, "opening") from error
        connection.row_factory = sqlite3.Row
        return connection


class WriteConnection:
    """The one connection of this process that writes; whoever has the turn uses it."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None

    def ready(self) -> sqlite3.Connection:
        """The connection, opened anew if need be. Raises: StoreUnavailable."""
        self._database.check()
        if self._connection is None:
            self._connection = self._database.open(write=True)
            self._cursor = self._connection.cursor()
        return self._connection

    def tx(self) -> SqliteTx:
        """A Tx on it, for one unit."""
        assert self._cursor is not None
        return SqliteTx(self._cursor, self._queries, clock.now_us())

    def execute(self, statement: str) -> sqlite3.Cursor:
        """Run one of our own statements. Raises: sqlite3.Error."""
        assert self._cursor is not None
        return self._cursor.execute(statement)

    def begin_slowly(self) -> None:
        """In a thread: begin while a program that does not know the lock holds a transaction."""
        self.execute(f"PRAGMA busy_timeout = {_FOREIGN_MS}")
        try:
            self.execute("BEGIN IMMEDIATE")
        finally:
            self.execute("PRAGMA busy_timeout = 0")

    def in_transaction(self) -> bool:
        """False after SQLite rolled back by itself, as it does when the disk is full."""
        return self._connection is not None and self._connection.in_transaction

    def roll_back(self) -> None:
        """Undo the transaction; a connection that cannot is discarded, which undoes it too."""
        if self.in_transaction():
            try:
                self.execute("ROLLBACK")
            except sqlite3.Error:
                self.discard()

    def told(self, error: sqlite3.Error, what: str) -> StoreUnavailable:
        """The caller's error for a failure of the file."""
        return self._database.told(error, what)

    def discard(self) -> None:
        """Close it. After a failed commit nobody knows what it still believes to be on disk."""
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
