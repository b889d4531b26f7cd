"""One transaction on one connection: its BEGIN, its settings, and the outcome of its COMMIT.

    BEGIN + id + statements --sync--> ... --commit--> committed
                                             | connection lost meanwhile
                                             +--> InDoubt --pg_xact_status--> committed or not

BEGIN is sent with the first statements, and so is, unless the transaction only reads, the query for
its id: when the connection is lost during COMMIT, only with that id another connection can find out
whether it happened. Once the id is known, COMMIT is sent with the last statements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from cordata.clock import monotonic
from cordata.config.sections import StoreConfig
from cordata.errors import StoreUnavailable, Unclear
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import ConnectionLost, ServerError
from cordata.store.postgres.pool import Pool
from cordata.store.postgres.result import Result

#: snapshot: all statements see one state; changing a row that has changed since fails (40001).
#: newest: each statement sees the newest state. batch: as newest, with short timeouts, since all
#: units of the batch wait for the lock or statement of one. read, batch_read: READ ONLY on one
#: snapshot.
Kind = Literal["snapshot", "newest", "batch", "read", "batch_read"]

_BEGIN: dict[Kind, str] = {
    "snapshot": "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "newest": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "batch": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "read": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "batch_read": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
}
#: Settings of a session; with a proxy, which shares sessions, of one transaction ($3 = 'true').
_SETTINGS = (
    "SELECT set_config('statement_timeout', $1, $3 = 'true'),"
    " set_config('idle_in_transaction_session_timeout', $2, $3 = 'true'),"
    # Else a statement that waits for a lock, and whose client is gone, keeps the locks of its
    # transaction until its timeout: the server writes to the client only at its end.
    " set_config('client_connection_check_interval', '1s', $3 = 'true'),"
    # With "off" a COMMIT would return before it is on disk; all other values wait for the disk.
    " set_config('synchronous_commit', replace(current_setting('synchronous_commit'),"
    " 'off', 'on'), $3 = 'true'),"
    # Plans are cached. A cached plan with a sequential scan, made while a table was small, would
    # stay when it has grown: so scans are only the last resort. Their high cost must not start JIT.
    " set_config('plan_cache_mode', 'auto', $3 = 'true'),"
    " set_config('enable_seqscan', 'off', $3 = 'true'), set_config('jit', 'off', $3 = 'true')"
)
#: A read that says `-- plan: kept`.
_READ_KEPT = (
    "SELECT set_config('statement_timeout', $1, true),"
    " set_config('transaction_read_only', 'on', true)"
)
#: Any other read is planned each time, which costs about 0.1 ms, and may use a sequential scan.
_READ_PLANNED = (
    f"{_READ_KEPT}, set_config('plan_cache_mode', 'force_custom_plan', true),"
    " set_config('enable_seqscan', 'on', true)"
)
_BATCH_READ = "SELECT set_config('statement_timeout', $1, true)"
_ID = "SELECT pg_current_xact_id()::text AS xid"
_BATCH_ID = (
    "SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true),"
    " pg_current_xact_id()::text AS xid"
)
#: Lock timeout of a batch: longer than the commits of other batches that lock the same rows take,
#: even on a busy machine.
_BATCH_LOCK_S = 0.25
#: Statement timeout of a batch; usual statements take a hundredth of it.
_BATCH_STATEMENT_S = 1.0
#: A transaction id is valid only within one history of the server. A failover begins a new
#: timeline. After a crash, ids that were not on disk are used again; a crash also resets the
#: statistics, an orderly restart does not.
HISTORY = (
    "substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) || ' '"
    " || coalesce((SELECT stats_reset::text FROM pg_stat_bgwriter), '')"
)
_STATUS = f"SELECT pg_xact_status($1::xid8) AS status, {HISTORY} AS history"
#: SQLSTATE: the id lies in the future of this server.
_FUTURE_ID = "22023"
#: The server's timeout for idle transactions is this much longer than `transaction_timeout_s`, so
#: that a live process ends its transaction first, with an error that says why (replay.py).
_GRACE_S = 1.0
#: Pauses between questions for the outcome of a commit.
_ASK_AGAIN_S = 0.2
#: SQLSTATE classes with which a COMMIT certainly failed; after others its outcome is not known.
_REFUSED = {"23", "40", "53", "25"}


class InDoubt(Exception):
    """The connection was lost during COMMIT."""

    def __init__(self, xid: str, history: str) -> None:
        super().__init__(xid)
        self.xid = xid
        self.history = history


class Settings:
    """The settings that are sent before the statements of a session or of one transaction.

    With them the server ends slow statements, and transactions whose host died. A proxy that shares
    sessions keeps settings for one transaction only, so they are sent with each.
    """

    def __init__(self, config: StoreConfig, *, proxied: bool) -> None:
        self.proxied = proxied
        self._read = _to_ms(config.read_timeout_s)
        self._write = _to_ms(config.write_timeout_s)
        self._idle = _to_ms(config.transaction_timeout_s + _GRACE_S)
        limit_s = min(_BATCH_STATEMENT_S, config.write_timeout_s)
        self._batch = (_to_ms(_BATCH_LOCK_S), _to_ms(limit_s))

    def send_session(self, connection: Connection) -> None:
        """Queue the settings of a session that no proxy shares."""
        connection.send(_SETTINGS, (self._write, self._idle, b"false"))

    def send_read(self, connection: Connection, *, kept: bool = False) -> None:
        """Queue the settings of a read, for the transaction that is open or begins with them."""
        connection.send(_READ_KEPT if kept else _READ_PLANNED, (self._read,))

    def send_begin(self, connection: Connection, kind: Kind) -> int:
        """Queue BEGIN and the settings. Returns the number of statements; the last one returns the
        transaction's id, except for reads.
        """
        connection.send(_BEGIN[kind])
        if self.proxied:
            connection.send(_SETTINGS, (self._write, self._idle, b"true"))
        if kind == "read":
            self.send_read(connection)
        elif kind == "batch_read":
            connection.send(_BATCH_READ, self._batch[1:])
        elif kind == "batch":
            connection.send(_BATCH_ID, self._batch)
        else:
            connection.send(_ID)
        return 3 if self.proxied else 2


def _to_ms(seconds: float) -> bytes:
    """Seconds as the server's settings need them: milliseconds, at least 1."""
    return b"%d" % max(1, round(seconds * 1000))


class Transaction:
    """A transaction on a connection that is clean when it begins and when it has ended well."""

    def __init__(self, connection: Connection, settings: Settings, kind: Kind) -> None:
        self.connection = connection
        self._settings = settings
        #: Fixed by the first statement.
        self.kind: Kind = kind
        #: Whether BEGIN was sent.
        self.begun = False
        #: Statements of ours before those of the caller, since the last sync.
        self._own_statements = 0
        #: Statements of the caller since the last sync.
        self._queued = 0
        #: Statements of the caller, and COMMIT, that the last sync waited for.
        self.awaited = 0
        self._xid = ""
        self._read_only = kind in ("read", "batch_read")
        #: Whether COMMIT was sent.
        self.commit_sent = False
        #: Seconds of the COMMIT; None: it has not returned.
        self.commit_s: float | None = None

    def send(self, sql: str, args: Sequence[bytes | None] = ()) -> None:
        """Queue a statement. Raises: as `Connection.send`."""
        if not self.begun:
            self.begun = True
            self._own_statements += self._settings.send_begin(self.connection, self.kind)
        self.connection.send(sql, args)
        self._queued += 1

    def commit_first(self, reads: Transaction) -> None:
        """Commit `reads`, which only read on this connection, in the round trip that begins this
        one.
        """
        if reads.begun:
            self.connection.send("COMMIT")
            self._own_statements += 1

    async def sync(self) -> list[Result]:
        """Run what was sent; its results. Raises: ServerError, ConnectionLost.

        The position of a ServerError is negative when it was none of the caller's statements.
        """
        own, self._own_statements = self._own_statements, 0
        self.awaited, self._queued = self._queued, 0
        try:
            results = await self.connection.sync()
        except ServerError as error:
            raise ServerError(error.fault, error.position - own) from None
        if own and not self._read_only:
            self._xid = results[own - 1].rows()[0]["xid"]
        return results[own:]

    async def commit(self) -> list[Result]:
        """Commit what ran, and what was sent since the last sync; returns the results of these.

        Raises: InDoubt; ServerError when it was refused, or with the position of what was sent and
        failed; ConnectionLost.
        """
        if not self.begun:
            return []
        results: list[Result] = []
        if self._queued and not self._xid and not self._read_only:
            results = await self.sync()
        last, self._queued = self._queued, 0
        self.awaited = last + 1
        self.commit_sent = True
        begun = monotonic()
        try:
            self.connection.send("COMMIT")
            *more, _ = await self.connection.sync()
            self.commit_s = monotonic() - begun
            return results + more
        except ConnectionLost:
            if self._xid:
                raise InDoubt(self._xid, self.connection.history) from None
            raise
        except ServerError as error:
            if error.position < last:
                raise  # so COMMIT did not run
            if self._xid and error.fault.sqlstate[:2] not in _REFUSED:
                raise InDoubt(self._xid, self.connection.history) from None
            raise ServerError(error.fault, -1) from None


async def find_outcome(doubt: InDoubt, pool: Pool, deadline: float) -> bool:
    """Whether a transaction was committed. Raises: Unclear when it cannot be learned in time."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            async with asyncio.timeout_at(deadline), pool.connection(deadline) as connection:
                row = (await connection.execute(_STATUS, (doubt.xid.encode(),))).rows()[0]
            if row["history"] != doubt.history:
                break  # the id may be another transaction's by now
            if row["status"] in ("committed", "aborted"):
                return bool(row["status"] == "committed")
            if row["status"] is None:
                break
        except ServerError as error:
            if error.fault.sqlstate == _FUTURE_ID:
                break
        except (StoreUnavailable, ConnectionLost, TimeoutError):
            pass
        if loop.time() + _ASK_AGAIN_S >= deadline:
            break
        await asyncio.sleep(_ASK_AGAIN_S)
    raise Unclear(
        "the connection was lost during a commit, and whether it happened is not known",
        hint="check before you do it again",
    )
