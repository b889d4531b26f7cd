"""A copy of a SQLite store while it is written to, and its way back into a state directory."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from cordata.backup.archive import TERMS, Draw, private_file, sync
from cordata.backup.owner import acting_as_owner
from cordata.errors import CordataError
from cordata.store.migrate import MigrationId
from cordata.store.sqlite.connection import Database
from cordata.store.sqlite.fault import translate
from cordata.store.sqlite.lock import FileLock

#: 4 MiB with pages of 4096 bytes: how often the progress is drawn.
_STEP_PAGES = 1024
_PIECE_BYTES = 1 << 20
#: Opening may meet the recovery of a log, or the checkpoint of a last close.
_BUSY_MS = 5000
#: SHARED_FIRST and SHARED_SIZE of SQLite's os_unix.c: in WAL mode each connection holds a lock on
#: a byte of this range for as long as it is open.
_SHARED_FIRST, _SHARED_BYTES = 0x40000002, 510
#: struct flock: type, whence, first byte, length, process.
_FLOCK = struct.Struct("@hhqqi")
#: What the names of a database's files end with. SQLite applies a log or a journal to any database
#: of that name.
_SUFFIXES = ("", "-journal", "-wal", "-shm")


def copy(path: Path, target: Path, draw: Draw) -> None:
    """Copy the database as it is at this moment; writers are not blocked.

    One read transaction lasts for all steps: without it SQLite would begin anew after each write of
    another process. Checkpoints cannot restart the log meanwhile, so it grows. Raises: CordataError
    when there is no store, or its file or the target fails.
    """
    source, lock = _open_source(path)
    try:
        with closing(sqlite3.connect(target)) as copied:
            # A crash leaves nothing that counts as a backup, and the end syncs the file.
            copied.execute("PRAGMA synchronous = OFF")
            source.backup(
                copied,
                pages=_STEP_PAGES,
                progress=lambda _, left, total: draw(1 - left / max(1, total), "copying"),
            )
        with closing(sqlite3.connect(target, isolation_level=None)) as copied:
            # One file, complete without a log beside it.
            copied.execute("PRAGMA synchronous = OFF")
            copied.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise translate(error, "copying the database", folder=target.parent) from error
    finally:
        # The last connection of all folds the log back as it closes: a checkpoint, so locked.
        lock.acquire()
        source.close()
        lock.close()


def _open_source(path: Path) -> tuple[sqlite3.Connection, FileLock]:
    """A connection inside a read transaction, and the write lock of its database."""
    database = Database(path)
    with acting_as_owner(path.parent):
        source = database.existing()
        try:
            source.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            source.execute("PRAGMA query_only = ON")
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            return source, FileLock(database.lock_path)
        except sqlite3.Error as error:
            source.close()
            raise database.unavailable(error, "reading") from error
        except BaseException:
            source.close()
            raise


def check(path: Path) -> list[MigrationId]:
    """Read all of a copy. Returns its migrations; raises: CordataError if it is damaged."""
    # immutable: no other process has it open, and no file may appear beside it.
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check(5)")]
            if found != ["ok"]:
                raise CordataError(f"{path}: the database is damaged: {'; '.join(found)}")
            tables = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migration'"
            if connection.execute(tables).fetchone() is None:
                return []
            rows = connection.execute("SELECT component, number, name, digest FROM migration")
            return [MigrationId(*row) for row in rows]
    except sqlite3.Error as error:
        raise CordataError(f"{path}: the database is damaged: {error}") from error


def check_target(path: Path, state_dir: Path, *, replace: bool) -> None:
    """Raises: CordataError if a process uses the store, or if it exists and is to be kept."""
    database = Database(path)
    with acting_as_owner(path.parent):
        for lock_path in (database.lock_path, state_dir / "primary.lock"):
            if lock_path.exists():
                _lock(lock_path).close()
        _require_closed(path)
        if not replace and any(path.with_name(path.name + end).exists() for end in _SUFFIXES):
            raise CordataError(
                f"there is a store already: {path}",
                hint="--replace moves it aside, and deletes nothing",
            )


class Openers:
    """Tells whether other processes have the database open, also while this one has.

    It is made before this process opens it, and closed afterwards: at a close the kernel drops all
    locks that the process has on the file, SQLite's as well.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def require_none(self) -> None:
        """Raises: CordataError if another process has the database open."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_BYTES, 0)
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_GETLK, asked))
        if kind != fcntl.F_UNLCK:
            raise CordataError(
                f"the service is running: a process has {self._path} open",
                hint=_find_processes(self._path),
            )

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


@contextmanager
def stopped(path: Path, state_dir: Path) -> Iterator[FileLock]:
    """Inside the block no process can write, and none become the primary. Yields the writers' lock.

    Raises: CordataError if a process uses the store.
    """
    with ExitStack() as stack:
        locks = []
        for lock_path in (Database(path).lock_path, state_dir / "primary.lock"):
            locks.append(_lock(lock_path))
            stack.callback(locks[-1].close)
        _require_closed(path)
        yield locks[0]


def _lock(path: Path) -> FileLock:
    """The lock of the writers or of the primary, held. Raises: CordataError if it is taken."""
    lock = FileLock(path)
    if not lock.try_acquire():
        lock.close()
        raise CordataError(
            f"the service is running: a process holds {path}", hint=_find_processes(path)
        )
    return lock


def _find_processes(path: Path) -> str:
    return f"stop all its processes: `fuser -v {path}` names them"


def _require_closed(path: Path) -> None:
    """Raises: CordataError if a process has the database open."""
    try:
        openers = Openers(path)
    except FileNotFoundError:
        return
    try:
        openers.require_none()
    finally:
        openers.close()


@contextmanager
def restoring(
    source: Path,
    sha256: str,
    path: Path,
    state_dir: Path,
    aside: str,
    *,
    now_s: int,
    draw: Draw,
) -> Iterator[str | None]:
    """Build the store beside its place; at the end of the block it is moved there.

    An old one gets `aside` behind its name, its log, too. Yields where that will be; None: there is
    none. A crash leaves the old store, the new one, or none, which no service starts without.
    """
    building = path.with_name(f".{path.name}.restoring")
    with open(source, "rb") as backup, acting_as_owner(path.parent), ExitStack() as stack:
        stack.enter_context(stopped(path, state_dir))
        moves = [
            (one, path.with_name(path.name + aside + end))
            for end in _SUFFIXES
            if (one := path.with_name(path.name + end)).exists()
        ]
        stack.callback(_remove, building)
        _remove(building)
        _copy(backup, building, sha256, draw)
        _raise_term(building, now_s)
        yield str(path.with_name(path.name + aside)) if moves else None
        with ExitStack() as moving_back:
            for one, there in moves:
                os.rename(one, there)
                moving_back.callback(os.rename, there, one)
            os.rename(building, path)
            moving_back.callback(os.rename, path, building)
            sync(path.parent)
            moving_back.pop_all()


def _remove(building: Path) -> None:
    """Remove a database, also what a killed restore of another backup has left of it."""
    for end in _SUFFIXES:
        building.with_name(building.name + end).unlink(missing_ok=True)


def _copy(backup: BinaryIO, building: Path, sha256: str, draw: Draw) -> None:
    size, done, digest = os.fstat(backup.fileno()).st_size, 0, hashlib.sha256()
    with open(private_file(building), "wb") as file:
        while piece := backup.read(_PIECE_BYTES):
            file.write(piece)
            digest.update(piece)
            done += len(piece)
            draw(done / max(1, size), "restoring")
    if digest.hexdigest() != sha256:
        raise CordataError(f"{backup.name} changed while it was read")


def _raise_term(building: Path, now_s: int) -> None:
    """See `restore`: a former primary's term must not be the newest again."""
    try:
        with closing(sqlite3.connect(building, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")  # syncs the copied pages as well
            connection.execute("UPDATE lease SET term = max(term + ?, ?)", (TERMS, now_s))
            connection.execute("PRAGMA journal_mode = WAL")  # as the service expects it
    except sqlite3.Error as error:
        raise translate(error, "restoring the database", folder=building.parent) from error
    sync(building)
