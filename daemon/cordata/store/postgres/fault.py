"""Translates PostgreSQL's errors into cordata's.

An error of the server has a primary message, which is about the schema, and details, which quote
rows. Only the primary message is passed on, and not in class 22, where it quotes a value.
"""

from __future__ import annotations

from typing import NamedTuple

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

_TEXT_CHARS = 300
_RETRY_SOON_S = 1.0
#: SQLSTATE classes whose message is about the schema or the server, never about a value.
_SHOWN = {"08", "0A", "23", "25", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58"}
_DISK_FULL = "53100"
_READ_ONLY = "25006"
CANCELED = "57014"
#: SQLSTATE classes of errors that every other statement would have, too.
_SERVER = {"08", "53", "58", "28", "XX"}
_SERVER_CODES = {_READ_ONLY, "3D000", "25P04", "42P05"}
#: Another attempt may succeed: serialisation failure, deadlock, a lock that is not free; a
#: prepared statement that a proxy lost.
_AGAIN = {"40001", "40P01", "55P03", "26000"}
_STALE_PLAN = "cached plan must not change result type"
_PROXY_HINT = (
    "a PgBouncer older than 1.21, or with max_prepared_statements = 0, needs"
    " `[store] prepared_statements = false`"
)
_HINTS = {
    _DISK_FULL: "free some space on the database server; nothing was written",
    _READ_ONLY: "this is a standby; list all servers in [store] url, so that the primary is found",
    "53300": "raise max_connections, lower [store] pool_size, or put PgBouncer in front",
    "42P05": _PROXY_HINT,
    "26000": _PROXY_HINT,
    "28P01": "check that the credential store-password (or ~/.pgpass of the service's user) exists"
    " and is right for the user in [store] url; restart the unit after a change",
    "42P01": MISSING_HINT,
    "42703": MISSING_HINT,
    "28000": "the role that the url names must exist and have LOGIN on the database server, and"
    " its pg_hba.conf must accept it from this host",
    "3D000": "create the database on the server, owned by the role that the url names",
}


class Fault(NamedTuple):
    """An error of the server: its SQLSTATE, its primary message, and the names in it."""

    sqlstate: str
    message: str = ""
    constraint: str = ""
    table: str = ""
    column: str = ""

    @property
    def again(self) -> bool:
        """Whether the same transaction may succeed if it is run again."""
        return self.sqlstate in _AGAIN or self.stale_plan

    @property
    def collided(self) -> bool:
        """Whether it collided with another transaction: a deadlock, a row changed meanwhile."""
        return self.sqlstate in ("40001", "40P01")

    @property
    def lost_race(self) -> bool:
        """Whether the key of a new row exists already: another unit may have just added it."""
        return self.sqlstate == "23505"

    @property
    def session_ended(self) -> bool:
        """Whether the server ended the session: it shuts down, or an operator ended it."""
        return self.sqlstate[:3] == "57P"

    @property
    def stale_plan(self) -> bool:
        """Whether the connection has lost its prepared statements, or their plans are out of date
        after a migration.
        """
        return self.sqlstate == "26000" or (
            self.sqlstate == "0A000" and self.message == _STALE_PLAN
        )

    @property
    def read_only(self) -> bool:
        """Whether this server refuses writes; another one may accept them."""
        return self.sqlstate == _READ_ONLY


class ServerError(Exception):
    """A statement failed on the server: number `position`, from 0, of those sent together."""

    def __init__(self, fault: Fault, position: int = 0) -> None:
        super().__init__(fault.sqlstate)
        self.fault = fault
        self.position = position


class ConnectionLost(Exception):
    """The connection is lost; whether a COMMIT under way happened is not known."""


class ServerFull(StoreUnavailable):
    """The server has no free connection slot."""


def translate(fault: Fault, what: str) -> CordataError:
    """The error for the caller; `what` failed (a query's name, or a step)."""
    code = fault.sqlstate
    text = fault.message[:_TEXT_CHARS] if code[:2] in _SHOWN else "a value was refused"
    message = f"{what}: {text} ({code})"
    if code == _DISK_FULL:
        return StoreFull(f"{what}: the disk of the database is full", hint=_HINTS[code])
    if code == CANCELED:
        return Busy(f"{what}: took too long, or waited too long for a lock")
    if code in _AGAIN or code[:3] == "57P":  # a session was ended: the next one shows why
        return Busy(message, retry_after_s=_RETRY_SOON_S, hint=_HINTS.get(code))
    if code == "53300":
        return ServerFull(message, hint=_HINTS[code])
    if code[:2] in _SERVER or code in _SERVER_CODES:
        if code[:2] == "XX":
            message = f"{what}: the server has a problem ({code}); see its log"
        return StoreUnavailable(message, hint=_HINTS.get(code))
    if code[:2] == "23":
        column = f"{fault.table}.{fault.column}" if fault.column else fault.table
        return Conflict(message, constraint=fault.constraint or column)
    if code[:2] in _SHOWN:
        return StatementError(message, hint=_HINTS.get(code))
    return PermanentError(message)


def server_unreachable(reason: str) -> StoreUnavailable:
    """The error for a server that cannot be reached or does not answer."""
    return StoreUnavailable(_about_server(reason))


def connection_lost(reason: str) -> Busy:
    """The error for a lost connection; whether the server is gone shows with the next one."""
    return Busy(_about_server(reason), retry_after_s=_RETRY_SOON_S)


def closed_in_commit() -> Unclear:
    """The error for units whose COMMIT was under way when the store was closed."""
    return Unclear(
        "the store was closed during a commit, and whether it happened is not known",
        hint="check before you do it again",
    )


def _about_server(reason: str) -> str:
    return f"the database server: {' '.join(reason.split())[:_TEXT_CHARS]}"
