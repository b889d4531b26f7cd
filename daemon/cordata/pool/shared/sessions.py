"""Sessions and globals: one SQLite file that all children of the host's pools read and write.

    use(id) --> the command runs --> save(id, delta) --> the answer leaves

A session ends `ttl_s` after its last use. Every commit reaches the kernel before it returns, so it
survives the death of any process; a power cut may lose the last commits (WAL with
`synchronous=NORMAL`). All writes and checkpoints of all processes happen under one file lock, as
those of the store do.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from msgspec import Raw, Struct, msgpack
from msgspec.structs import replace

from cordata import events, log
from cordata.errors import (
    PoolUnavailable,
    SessionExists,
    SessionNotFound,
    SessionQuotaExceeded,
)
from cordata.pool.shared.protocol import (
    GlobalRequest,
    Reply,
    SessionRequest,
    SessionState,
)
from cordata.pool.shared.spec import SessionLimits

Values: TypeAlias = dict[str, Raw]

_log = log.logger("cordata.pool")

#: Layout of the file; a file with another one is put aside.
_FORMAT = 2
_SCHEMA = f"""
CREATE TABLE pool (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    sessions INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,            -- of all sessions
    globals_version INTEGER NOT NULL DEFAULT 0,
    seen_us INTEGER NOT NULL DEFAULT 0,          -- boot clock at the first use or the last sweep
    offset_us INTEGER NOT NULL DEFAULT 0         -- boot clock + offset_us is the time of the rows
);
INSERT INTO pool (id) VALUES (1);
CREATE TABLE session (
    id TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    ttl_us INTEGER NOT NULL,
    expires_us INTEGER NOT NULL,
    affinity TEXT NOT NULL,
    worker TEXT NOT NULL,
    data BLOB NOT NULL,      -- MessagePack, as are the counters
    counters BLOB NOT NULL
);
CREATE INDEX session_expires ON session (expires_us);
CREATE TABLE global (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER session_added AFTER INSERT ON session BEGIN
    UPDATE pool SET sessions = sessions + 1, bytes = bytes + new.bytes;
END;
CREATE TRIGGER session_changed AFTER UPDATE OF bytes ON session WHEN old.bytes <> new.bytes BEGIN
    UPDATE pool SET bytes = bytes + new.bytes - old.bytes;
END;
CREATE TRIGGER session_deleted AFTER DELETE ON session BEGIN
    UPDATE pool SET sessions = sessions - 1, bytes = bytes - old.bytes;
END;
PRAGMA user_version = {_FORMAT};
"""
_SETTINGS = (
    "PRAGMA synchronous = NORMAL",
    "PRAGMA wal_autocheckpoint = 1000",  # pages; in a commit, so under the file lock
    "PRAGMA journal_size_limit = 16777216",
    "PRAGMA mmap_size = 0",  # an I/O error is an error, not a SIGBUS
    "PRAGMA cache_size = -2048",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA secure_delete = ON",  # overwrite what is deleted; Debian's default
)
_ROW = "id, version, bytes, ttl_us, expires_us, affinity, worker"
_decode_data = msgpack.Decoder(Values).decode
_decode_counters = msgpack.Decoder(dict[str, int]).decode

#: Estimate of what an entry takes beside its name and value, so that tiny entries count as well.
_ENTRY_BYTES = 64
_COUNTER_BYTES = 8 + _ENTRY_BYTES
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
#: The stored expiry is later than asked for, by 1/_SLACK_PART of the lifetime and at most
#: _SLACK_US, so that most uses need no write, and most changes none of the index: a use takes 11 us
#: of processor time instead of 35, a change 25 instead of 31.
_SLACK_PART, _SLACK_US = 20, 60_000_000
#: How long a write waits for the write transaction of another program (sqlite3 in a shell).
_FOREIGN_S = 5.0


class Delta(Struct, omit_defaults=True, gc=False):
    """Changes of a session and of the globals."""

    set: Values = {}
    delete: list[str] = []
    count: dict[str, int] = {}
    globals_set: Values = {}
    globals_delete: list[str] = []


class SessionStore:
    """One process's access to the file. Its methods block, for milliseconds at most; threads may
    share it. All of them raise PoolUnavailable when the file cannot be read or written.
    """

    def __init__(
        self, path: Path, limits: SessionLimits, *, now_us: Callable[[], int] | None = None
    ) -> None:
        """The file is opened, or created, at the first use. `now_us`: a clock for tests."""
        self._path = path
        self.limits = limits
        self._clock = now_us
        self._offset_us = 0
        self._mutex = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._lock_fd = -1
        self._globals: Values = {}
        self._globals_version = 0

    def close(self) -> None:
        """Close the file. The store opens it again when it is used."""
        with self._mutex:
            if self._db is not None:
                # The last connection to close copies the log into the file: under the lock.
                with contextlib.suppress(PoolUnavailable), self._locked():
                    self._disconnect()
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
                self._lock_fd = -1

    # Calls

    def use(self, id: str, worker: str = "") -> SessionState:
        """The session of a call that is about to run at this worker; counts as a use.

        The worker of its first call becomes its preferred worker, until `update` sets another.
        Raises: SessionNotFound.
        """
        with self._reading() as db:
            session, expires_us = self._find(db, id)
            worker = session.worker or worker
            due_us = self._now_us() + _us(session.ttl_s)
            if expires_us >= due_us and worker == session.worker:
                return session
            # A full disk must not fail a call that only reads.
            with contextlib.suppress(PoolUnavailable), self._writing() as db:
                session, _ = self._find(db, id)
                session = replace(session, worker=session.worker or worker)
                db.execute(
                    "UPDATE session SET expires_us = max(expires_us, ?), worker = ? WHERE id = ?",
                    (due_us + _slack_us(session.ttl_s), session.worker, id),
                )
            return session

    def save(self, id: str, delta: Delta) -> None:
        """Store changes in one transaction; `id` "": only those of globals.

        Changes of a session that has ended are dropped. Raises: SessionQuotaExceeded (nothing
        changed).
        """
        with self._writing() as db:
            if delta.globals_set or delta.globals_delete:
                self._change_globals(db, delta.globals_set, delta.globals_delete)
            if id and (delta.set or delta.delete or delta.count):
                with contextlib.suppress(SessionNotFound):
                    self._change(db, id, delta.set, delta.delete, delta.count)

    def globals(self) -> Values:
        """The current values that all sessions share; do not change the dict."""
        with self._reading() as db:
            (version,) = db.execute("SELECT globals_version FROM pool").fetchone()
            if version != self._globals_version:
                rows = db.execute("SELECT name, value FROM global")
                self._globals = {name: Raw(value) for name, value in rows}
                self._globals_version = version
            return self._globals

    # Operations of clients and operators

    def create(self, request: SessionRequest) -> SessionState:
        """Create a session; id "" generates one. Raises: SessionExists, SessionQuotaExceeded."""
        id = request.session or uuid.uuid4().hex
        ttl_s = self.limits.session_ttl_s if request.ttl_s is None else request.ttl_s
        with self._writing() as db:
            now_us = self._now_us()
            row = db.execute("SELECT expires_us FROM session WHERE id = ?", (id,)).fetchone()
            if row is not None and row[0] > now_us:
                raise SessionExists(f"session {id!r} exists")
            db.execute("DELETE FROM session WHERE id = ?", (id,))
            if self._count(db) >= self.limits.max_sessions:
                db.execute("DELETE FROM session WHERE expires_us <= ?", (now_us,))
                if (count := self._count(db)) >= self.limits.max_sessions:
                    raise SessionQuotaExceeded(f"{count} sessions is the limit (max_sessions)")
            db.execute(
                "INSERT INTO session VALUES (?, 0, 0, ?, ?, ?, ?, x'80', x'80')",
                (
                    id,
                    _us(ttl_s),
                    now_us + _us(ttl_s) + _slack_us(ttl_s),
                    request.affinity or self.limits.affinity,
                    request.worker or "",
                ),
            )
            return self._change(db, id, request.set, (), {})

    def get(self, id: str, *, peek: bool = False) -> SessionState:
        """The session with its data; counts as a use, unless `peek`. Raises: SessionNotFound."""
        if not peek:
            return self.use(id)
        with self._reading() as db:
            return self._find(db, id)[0]

    def update(self, request: SessionRequest) -> SessionState:
        """Change values by name, and options. Raises: SessionNotFound, SessionQuotaExceeded
        (nothing changed).
        """
        id = request.session
        with self._writing() as db:
            session, _ = self._find(db, id)
            db.execute(
                "UPDATE session SET ttl_us = ?, affinity = ?, worker = ? WHERE id = ?",
                (
                    _us(session.ttl_s if request.ttl_s is None else request.ttl_s),
                    request.affinity or session.affinity,
                    session.worker if request.worker is None else request.worker,
                    id,
                ),
            )
            return self._change(db, id, request.set, request.delete, {})

    def delete(self, id: str) -> None:
        """End the session. Raises: SessionNotFound."""
        with self._writing() as db:
            self._find(db, id)
            db.execute("DELETE FROM session WHERE id = ?", (id,))

    def count(self, id: str, by: Mapping[str, int]) -> dict[str, int]:
        """Add to counters and return their new values. Raises: SessionNotFound,
        SessionQuotaExceeded.
        """
        with self._writing() as db:
            counters = self._change(db, id, {}, (), by).counters
        return {name: counters[name] for name in by}

    def page(self, after: str = "", limit: int = 100) -> list[SessionState]:
        """The next `limit` sessions after this id, without data and counters."""
        with self._reading() as db:
            now_us = self._now_us()
            rows = db.execute(
                f"SELECT {_ROW} FROM session WHERE id > ? AND expires_us > ? ORDER BY id LIMIT ?",
                (after, now_us, limit),
            )
            return [_session(row, now_us) for row in rows]

    def stats(self) -> dict[str, int]:
        """Number and bytes of sessions (expired ones included) and of globals."""
        with self._reading() as db:
            count, size = db.execute("SELECT sessions, bytes FROM pool").fetchone()
            (names,) = db.execute("SELECT count(*) FROM global").fetchone()
            globals_bytes = _globals_bytes(db)
        return {"count": count, "bytes": size, "globals": names, "globals_bytes": globals_bytes}

    def sweep(self, limit: int = 1000) -> int:
        """Delete at most `limit` expired sessions; returns how many it deleted."""
        ended = "SELECT id FROM session WHERE expires_us <= ? LIMIT ?"
        with self._writing() as db:
            db.execute("UPDATE pool SET seen_us = max(seen_us, ?)", (_boot_us(),))
            what = (self._now_us(), limit)
            return db.execute(f"DELETE FROM session WHERE id IN ({ended})", what).rowcount

    # Rows

    def _find(self, db: sqlite3.Connection, id: str) -> tuple[SessionState, int]:
        """The session with its data, and its stored expiry in us. Raises: SessionNotFound."""
        statement = f"SELECT {_ROW}, data, counters FROM session WHERE id = ?"
        row = db.execute(statement, (id,)).fetchone()
        now_us = self._now_us()
        if row is None or row[4] <= now_us:
            raise SessionNotFound(f"there is no session {id!r}")
        return _session(row, now_us), row[4]

    def _change(
        self,
        db: sqlite3.Connection,
        id: str,
        set: Mapping[str, Raw],
        delete: Iterable[str],
        by: Mapping[str, int],
    ) -> SessionState:
        """Change data and counters, which is a use. Raises: SessionNotFound,
        SessionQuotaExceeded.
        """
        before, expires_us = self._find(db, id)
        gone = {*delete} - set.keys()
        data = {name: value for name, value in {**before.data, **set}.items() if name not in gone}
        counters = dict(before.counters)
        for name, number in by.items():
            counters[name] = min(max(counters.get(name, 0) + number, _LOWEST), _HIGHEST)
        size = sum(len(name.encode()) + _COUNTER_BYTES for name in counters)
        size += sum(_size(name, value) for name, value in data.items())
        self._check_size(db, before, size)
        version = max(before.version + 1, _boot_us())
        db.execute(
            "UPDATE session SET version = ?, bytes = ?, data = ?, counters = ? WHERE id = ?",
            (version, size, msgpack.encode(data), msgpack.encode(counters), id),
        )
        due_us, slack_us = self._now_us() + _us(before.ttl_s), _slack_us(before.ttl_s)
        if not due_us <= expires_us <= due_us + slack_us:  # spares most writes of the index
            db.execute("UPDATE session SET expires_us = ? WHERE id = ?", (due_us + slack_us, id))
        return replace(
            before,
            version=version,
            bytes=size,
            expires_in_s=before.ttl_s,
            data=data,
            counters=counters,
        )

    def _check_size(self, db: sqlite3.Connection, before: SessionState, size: int) -> None:
        """Raises: SessionQuotaExceeded."""
        if size <= before.bytes:
            return
        limit = self.limits.max_session_bytes
        if size > limit:
            text = f"session {before.id!r} would have {size} bytes, {limit} are allowed"
            raise SessionQuotaExceeded(f"{text} (max_session_bytes)")
        limit = self.limits.max_sessions_bytes
        (total,) = db.execute("SELECT bytes FROM pool").fetchone()
        if total - before.bytes + size > limit:
            text = f"all sessions together would have more than {limit} bytes"
            raise SessionQuotaExceeded(f"{text} (max_sessions_bytes)")

    def _change_globals(
        self, db: sqlite3.Connection, set: Mapping[str, Raw], delete: Iterable[str]
    ) -> None:
        before = _globals_bytes(db)
        db.executemany("DELETE FROM global WHERE name = ?", [(name,) for name in delete])
        db.executemany(
            "INSERT OR REPLACE INTO global VALUES (?, ?)",
            [(name, bytes(value)) for name, value in set.items()],
        )
        after, limit = _globals_bytes(db), self.limits.max_globals_bytes
        if after > limit and after > before:
            text = f"the globals would have {after} bytes, {limit} are allowed"
            raise SessionQuotaExceeded(f"{text} (max_globals_bytes)")
        db.execute("UPDATE pool SET globals_version = globals_version + 1")

    @staticmethod
    def _count(db: sqlite3.Connection) -> int:
        return int(db.execute("SELECT sessions FROM pool").fetchone()[0])

    # The file

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._mutex:
            try:
                yield self._connect()
            except (sqlite3.Error, OSError) as error:
                raise self._unavailable(error) from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._mutex:
            try:
                with self._locked():
                    db = self._connect(locked=True)
                    db.execute("BEGIN IMMEDIATE")
                    try:
                        yield db
                        db.execute("COMMIT")
                    except BaseException:
                        if db.in_transaction:
                            db.execute("ROLLBACK")
                        raise
            except (sqlite3.Error, OSError) as error:
                raise self._unavailable(error) from error

    def _unavailable(self, error: sqlite3.Error | OSError) -> PoolUnavailable:
        """The error for the caller; the file is opened again at the next use."""
        if isinstance(error, OSError):
            self._disconnect()
            return PoolUnavailable(f"sessions are not available: {self._path}: {error.strerror}")
        with contextlib.suppress(OSError), self._locked():
            # Another process may have created a new file in the meantime.
            if _is_damaged(error) and _identity(self._path) == self._identity:
                self._put_aside(error)
            self._disconnect()
        return PoolUnavailable(f"sessions are not available: {self._path}: {error}")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the file lock in the block; the kernel releases it when the process dies."""
        while True:
            if self._lock_fd < 0:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = self._path.with_name(self._path.name + ".lock")
                self._lock_fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
            if os.fstat(self._lock_fd).st_nlink:
                break
            os.close(self._lock_fd)  # the lock of a file that was deleted excludes no process
            self._lock_fd = -1
        try:
            yield
        finally:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def _connect(self, *, locked: bool = False) -> sqlite3.Connection:
        """The connection to the file that is at the path now; opens it if it is another one."""
        if self._db is not None and _identity(self._path) == self._identity:
            return self._db
        self._disconnect()
        with contextlib.nullcontext() if locked else self._locked():
            try:
                self._open()
            except sqlite3.Error as error:
                if not _is_damaged(error):
                    raise
                self._put_aside(error)
                self._open()
        assert self._db is not None
        return self._db

    def _open(self) -> None:
        """Open the file; create it and its tables if they are missing. The caller has the lock."""
        if not self._path.exists():
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._db = db = sqlite3.connect(
            f"file:{quote(str(self._path.absolute()))}?mode=rw",
            uri=True,
            timeout=_FOREIGN_S,
            isolation_level=None,
            check_same_thread=False,
        )
        (version,) = db.execute("PRAGMA user_version").fetchone()
        empty = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
        if version != _FORMAT and not empty:
            raise _OtherFormat(f"its version is {version}, this program reads {_FORMAT}")
        if empty:
            db.execute("PRAGMA journal_mode = WAL")
        for setting in _SETTINGS:
            db.execute(setting)
        if empty:
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        self._identity = _identity(self._path)
        if self._clock is None:
            self._set_clock(db)

    def _set_clock(self, db: sqlite3.Connection) -> None:
        """The time of rows is the wall time at the first use after a boot, plus the time since
        then: setting the clock ends no session. A boot clock that is behind `seen_us` shows a boot
        (the kernel's boot_id is hidden from services with ProcSubset=pid). Later openings write
        nothing, so that they succeed on a full disk.
        """
        seen_us, offset_us = db.execute("SELECT seen_us, offset_us FROM pool").fetchone()
        now_us = _boot_us()
        if not 0 < seen_us <= now_us:
            offset_us = time.time_ns() // 1000 - now_us
            db.execute("UPDATE pool SET seen_us = ?, offset_us = ?", (now_us, offset_us))
        self._offset_us = offset_us

    def _now_us(self) -> int:
        return _boot_us() + self._offset_us if self._clock is None else self._clock()

    def _disconnect(self) -> None:
        self._globals, self._globals_version = {}, 0
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    def _put_aside(self, error: sqlite3.Error) -> None:
        """Rename the file and its log, so that a new one is made at the next use."""
        self._disconnect()
        aside = self._path.with_name(f"{self._path.name}.damaged-{time.time_ns() // 10**9}")
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(OSError):
                os.rename(f"{self._path}{suffix}", f"{aside}{suffix}")
        _log.error(
            "the session file cannot be used (%s): it was put aside as %s, a new one is made",
            error,
            aside,
            extra=log.fields(events.POOL_SESSIONS_DAMAGED),
        )


class _OtherFormat(sqlite3.DatabaseError):
    """The file was written by another version of this program."""


def _is_damaged(error: sqlite3.Error) -> bool:
    codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    code = getattr(error, "sqlite_errorcode", 0)  # only an error of SQLite itself has one
    return isinstance(error, _OtherFormat) or code & 0xFF in codes


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode of the file at the path; (0, 0): there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino


def _session(row: tuple[Any, ...], now_us: int) -> SessionState:
    """The session of a row, with data and counters if it has them."""
    id, version, size, ttl_us, expires_us, affinity, worker, *values = row
    data, counters = values or (b"\x80", b"\x80")
    return SessionState(
        id=id,
        version=version,
        ttl_s=ttl_us / 1e6,
        expires_in_s=min(expires_us - now_us, ttl_us) / 1e6,
        bytes=size,
        affinity=affinity,
        worker=worker,
        data=_decode_data(data),
        counters=_decode_counters(counters),
    )


def _globals_bytes(db: sqlite3.Connection) -> int:
    sizes = f"length(CAST(name AS BLOB)) + length(value) + {_ENTRY_BYTES}"
    return int(db.execute(f"SELECT coalesce(sum({sizes}), 0) FROM global").fetchone()[0])


def _size(name: str, value: Raw) -> int:
    return len(name.encode()) + len(value) + _ENTRY_BYTES


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _slack_us(ttl_s: float) -> int:
    return min(_us(ttl_s) // _SLACK_PART, _SLACK_US)


def _boot_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def answer(store: SessionStore, request: SessionRequest | GlobalRequest) -> Reply:
    """Do the operation in the store. Raises: PoolError."""
    if isinstance(request, GlobalRequest):
        return _answer_globals(store, request)
    return _answer_session(store, request)


def _answer_globals(store: SessionStore, request: GlobalRequest) -> Reply:
    if request.operation == "change":
        store.save("", Delta(globals_set=request.set, globals_delete=request.delete))
        return Reply(request.number)
    if request.operation == "stats":
        return Reply(request.number, counts=store.stats())
    values = store.globals()
    if request.keys:
        values = {key: values[key] for key in request.keys if key in values}
    return Reply(request.number, values=values)


def _answer_session(store: SessionStore, request: SessionRequest) -> Reply:
    number, id = request.number, request.session
    match request.operation:
        case "create":
            return Reply(number, sessions=[store.create(request)])
        case "get":
            return Reply(number, sessions=[store.get(id, peek=request.peek)])
        case "update":
            return Reply(number, sessions=[store.update(request)])
        case "delete":
            store.delete(id)
            return Reply(number)
        case "count":
            return Reply(number, counts=store.count(id, request.count))
        case "page":
            return Reply(number, sessions=store.page(request.after, request.limit))
