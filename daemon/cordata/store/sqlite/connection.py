"""Opens the database file with our settings, and checks that it has not been replaced."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from cordata import clock
from cordata.errors import ConfigError, CordataError, StoreUnavailable
from cordata.store.health import Busy, Health
from cordata.store.queries import Queries
from cordata.store.sqlite.fault import is_busy, open_hint, translate
from cordata.store.sqlite.lock import LockQueue
from cordata.store.sqlite.thread import CallThreads
from cordata.store.sqlite.tx import SqliteTx

T = TypeVar("T")

#: Measured with six small inserts per unit: 2 MiB of cache is as fast as 64, and pages of 4096
#: bytes as fast as 16384 (smaller ones are 20 % slower). The kernel's cache holds the rest.
_WRITER_CACHE_KIB = 4096
_READER_CACHE_KIB = 2048
_STATEMENTS = 512
#: How long to wait for the write transaction of another program (sqlite3 in a shell).
_FOREIGN_MS = 5000

_SETTINGS = (
    "PRAGMA synchronous = FULL",  # a commit is on disk when it returns
    "PRAGMA wal_autocheckpoint = 0",  # checkpoints only under the write lock
    "PRAGMA mmap_size = 0",  # an I/O error is an error, not a SIGBUS
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",  # savepoint journals of a batch stay off the disk
    "PRAGMA trusted_schema = OFF",
    "PRAGMA secure_delete = ON",  # overwrite deleted rows in the file; Debian's default
)


def database_path(url: str, state_dir: Path) -> Path:
    """The file of a `[store] url`; four slashes, as other libraries want them, are the same path.

    Raises: ConfigError, which does not quote the url.
    """
    if "\0" in url:
        raise ConfigError("[store] url has a NUL character")
    if url == "sqlite:":
        return state_dir / "cordata.db"
    if url.startswith("sqlite:///") and (name := url.removeprefix("sqlite:").lstrip("/")):
        return Path("/" + name)
    raise ConfigError(
        "[store] url does not name a file", hint='use "sqlite:" or "sqlite:///path/to/file.db"'
    )


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
        """A connection if the file exists and is ready; None when `create` has to come first.

        Keep it until another one is open: closing the last connection makes a checkpoint, which
        needs the write lock. Raises: StoreUnavailable when the file is not a database.
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
            raise self.unavailable(error, "opening") from error
        if not ready:
            connection.close()
            return None
        self._remember()
        return connection

    def require_file(self) -> None:
        """Raises: CordataError when there is no file to copy."""
        if not self.path.exists():
            raise CordataError(
                f"there is no store to copy: no file {self.path}",
                hint="name its configuration (--config) or its directory (--state-dir)",
            )

    def existing(self) -> sqlite3.Connection:
        """As `anchor`, of a file to copy, which is never created. Raises: CordataError."""
        self.require_file()
        if (connection := self.anchor()) is None:
            raise StoreUnavailable(
                f"{self.path} is locked, or is not in WAL mode", hint="try again"
            )
        return connection

    def create(self, *, lost: bool) -> None:
        """Create the file, or make it ready; under the write lock.

        `lost`: it existed before. Raises: StoreUnavailable with the next step.
        """
        there = self.path.exists()
        if lost and not (there and self.path.stat().st_size):
            raise StoreUnavailable(
                f"{self.path} is {'empty' if there else 'gone'}, although it was in use before",
                hint=f"restore it from a backup, or delete {self.lock_path} for an empty database",
            )
        if not there:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                os.close(os.open(self.path, flags, 0o600))
            except OSError as error:
                raise StoreUnavailable(
                    f"{self.path} cannot be created: {error.strerror}",
                    hint=open_hint(error),
                ) from error
        connection = self._connect()
        try:
            connection.execute(f"PRAGMA busy_timeout = {_FOREIGN_MS}")
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreUnavailable(f"{self.path}: WAL mode was refused (it is {mode})")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            raise self.unavailable(error, "opening") from error
        finally:
            connection.close()
        self._remember()

    def open(self, *, write: bool) -> sqlite3.Connection:
        """A connection with our settings, which never waits for locks. Raises: StoreUnavailable."""
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
            raise self.unavailable(error, "opening") from error
        return connection

    def check(self) -> None:
        """Check that the path still names the same file; a write to the old one would be lost.

        Another file in its place is refused until the next start: SQLite would apply the old file's
        log to it. Raises: StoreUnavailable.
        """
        if self._stat() != self._identity:
            name = self.path.name
            raise StoreUnavailable(
                f"{self.path} was replaced while in use",
                hint=f"stop all processes, delete {name}-wal and {name}-shm, put the right file"
                " in its place, start them again",
            )

    def unavailable(self, error: sqlite3.Error, what: str) -> StoreUnavailable:
        """The error for a failure of the file itself."""
        translated = translate(error, f"{self.path}: {what}", folder=self.path.parent)
        if isinstance(translated, StoreUnavailable):
            return translated
        return StoreUnavailable(str(translated), hint=translated.hint)

    def _remember(self) -> None:
        self._identity = self._stat()

    def _stat(self) -> tuple[int, int]:
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise StoreUnavailable(
                f"{self.path} cannot be read: {error.strerror}",
                hint="put the file back; the store then continues by itself",
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
            raise self.unavailable(error, "opening") from error
        connection.row_factory = sqlite3.Row
        return connection


class WriteConnection:
    """The only connection of this process that writes; each use takes the write lock.

        begin --> statements --> commit, or roll_back
        call(a function that blocks)

    `begin` and `call` take the lock; `commit`, `roll_back` and the end of the call give it back.
    """

    def __init__(
        self,
        database: Database,
        queries: Queries,
        lock: LockQueue,
        thread: CallThreads,
        health: Health,
    ) -> None:
        self._database = database
        self.queries = queries
        self._lock = lock
        self._thread = thread
        self.health = health
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None

    async def begin(self) -> None:
        """Take the lock and begin a transaction. Safe to cancel.

        Raises: Busy when another process or program has the file for too long;
        StoreUnavailable.
        """
        try:
            await self._lock.acquire()
        except StoreUnavailable as error:
            self._note(error)
            raise
        try:
            self.open()
            try:
                self.execute("BEGIN IMMEDIATE")
            except Busy:
                await self._thread.run(self._begin_slowly)
        except BaseException as error:
            self.roll_back(error)
            raise

    async def commit(self) -> None:
        """Commit and give the lock back. Cancelling has no effect. After an error: `roll_back`.

        In the thread, so that a disk that stalls does not stall the loop. Raises: StoreUnavailable;
        Conflict.
        """

        def commit() -> None:
            self.execute("COMMIT")
            self._lock.release_file()  # here and not on the loop: other processes wait for it

        begun = clock.monotonic()
        committing = self._thread.call(commit)
        try:
            try:
                await asyncio.shield(committing)
            except asyncio.CancelledError:  # a unit may cancel the task it runs in
                await asyncio.wait([committing])
                committing.result()
        except StoreUnavailable:
            self.close()  # its cache may differ from the file
            raise
        self.health.succeeded(clock.monotonic() - begun)
        self._lock.release()

    def roll_back(self, error: BaseException | None = None) -> None:
        """Undo the transaction, if it is still open, and give the lock back.

        `error` is the reason. If the file is at fault, the store becomes unhealthy, and the next
        use opens a new connection, which can write after a chown, for example.
        """
        if self.in_transaction():
            try:
                self.execute("ROLLBACK")
            except StoreUnavailable:
                self.close()
        self._note(error)
        self._lock.release()

    async def call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Call a blocking function with the connection, under the lock; must not be cancelled.

        Raises: StoreUnavailable; what the function raises.
        """
        await self._lock.acquire()
        try:
            connection = self.open()
            return await self._thread.call(lambda: function(connection))
        except sqlite3.Error as error:
            self.close()
            raise self._database.unavailable(error, "writing") from error
        finally:
            self.roll_back()

    def open(self) -> sqlite3.Connection:
        """The connection; opens it if necessary. Raises: StoreUnavailable."""
        self._database.check()
        if self._connection is None:
            self._connection = self._database.open(write=True)
            self._cursor = self._connection.cursor()
        return self._connection

    def tx(self) -> SqliteTx:
        """A Tx on it, for one unit."""
        assert self._cursor is not None
        return SqliteTx(self._cursor, self.queries, clock.now_us())

    def execute(self, statement: str) -> None:
        """Run a statement of the store's own. Raises: StoreUnavailable; Conflict, at a COMMIT."""
        assert self._cursor is not None
        try:
            self._cursor.execute(statement)
        except sqlite3.IntegrityError as error:  # of a reference that is checked at the COMMIT
            raise translate(error, statement) from error
        except sqlite3.Error as error:
            raise self._database.unavailable(error, statement) from error

    def in_transaction(self) -> bool:
        """Whether one is open; SQLite itself rolls back when the disk is full."""
        return self._connection is not None and self._connection.in_transaction

    def _note(self, error: BaseException | None) -> None:
        if self.health.failed(error):
            self.close()

    def _begin_slowly(self) -> None:
        """In the thread: begin while another program, which does not use the lock, writes."""
        self.execute(f"PRAGMA busy_timeout = {_FOREIGN_MS}")
        try:
            self.execute("BEGIN IMMEDIATE")
        finally:
            self.execute("PRAGMA busy_timeout = 0")

    def close(self) -> None:
        """Close it, under the lock: closing the last connection makes a checkpoint."""
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
