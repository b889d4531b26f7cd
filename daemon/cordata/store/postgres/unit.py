"""A unit of work on PostgreSQL: a coroutine that stops at each statement whose result it needs.

    coroutine --Request--> runner or batch --count or rows--> coroutine

A unit's tx does no IO. It yields a `Request` and waits; `unit_runner.py` answers the requests of
one unit in a separate transaction, `batch.py` those of many units together. `write` and `insert` do
not wait: their statements stay in `deferred` until the next request, or the end of the unit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from cordata.errors import CordataError, StatementError
from cordata.store.postgres.fault import ConnectionLost, ServerError, connection_lost, translate
from cordata.store.postgres.result import Result, encode
from cordata.store.queries import Queries, Query
from cordata.store.tx import (
    PUBLISH,
    Row,
    Tx,
    Unit,
    foreign_await,
    writes_in_read,
    wrong_count,
)
from cordata.unawaited import NeverAwaited, require_awaits


class Call(NamedTuple):
    """One statement to run."""

    query: Query
    #: As they are sent, in the order of the placeholders.
    args: Sequence[bytes | None]
    #: How many rows it has to change.
    rows: int | None = None


class Request:
    """Statements whose result a unit waits for; awaited, it stops the unit there."""

    __slots__ = ("calls", "wants")

    def __init__(
        self, calls: Sequence[Call], wants: Literal["count", "rows", "rows of each"]
    ) -> None:
        #: One; none: it waits for deferred ones only; several: it wants the rows of each.
        self.calls = calls
        #: "count": number of rows changed; "rows": the rows, as a list; or a list of such lists.
        self.wants = wants

    def __await__(self) -> Generator[Request, Any, Any]:
        return (yield self)

    def answer(self, results: Sequence[Result]) -> Any:
        """The value for the unit, from the results of its calls."""
        if self.wants == "rows of each":
            return [result.rows() for result in results]
        if self.wants == "rows":
            return results[0].rows()
        return results[0].count if results else 0


class Pause(Request):
    """Suspends the unit until `event` is set; used while a transaction() block runs other code."""

    __slots__ = ("event",)

    def __init__(self, event: asyncio.Event) -> None:
        super().__init__((), "count")
        self.event = event


class UnitTx(Tx):
    """The Tx of a unit."""

    __slots__ = ("_queries", "cause", "deferred", "made_messages", "miscounted")

    def __init__(self, queries: Queries, now_us: int) -> None:
        super().__init__(now_us)
        self._queries = queries
        #: The server's error or lost connection that `failed` was made from.
        self.cause: ServerError | ConnectionLost | None = None
        #: Whether a statement changed another number of rows than its `rows=` says.
        self.miscounted = False
        #: Calls of `write` and `insert` that were not sent yet.
        self.deferred: list[Call] = []
        #: Whether some consumer group gets an event that it published; else no consumer is woken.
        self.made_messages = False

    def call(self, query: Query, params: Mapping[str, Any], *, rows: int | None = None) -> Call:
        """The call of a statement.

        Raises: ConfigError; StatementError for a value that no column can store, which ends the
        unit; what ended it before.
        """
        if self.failed is not None:
            raise self.failed
        values = query.values(params)
        try:
            return Call(query, [encode(value) for value in values], rows)
        except StatementError as error:
            self.failed = StatementError(f"{query.name}: {error}")
            raise self.failed from None

    async def ask(self, request: Request) -> Any:
        """The answer to a request."""
        return await request

    async def defer(self, call: Call) -> None:
        """Queue a statement to be sent later."""
        self.deferred.append(call)

    async def execute(self, name: str, /, **params: object) -> int:
        """As in Tx."""
        call = self.call(self._queries.by_name[name], params)
        count: int = await self.ask(Request((call,), "count"))
        return count

    async def write(self, name: str, /, *, rows: Any = None, **params: object) -> None:
        """As in Tx."""
        await self.defer(self.call(self._queries.by_name[name], params, rows=rows))

    async def insert(self, table: str, /, **columns: object) -> None:
        """As in Tx."""
        await self.defer(self.call(self._queries.insert(table, columns), columns))

    async def fetch_all(self, name: str, /, *, lock: Any = False, **params: object) -> list[Row]:
        """As in Tx."""
        query = self._queries.by_name[name]
        call = self.call(query.locking if lock else query, params)
        rows: list[Row] = await self.ask(Request((call,), "rows"))
        return rows

    def check_counts(self, calls: Iterable[Call], results: Iterable[Result]) -> None:
        """See that each call changed as many rows as its `rows=` says, and note if messages came.

        Raises: Conflict.
        """
        for call, result in zip(calls, results, strict=False):
            if call.query.name == PUBLISH and result.count:
                self.made_messages = True
            if call.rows is not None and result.count != call.rows:
                self.miscounted = True
                self.failed = wrong_count(call.query.name, result.count, call.rows)
                raise self.failed

    def fail(self, error: ServerError | ConnectionLost, name: str) -> CordataError:
        """End the unit, because statement `name` failed. Returns the error for the unit."""
        self.cause = error
        if isinstance(error, ServerError):
            self.failed = translate(error.fault, name)
        else:
            self.failed = connection_lost(str(error))
        return self.failed


class ReadTx(UnitTx):
    """The Tx of `Store.read()`."""

    __slots__ = ()

    def call(self, query: Query, params: Mapping[str, Any], *, rows: int | None = None) -> Call:
        """As in UnitTx. Raises: UnitMisuse when the statement writes."""
        if not query.selects:
            raise writes_in_read(query.name)
        return super().call(query, params)

    def fail(self, error: ServerError | ConnectionLost, name: str) -> CordataError:
        """As in UnitTx; here `read_only` comes from a query that writes, not from a standby."""
        if isinstance(error, ServerError) and error.fault.read_only:
            self.failed = writes_in_read(name)
            return self.failed
        return super().fail(error, name)


class UnitCoroutine:
    """A running unit, which stops at each request."""

    __slots__ = ("_coroutine", "request", "tx", "value")

    def __init__(self, unit: Unit[Any], tx: UnitTx) -> None:
        self.tx = tx
        self._coroutine: Any = unit(tx)
        #: What it waits for; None: it has not begun, or has ended.
        self.request: Request | None = None
        #: What the unit returned.
        self.value: Any = None

    async def to_end(self, answer: Callable[[Request], Awaitable[Any]]) -> Any:
        """Run to the end; `answer` gets each request and returns the answer. Returns the result.

        Raises: as `step`; what `answer` raises, unless that has ended the unit (`tx.failed`): it is
        raised in the unit, too.
        """
        try:
            self.step()
            while self.request is not None:
                try:
                    reply = await answer(self.request)
                except CordataError as error:
                    if error is not self.tx.failed:
                        raise
                    reply = error
                self.step(reply)
            return self.value
        finally:
            self.close()

    def step(self, answer: object = None) -> None:
        """Run to the next request, or to the end, with the answer to the last one (None at first).

        An answer that is an error (`tx.failed`) is raised in the unit, which fails even if it
        catches it. Raises: what the unit raised; UnitMisuse when it awaits something other than its
        tx.
        """
        try:
            with require_awaits():
                if isinstance(answer, BaseException):
                    self.request = self._coroutine.throw(answer)
                else:
                    self.request = self._coroutine.send(answer)
        except NeverAwaited:
            self.close()
            raise
        except StopIteration as end:
            if self.tx.failed is not None:
                raise self.tx.failed from None
            self.value, self.request = end.value, None
            return
        if not isinstance(self.request, Request):
            misuse = foreign_await(self._coroutine)
            self.close()
            raise misuse

    def close(self) -> None:
        """Stop the unit where it is; exceptions from its cleanup are ignored."""
        with contextlib.suppress(BaseException):
            self._coroutine.close()
