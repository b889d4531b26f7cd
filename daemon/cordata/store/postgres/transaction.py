"""One transaction on one connection: how it begins, and what became of its COMMIT.

    BEGIN + settings + statements --sync--> ... --commit--> committed
                                                   | connection lost meanwhile
                                                   +--> InDoubt --pg_xact_status--> committed or not

BEGIN travels with the first statement. So does, with the first that writes, the question for the
transaction's id: a connection that is lost during COMMIT leaves open whether it happened, and only
by that id another connection can ask. Once it is known, COMMIT travels with the last statements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from cordata.config.sections import StoreConfig
from cordata.errors import StoreUnavailable, Unclear
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import ConnectionLost, ServerError
from cordata.store.postgres.pool import Pool
from cordata.store.postgres.result import Result
from cordata.store.tx import Bookkeeping

Kind = Literal["write", "often", "newest", "stable", "read"] | Bookkeeping

_BEGIN: dict[Kind, str] = {
    # Each statement sees the newest state.
    "write": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "newest": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "lasting": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "fleeting": "BEGIN ISOLATION LEVEL READ COMMITTED",
    # All see one state; changing a row that has changed since fails (40001).
    "stable": "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "often": "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "read": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
}
_XID = "SELECT pg_current_xact_id_if_assigned()::text AS xid"
#: "off" would answer before the commit is on disk; every other value promises at least that.
_DURABLE = (
    "set_config('synchronous_commit', replace(current_setting('synchronous_commit'),"
    " 'off', 'on'), $3 = 'true')"
)
#: Planned each time, for some 0.1 ms: a plan that was kept since a table was small reads it through
#: when it has grown.
_PLANS = "set_config('plan_cache_mode', 'force_custom_plan', $3 = 'true')"
_SETTINGS = (
    "SELECT set_config('statement_timeout', $1, $3 = 'true'),"
    " set_config('idle_in_transaction_session_timeout', $2, $3 = 'true'), "
    f"{_DURABLE}, {_PLANS}"
)
#: For what runs often: plans are kept. So that none is kept which reads a table through because it
#: was small, reading through is the last resort (whose price must not look like one worth
#: compiling).
KEEP = (
    "set_config('plan_cache_mode', 'auto', true),"
    " set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"
)
_KEPT = f"SELECT set_config('statement_timeout', $1, true), {KEEP}"
#: Keeps what there was before, for a unit that finds it needs that (stream.outlive_crash).
_FLEETING = (
    "set_config('synchronous_commit', CASE WHEN set_config('cordata.synchronous_commit',"
    " current_setting('synchronous_commit'), true) <> '' THEN 'off' END, true)"
)
_PREPARED: dict[Kind, str] = {
    "often": _KEPT,
    "newest": _KEPT,
    "lasting": _KEPT,
    "fleeting": f"{_KEPT}, {_FLEETING}",
}
#: Whose statements without parameters keep their first plan, too.
_BOOKKEEPING = ("lasting", "fleeting")
_LIMIT = "SELECT set_config('statement_timeout', $1, true)"
#: What a number of a transaction is worth something with. A failover begins a new timeline. A
#: crash gives numbers away again that never reached the disk; it also resets the statistics,
#: which a restart in good order does not.
HISTORY = (
    "substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) || ' '"
    " || coalesce((SELECT stats_reset::text FROM pg_stat_bgwriter), '')"
)
_STATUS = f"SELECT pg_xact_status($1::xid8) AS status, {HISTORY} AS history"
#: A transaction that waits for nothing but its client may do so a little longer than allowed.
_GRACE_S = 1.0
_ROLLBACK_S = 2.0
#: Pauses between questions for the outcome of a commit.
_ASK_AGAIN_S = 0.2
#: SQLSTATE classes of a COMMIT that says no: everything else leaves open what happened.
REFUSED = {"23", "40", "53", "25"}


class InDoubt(Exception):
    """The connection was lost during COMMIT."""

    def __init__(self, xid: str, history: str) -> None:
        super().__init__(xid)
        self.xid = xid
        self.history = history


class Prologue:
    """What the server is told before the statements of a transaction, or of a whole session.

    The server itself ends what takes too long, and a transaction whose host died. Where a proxy
    shares its sessions out, settings live for one transaction only and are sent with each.
    """

    def __init__(self, config: StoreConfig, *, proxied: bool) -> None:
        self.proxied = proxied
        self._read = to_ms(config.read_timeout_s)
        self.write_s = config.write_timeout_s
        self._write = to_ms(config.write_timeout_s)
        self._idle = to_ms(config.transaction_timeout_s + _GRACE_S)

    def session(self) -> tuple[str, tuple[str, ...]]:
        """The statement for a session of our own: the limits of a read."""
        return _SETTINGS, (self._read, self._idle, "false")

    def begin(self, connection: Connection, kind: Kind, *, limited: bool = True) -> int:
        """Queue a BEGIN and the limits; the number of statements.

        Not `limited`: the caller says how long a statement may take.
        """
        connection.send(_BEGIN[kind])
        limit = self._read if kind == "read" else self._write
        sent = 1
        if self.proxied:
            connection.send(_SETTINGS, (limit, self._idle, "true"))
            sent += 1
        if kind in _PREPARED:
            connection.send(_PREPARED[kind], (limit,))
            sent += 1
        elif limited and not self.proxied and limit != self._read:
            connection.send(_LIMIT, (limit,))
            sent += 1
        return sent


def to_ms(seconds: float) -> str:
    """As settings of the server have it."""
    return str(max(1, round(seconds * 1000)))


class Transaction:
    """A transaction on a connection that is idle when it begins and when it has ended well."""

    def __init__(self, connection: Connection, prologue: Prologue, kind: Kind = "write") -> None:
        self.connection = connection
        self._prologue = prologue
        self._kind: Kind = kind
        self._begun = False
        self._ahead = 0
        #: Statements since the last sync.
        self._queued = 0
        self._wrote = False
        self._xid = ""
        #: Whether COMMIT is under way.
        self.ending = False

    def send(self, sql: str, args: Sequence[object] = (), *, writes: bool = False) -> None:
        """Queue a statement; `writes`: it may change something."""
        if not self._begun:
            self._begun = True
            self._ahead = self._prologue.begin(self.connection, self._kind)
        self._wrote = self._wrote or writes
        self.connection.send(sql, args, keep=self._kind in _BOOKKEEPING)
        self._queued += 1

    async def sync(self) -> list[Result]:
        """Run what was sent; its results. Raises: ServerError, ConnectionLost."""
        ahead, self._ahead = self._ahead, 0
        self._queued = 0
        asks = self._wrote and not self._xid
        if asks:
            self.connection.send(_XID, keep=True)
        try:
            results = await self.connection.sync()
        except ServerError as error:
            raise ServerError(error.fault, error.position - ahead) from None
        if asks:
            self._xid = results.pop().rows()[0]["xid"] or ""
        return results[ahead:]

    async def commit(self) -> None:
        """Commit what ran, and what was sent since the last sync.

        Raises: InDoubt; ServerError when it was refused, or with the position of what was sent and
        failed; ConnectionLost.
        """
        if not self._begun:
            return
        if self._queued and not self._xid:
            await self.sync()
        last, self._queued = self._queued, 0
        self.ending = True
        try:
            self.connection.send("COMMIT")
            await self.connection.sync()
        except ConnectionLost:
            if self._xid:
                raise InDoubt(self._xid, self.connection.history) from None
            if self._wrote:
                return  # it changed nothing, since it was never given an id
            raise
        except ServerError as error:
            if error.position < last:
                raise  # behind it nothing ran
            if self._xid and error.fault.sqlstate[:2] not in REFUSED:
                raise InDoubt(self._xid, self.connection.history) from None
            raise ServerError(error.fault, -1) from None

    async def roll_back(self) -> None:
        """Undo what ran; a connection that does not answer soon is closed, which undoes it too."""
        connection = self.connection
        try:
            async with asyncio.timeout(_ROLLBACK_S):
                await connection.settle()
                if connection.in_transaction:
                    await connection.execute("ROLLBACK")
        except (TimeoutError, ConnectionLost, ServerError):
            connection.close()
        except BaseException:
            connection.close()
            raise


async def find_outcome(doubt: InDoubt, pool: Pool, deadline: float) -> bool:
    """Whether a transaction was committed. Raises: Unclear when it cannot be learned in time."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            async with asyncio.timeout_at(deadline), pool.connection(deadline) as connection:
                row = (await connection.execute(_STATUS, (doubt.xid,))).rows()[0]
            if row["history"] != doubt.history:
                break  # the number may be another transaction's by now
            if row["status"] in ("committed", "aborted"):
                return bool(row["status"] == "committed")
            if row["status"] is None:
                break
        except ServerError as error:
            if error.fault.sqlstate == "22023":  # the number lies in the future of this server
                break
        except (StoreUnavailable, ConnectionLost, TimeoutError):
            pass
        if loop.time() + _ASK_AGAIN_S >= deadline:
            break
        await asyncio.sleep(_ASK_AGAIN_S)
    raise Unclear(
        "the connection was lost during a commit, and whether it happened is not known",
        hint="look before doing it again",
    )
