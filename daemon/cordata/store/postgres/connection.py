"""One connection: statements are sent together, their results come back together.

libpq's pipeline mode, on all the time and driven from here. psycopg's own cursors would do, but
they poll ten times a second while they wait, cancel and then wait without a bound when they are
interrupted, and forget all prepared statements at every ROLLBACK. What psycopg does for us: find
the server (several hosts, passwords, TLS) and turn rows into Python values.

    send() send() ... --sync()--> [Sync goes out] --all results--> list of Result
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from psycopg import pq
from psycopg.adapt import Transformer

from cordata.store.postgres.fault import ConnectionLost, ServerError
from cordata.store.postgres.result import FAILED, Result, encode, fault_of
from cordata.store.postgres.wire import OnNotify, Wire

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_IDLE = pq.TransactionStatus.IDLE
#: Without parameters they keep their first plan, whatever `plan_cache_mode` says, if prepared.
_PLANNED_ONCE = ("SELECT", "WITH")
#: With so many prepared statements a connection is worn out: the pool makes another.
_MAX_PREPARED = 1000


class Connection(Wire):
    """A connection to the server, of which one task makes use at a time."""

    def __init__(
        self,
        raw: AsyncConnection[Any],
        *,
        prepare: bool,
        on_notify: OnNotify | None = None,
    ) -> None:
        """`prepare`: keep statements on the server, which not every proxy can bear."""
        super().__init__(raw.pgconn, on_notify)
        self._raw = raw  # which would close it if it were not kept
        self._prepare = prepare
        self.transformer = Transformer(raw)
        self.pid = self._pg.backend_pid
        #: Which history its transaction ids belong to; see transaction.HISTORY.
        self.history = ""
        #: Loop time since when it has been idle, for the pool.
        self.idle_since = 0.0
        #: Of prepared statements. One that failed is forgotten, so the next number is its own.
        self._names: dict[str, bytes] = {}
        self._named = 0
        #: What was sent since the last sync: None for a statement, its text for a Prepare.
        self._sent: list[str | None] = []

    @property
    def prepares(self) -> bool:
        """Whether it keeps statements on the server."""
        return self._prepare

    @property
    def busy(self) -> bool:
        """Whether results are still to come: whoever waited for them went away."""
        return self._syncing or bool(self._sent)

    @property
    def idle(self) -> bool:
        """Whether it is in no transaction and waits for nothing."""
        return not self.lost and not self.busy and self._pg.transaction_status == _IDLE

    @property
    def worn(self) -> bool:
        """Whether it holds so many prepared statements that a new one is better."""
        return len(self._names) > _MAX_PREPARED

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, failed or not."""
        return not self.lost and self._pg.transaction_status != _IDLE

    def send(self, sql: str, args: Sequence[object] = (), *, keep: bool = False) -> None:
        """Queue a statement with `$1`, `$2`, ...; nothing is heard of it before `sync`.

        Values go as text and the server infers their types, as it does with a literal in quotes.
        `keep`: its first plan is good enough for ever, also without parameters. Raises:
        PermanentError for a value that no column can hold; ConnectionLost.
        """
        self.send_encoded(sql, [encode(value) for value in args], keep=keep)

    def send_encoded(
        self,
        sql: str,
        values: Sequence[bytes | None],
        formats: Sequence[int] | None = None,
        *,
        keep: bool = False,
    ) -> None:
        """As `send`, with values that are encoded already; `formats`: 1 for those in binary."""
        if self.lost:
            raise ConnectionLost(self.lost)
        pg = self._pg
        try:
            if not self._prepare or not (values or keep or not sql.startswith(_PLANNED_ONCE)):
                pg.send_query_params(sql.encode(), values, None, formats)
            else:
                name = self._names.get(sql)
                if name is None:
                    name = self._name(sql)
                    pg.send_prepare(name, sql.encode())
                pg.send_query_prepared(name, values, formats)
        except Exception as error:  # noqa: BLE001 - whatever libpq raises, it is of no use any more
            self._lose(str(error))
            raise ConnectionLost(self.lost) from None
        self._sent.append(None)

    async def describe(self, sql: str) -> list[int]:
        """The types of the parameters of a statement, as the server infers them, by their oids.

        Raises: ServerError when it is not valid; ConnectionLost.
        """
        if self.lost:
            raise ConnectionLost(self.lost)
        try:
            self._pg.send_prepare(b"", sql.encode())
            self._pg.send_describe_prepared(b"")
        except Exception as error:  # noqa: BLE001
            self._lose(str(error))
            raise ConnectionLost(self.lost) from None
        self._sent += (sql, None)
        return (await self.sync())[0].param_types()

    def _name(self, sql: str) -> bytes:
        """A name for a statement that is to be prepared next."""
        self._named += 1
        name = self._names[sql] = b"s%d" % self._named
        self._sent.append(sql)
        return name

    async def sync(self) -> list[Result]:
        """Send what is queued and wait for all results, one per statement.

        Being cancelled leaves it `busy`; see `settle`. Raises: ServerError for the first statement
        that failed (those after it were skipped); ConnectionLost.
        """
        if self.lost:
            raise ConnectionLost(self.lost)
        self._syncing, self._asked = True, self._loop.time()
        try:
            self._pg.pipeline_sync()
        except Exception as error:  # noqa: BLE001
            self._lose(str(error))
            raise ConnectionLost(self.lost) from None
        self._flush()
        await self._wait()
        return self._gather()

    async def settle(self) -> None:
        """Wait for results that nobody waits for any more, and drop them."""
        if self._sent and not self._syncing and not self.lost:
            self._syncing, self._asked = True, self._loop.time()
            self._pg.pipeline_sync()
            self._flush()
        await self._wait()
        self._sent.clear()
        self._results.clear()

    async def execute(self, sql: str, args: Sequence[object] = ()) -> Result:
        """Run one statement."""
        self.send(sql, args)
        return (await self.sync())[0]

    async def run_script(self, script: str) -> None:
        """Run any number of statements as they are. Raises: ServerError, ConnectionLost.

        The only way for statements that come in one text; no prepared ones survive it.
        """
        if self.lost:
            raise ConnectionLost(self.lost)
        self._pg.exit_pipeline_mode()
        self._syncing, self._asked = True, self._loop.time()
        self._sent.append(None)
        self._pg.send_query(script.encode())
        self._flush()
        try:
            await self._wait()
        finally:
            if not self.lost and not self._syncing:
                self._pg.enter_pipeline_mode()
        self._sent.clear()
        results, self._results = self._results, []
        for position, result in enumerate(results):
            if result.status in FAILED:
                raise ServerError(fault_of(result), position)

    def _gather(self) -> list[Result]:
        """The results of the statements of one sync; those of Prepare are looked at and dropped."""
        sent, self._sent = self._sent, []
        results, self._results = self._results, []
        found: list[Result] = []
        failed: ServerError | None = None
        for prepared, result in zip(sent, results, strict=True):
            if result.status in FAILED:
                if prepared:
                    self._names.pop(prepared, None)
                if failed is None:
                    failed = ServerError(fault_of(result), len(found))
            elif prepared is None:
                found.append(Result(self.transformer, result))
        if failed is not None:
            raise failed
        return found
