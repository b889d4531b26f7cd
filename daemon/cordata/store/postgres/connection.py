"""One connection in libpq's pipeline mode: statements are sent together, results come together.

    send() send() ... --sync()--> [Sync is sent] --all results--> list of Result

psycopg finds the server (several hosts, passwords, TLS) and converts rows to Python values; this
module drives the pipeline. psycopg's cursors cost 0.27 ms a unit more, poll ten times a second
while they wait, wait without a limit for the end of a cancelled statement, and forget all prepared
statements at every ROLLBACK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from psycopg import pq
from psycopg.adapt import Transformer

from cordata.store.postgres.fault import ConnectionLost, Fault, ServerError
from cordata.store.postgres.result import FAILED, Result, fault_of, reason

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.pq.abc import PGresult

_IDLE = pq.TransactionStatus.IDLE
_COPY = (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT)
_NO_COPY = Fault("0A000", "COPY FROM STDIN and COPY TO STDOUT are not supported")
#: The pool replaces a connection with more prepared statements than this. Each INSERT of a few
#: columns takes 10 KB of the server's memory, and a program may insert ever new sets of columns.
_MAX_PREPARED = 1000
#: A long result may come in several pieces, and its end after the last one.
_READS_PER_EVENT = 2
_RESET_S = 2.0

#: Called with payload and sender (process id on the server) of each notification.
OnNotify = Callable[[str, int], None]


class Connection:
    """A connection to the server; one task uses it at a time.

    The socket is watched all the time, so that the loss of a server is noticed while idle, too.
    """

    def __init__(
        self,
        raw: AsyncConnection[Any],
        *,
        prepare: bool,
        on_notify: OnNotify | None = None,
    ) -> None:
        """`prepare`: use prepared statements, which not every proxy supports."""
        self._raw = raw  # referenced, since its finalizer closes the libpq connection
        self._pg = raw.pgconn
        self._prepare = prepare
        self._on_notify = on_notify
        self._loop = asyncio.get_running_loop()
        self._transformer = Transformer(raw)
        self.pid = self._pg.backend_pid
        #: The history of the server that its transaction ids belong to; see transaction.HISTORY.
        self.history = ""
        #: Loop time since when it has been idle, for the pool.
        self.idle_since = 0.0
        #: Called once, on the loop, when the connection is lost or closed.
        self.on_lost: Callable[[], None] | None = None
        #: Why the connection cannot be used any more; "": it can.
        self.lost: str = ""
        #: Text of each prepared statement -> its name. If Prepare fails, the entry is removed, and
        #: the name is not used again.
        self._names: dict[str, bytes] = {}
        self._named = 0
        #: Sent since the last sync: None for a statement, its text for a Prepare.
        self._sent: list[str | None] = []
        self._results: list[PGresult] = []
        #: The error of a statement that the connection was closed for.
        self._refused: ServerError | None = None
        self._syncing = False
        #: Loop time when the last sync was sent.
        self._synced_at = 0.0
        self._writing = False
        self._waiter: asyncio.Future[None] | None = None
        self._socket = self._pg.socket
        self._pg.nonblocking = 1
        self._pg.enter_pipeline_mode()
        self._loop.add_reader(self._socket, self._readable)

    @property
    def silent_s(self) -> float:
        """Seconds since the last Sync was sent to the server."""
        return self._loop.time() - self._synced_at

    @property
    def is_clean(self) -> bool:
        """Whether it is in no transaction, and no result is to come (of a cancelled `sync`)."""
        is_busy = self.lost or self._syncing or self._sent
        return not is_busy and self._pg.transaction_status == _IDLE

    @property
    def has_too_many_statements(self) -> bool:
        """Whether it has too many prepared statements, so that the pool should replace it."""
        return len(self._names) > _MAX_PREPARED

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, failed or not."""
        return not self.lost and self._pg.transaction_status != _IDLE

    def send(self, sql: str, args: Sequence[bytes | None] = (), *, prepare: bool = True) -> None:
        """Queue a statement with `$1`, `$2`, ...; `sync` sends it and reports its errors.

        Values are sent as text (`result.encode`), and the server infers their types, as for a
        quoted literal. `prepare=False`: plan it again (a prepared statement without parameters
        keeps its first plan in spite of `plan_cache_mode`). Raises: ConnectionLost.
        """
        if self.lost:
            raise ConnectionLost(self.lost)
        pg, values = self._pg, [*args]  # psycopg in C takes no other sequence
        try:
            if not (self._prepare and prepare):
                pg.send_query_params(sql.encode(), values)
            else:
                name = self._names.get(sql)
                if name is None:
                    self._named += 1
                    name = self._names[sql] = b"s%d" % self._named
                    self._sent.append(sql)
                    pg.send_prepare(name, sql.encode())
                pg.send_query_prepared(name, values)
        except Exception as error:  # noqa: BLE001 - after any error the connection is unusable
            self._lose(str(error))
            raise ConnectionLost(self.lost) from None
        self._sent.append(None)

    async def sync(self) -> list[Result]:
        """Send the queued statements and wait for their results, one per statement.

        After cancelling, results are still to come; see `reset`. Raises: ServerError for the first
        statement that failed (those after it were skipped); ConnectionLost.
        """
        self._send_sync()
        await self._wait()
        return self._take_results()

    async def reset(self, deadline: float | None = None) -> None:
        """Drop the results that are still to come, and roll back a transaction that is open.

        Closes the connection, which undoes it too, if the server has not answered by `deadline`
        (loop time; None: soon).
        """
        try:
            async with asyncio.timeout_at(deadline or self._loop.time() + _RESET_S):
                if self._sent and not self._syncing:
                    self._send_sync()
                await self._wait()
                with suppress(ServerError):
                    self._take_results()
                if self.in_transaction:
                    await self.execute("ROLLBACK")
        except (TimeoutError, ConnectionLost, ServerError):
            self.close()
        except BaseException:
            self.close()
            raise

    async def execute(self, sql: str, args: Sequence[bytes | None] = ()) -> Result:
        """Run one statement. Raises: as `sync`."""
        self.send(sql, args)
        return (await self.sync())[0]

    async def run_script(self, script: str) -> None:
        """Run a text with any number of statements. Raises: ServerError, ConnectionLost.

        A pipeline cannot run several statements in one text, so this leaves the pipeline mode.
        """
        if self.lost:
            raise ConnectionLost(self.lost)
        self._pg.exit_pipeline_mode()
        self._syncing, self._synced_at = True, self._loop.time()
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

    def close(self, reason: str = "closed") -> None:
        """Close it; the server rolls back an open transaction. Idempotent."""
        if not self.lost:
            self._lose(reason)

    def _send_sync(self) -> None:
        if self.lost:
            raise ConnectionLost(self.lost)
        self._syncing, self._synced_at = True, self._loop.time()
        try:
            self._pg.pipeline_sync()
        except Exception as error:  # noqa: BLE001
            self._lose(str(error))
            raise ConnectionLost(self.lost) from None
        self._flush()

    async def _wait(self) -> None:
        while self._syncing and not self.lost:
            self._waiter = self._loop.create_future()
            await self._waiter
        if self._refused is not None:
            raise self._refused
        if self.lost:
            raise ConnectionLost(self.lost)

    def _take_results(self) -> list[Result]:
        """The results of the statements of one sync; those of Prepare are checked and dropped."""
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
                found.append(Result(self._transformer, result))
        if failed is not None:
            raise failed
        return found

    def _flush(self) -> None:
        try:
            pending = self._pg.flush()
        except Exception as error:  # noqa: BLE001
            self._lose(str(error))
            return
        if self._pg.status == pq.ConnStatus.BAD:
            # libpq found the connection broken and closed the socket: no event will come any more.
            self._lose(self._pg.get_error_message())
            return
        if pending and not self._writing:
            self._writing = True
            self._loop.add_writer(self._socket, self._flush)
        elif not pending and self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        pg = self._pg
        try:
            pg.consume_input()
            if self._writing:  # there may be room in the send buffer now
                self._flush()
            if self._syncing:
                self._read_results()
            # After a reset by the server uvloop calls this method only once, so everything after
            # the data (perhaps the end of the stream) must be read now.
            for _ in range(_READS_PER_EVENT):
                if self._syncing and not self.lost:
                    pg.consume_input()
                    self._read_results()
            self._read_notifications()
            if not self._syncing and pg.status == pq.ConnStatus.BAD:
                self._lose(pg.get_error_message())
        except Exception as error:  # noqa: BLE001
            self._lose(reason(self._results) or str(error))

    def _read_results(self) -> None:
        pg = self._pg
        pipelined = pg.pipeline_status != pq.PipelineStatus.OFF
        missing = False
        while not pg.is_busy():
            result = pg.get_result()
            if result is None:
                if missing or not pipelined:  # no more results
                    self._end_sync(lost=pipelined)
                    return
                missing = True
                continue
            missing = False
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                self._end_sync()
                return
            if result.status in _COPY:  # libpq would return it again and again
                before = len(self._results)
                position = self._sent[:before].count(None) if pipelined else before
                self._refused = ServerError(_NO_COPY, position)
                self._lose(_NO_COPY.message)
                return
            self._results.append(result)
            if pg.status == pq.ConnStatus.BAD:
                break
        if pg.status == pq.ConnStatus.BAD:
            self._lose(reason(self._results) or pg.get_error_message())

    def _end_sync(self, *, lost: bool = False) -> None:
        if lost:
            self._lose(reason(self._results) or self._pg.get_error_message())
            return
        self._syncing = False
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _read_notifications(self) -> None:
        while (notification := self._pg.notifies()) is not None:
            if self._on_notify is not None:
                text = notification.extra.decode("utf-8", "replace")
                self._on_notify(text, notification.be_pid)

    def _lose(self, reason: str) -> None:
        if self.lost:
            return
        self.lost = " ".join(reason.split()) or "the connection is lost"
        self._loop.remove_reader(self._socket)
        if self._writing:
            self._loop.remove_writer(self._socket)
        self._pg.finish()
        self._wake()
        if self.on_lost is not None:
            self.on_lost()
