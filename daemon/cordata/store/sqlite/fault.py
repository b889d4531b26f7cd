"""Translates SQLite's errors into cordata's: disk full, file broken, constraint violated."""

from __future__ import annotations

import errno
import os
import pwd
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cordata.errors import (
    Conflict,
    CordataError,
    PermanentError,
    StatementError,
    StoreFull,
    StoreUnavailable,
    Unclear,
)
from cordata.store.health import Busy
from cordata.store.tx import MISSING_HINT

_HINT_DIRECTORY = (
    "the state directory must exist and belong to the service's user; if it is the wrong one, name"
    " the configuration (--config FILE, or CORDATA_CONFIG) or the directory (--state-dir DIR)"
)
_HINT_READ_ONLY = (
    "its file system is mounted read-only: mount it read-write; `findmnt -T DIR` shows the mount,"
    " `journalctl -k` or `dmesg` whether a fault of the disk was the reason"
)


def open_hint(error: OSError) -> str:
    """The next step when a file of the store cannot be created or opened."""
    return _HINT_READ_ONLY if error.errno == errno.EROFS else _HINT_DIRECTORY


_CONSTRAINT = re.compile(r"constraint failed: (?P<name>.+)\Z")
#: Primary result codes that say the file or its disk is at fault, not the statement.
_STORAGE = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOLFS,
}
#: A COMMIT may fail with these after it wrote everything.
_IN_THE_LOG = {
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_SHMMAP,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}
#: Less than this free: the disk counts as full.
_ROOM_BYTES = 65_536
#: SQLite quotes a whole column in some of its errors.
_TEXT_CHARS = 300
_HINT_FULL = "free some space; nothing was written"
_HINT_CORRUPT = "stop the service, then restore a backup or try `sqlite3 FILE .recover`"
_HINTS = {
    sqlite3.SQLITE_CORRUPT: _HINT_CORRUPT,
    sqlite3.SQLITE_NOTADB: _HINT_CORRUPT,
    sqlite3.SQLITE_READONLY: "the state directory and its files must belong to the service's user;"
    " see `ls -la DIR`, and `findmnt -T DIR` whether the file system is read-only",
    sqlite3.SQLITE_CANTOPEN: "see that the file exists and belongs to the service's user",
    sqlite3.SQLITE_IOERR: "see the kernel's messages about the disk: `journalctl -k` or `dmesg`",
}


def result_code(error: BaseException | None) -> int:
    """SQLite's extended result code; 0 when the error came from elsewhere."""
    code: int = getattr(error, "sqlite_errorcode", 0) or 0
    return code


def is_storage(error: BaseException) -> bool:
    """Whether the disk or the file is at fault, so that every other unit would fail too."""
    primary = result_code(error) & 0xFF
    return primary == sqlite3.SQLITE_FULL or primary in _STORAGE


def is_busy(error: BaseException) -> bool:
    """Whether another connection holds a lock that this one needs."""
    return result_code(error) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def after_commit(error: CordataError) -> CordataError:
    """The error for the callers of units whose COMMIT may have failed with `error`.

    After some errors the whole transaction is in the log: a process that finds it there after a
    crash takes it as committed, unless a later commit has overwritten it. Then it is Unclear.
    """
    cause = error.__cause__
    if not isinstance(error, StoreUnavailable) or result_code(cause) not in _IN_THE_LOG:
        return error
    return Unclear(
        f"{error}; whether the unit was committed is not known",
        retry_after_s=error.retry_after_s,
        hint="check before you do it again",
    )


def translate(error: sqlite3.Error, what: str, *, folder: Path | None = None) -> CordataError:
    """The error a caller gets for a driver error in `what` (a query's name, or a step).

    `folder`: where the file is; with no room there, an I/O error means a full disk (SQLite tells
    so only for some of its files).
    """
    primary = result_code(error) & 0xFF
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    text = str(error)[:_TEXT_CHARS]
    if primary == sqlite3.SQLITE_FULL or (primary in _STORAGE and _no_room(folder)):
        return StoreFull(f"{what}: the disk is full", hint=_HINT_FULL)
    if primary in _STORAGE:
        hint = _not_writable(folder) if primary == sqlite3.SQLITE_READONLY else ""
        return StoreUnavailable(f"{what}: {text} ({name})", hint=hint or _HINTS.get(primary))
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy(
            f"{what}: {text} ({name})",
            retry_after_s=1.0,
            hint="another program holds a transaction on the database file open",
        )
    if primary == sqlite3.SQLITE_CONSTRAINT:
        match = _CONSTRAINT.search(str(error))
        return Conflict(f"{what}: {text}", constraint=match["name"] if match else "")
    return PermanentError(f"{what}: {text} ({name})")


def home(cursor: sqlite3.Cursor) -> Path | None:
    """The directory of a cursor's database; None when it is not known."""
    try:
        row = cursor.connection.execute("PRAGMA database_list").fetchone()
    except sqlite3.Error:
        return None
    return Path(row[2]).parent if row and row[2] else None


def _not_writable(folder: Path | None) -> str:
    """A hint for the first file that this process must not write; "" if there is none."""
    if folder is None:
        return ""
    for path in (folder, *sorted(folder.glob("*.db*"))):
        try:
            status, flags = path.stat(), os.statvfs(path).f_flag
        except OSError:
            continue
        if not os.access(path, os.W_OK):
            if flags & os.ST_RDONLY:
                return _HINT_READ_ONLY
            if status.st_uid == os.geteuid():
                return f"{path} has the mode {status.st_mode & 0o777:04o}: `chmod u+w {path}`"
            return (
                f"{path} belongs to {_user(status.st_uid)}, mode {status.st_mode & 0o777:04o}, and"
                f" this process is {_user(os.geteuid())}: `chown` {folder} and all files in it"
            )
    return ""


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _no_room(folder: Path | None) -> bool:
    if folder is None:
        return False
    try:
        status = os.statvfs(folder)
    except OSError:
        return False
    return status.f_bavail * status.f_frsize < _ROOM_BYTES


def is_of_statement(
    error: sqlite3.Error, sql: str, args: Sequence[Any], connection: sqlite3.Connection
) -> bool:
    """Whether a statement is wrong with all values, so that the error quotes none of them.

    Then EXPLAIN fails with the same error; it only prepares the statement.
    """
    if str(error).startswith("Error binding parameter"):  # which type cannot be stored
        return True
    try:
        connection.execute(f"EXPLAIN {sql}", args).close()
    except sqlite3.Error as again:
        return str(again) == str(error)
    return False


def as_statement_error(error: PermanentError) -> StatementError:
    """The same error as a StatementError, whose text may be shown."""
    missing = "no such table" in str(error) or "no such column" in str(error)
    return StatementError(str(error), hint=MISSING_HINT if missing else None)
