"""Units of work as PostgreSQL sees them: a coroutine that stops at each statement.

    coroutine --Ask--> whoever runs it --count or rows--> coroutine

A unit's tx does no IO. It hands out an `Ask` and waits; `alone.py` answers one unit's questions
in a transaction of its own, a batch those of many units in one. `write()` asks nothing: its
statement waits in `deferred` until the next answer is fetched or the transaction ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Generator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from cordata.errors import CordataError, StatementError
from cordata.store.fence import Fence, check_fence
from cordata.store.postgres.fault import ConnectionLost, ServerError, cut, translate
from cordata.store.postgres.result import encode
from cordata.store.postgres.share import Share
from cordata.store.queries import Queries, Query
from cordata.store.tx import Row, Tx, Unit, UnitMisuse, foreign_await, wrong_count
from cordata.unawaited import NeverAwaited, refused

T = TypeVar("T")

Wants = Literal["count", "rows", "results"]


class Call(NamedTuple):
    """One statement to run, `args` in the order of its placeholders."""

    query: Query
    args: Sequence[object]


def unsendable(calls: Sequence[Call] | Sequence[Share]) -> str:
    """The name of the first call with a value that cannot be sent; "": there is none."""
    for call in calls:
        try:
            for value in call.args:
                encode(value)
        except StatementError:
            return call.query.name
    return ""


class Ask:
    """Statements whose result a unit waits for; awaited, it stops the unit there."""

    __slots__ = ("calls", "wants")

    def __init__(self, calls: Sequence[Call], wants: Wants) -> None:
        #: One, or those of `execute_many`.
        self.calls = calls
        #: "count": rows changed, by all together; "rows": those of the only one, as a list;
        #: "results": one Result each (no unit asks that way).
        self.wants = wants

    def __await__(self) -> Generator[Ask, Any, Any]:
        return (yield self)


class UnitTx(Tx):
    """The Tx of a unit."""

    __slots__ = ("_all", "_queries", "cause", "deferred", "newest")

    def __init__(self, queries: Queries, now_us: int) -> None:
        super().__init__(now_us)
        self._all = queries
        self._queries = queries.by_name
        #: What the server did when a statement failed, behind `failed`.
        self.cause: ServerError | ConnectionLost | None = None
        #: Written with `write`, not sent yet.
        self.deferred: list[Call] = []
        #: Whether one of its statements has to see the newest state.
        self.newest = False

    def call(self, name: str, params: Mapping[str, Any], *, lock: bool = False) -> Call:
        """The call of a named statement. Raises: ConfigError; what ended the unit."""
        return self._call(self._all.locking(name) if lock else self._queries[name], params)

    def _call(self, query: Query, params: Mapping[str, Any]) -> Call:
        if self.failed is not None:
            raise self.failed
        try:
            args = query.bind(params)
        except KeyError:
            raise query.wrong(params) from None
        if len(params) != query.width:
            raise query.wrong(params)
        self.newest = self.newest or query.newest
        return Call(query, args)

    async def execute(self, name: str, /, **params: object) -> int:
        """As in Tx."""
        count: int = await Ask((self.call(name, params),), "count")
        return count

    async def write(self, name: str, /, *, rows: Any = None, **params: object) -> None:
        """As in Tx."""
        if rows is None:
            self.deferred.append(self.call(name, params))
        else:
            self.expect(name, await self.execute(name, **params), rows)

    async def insert(self, table: str, /, **columns: object) -> None:
        """As in Tx."""
        self.deferred.append(self.insertion(table, columns))

    def insertion(self, table: str, columns: Mapping[str, Any]) -> Call:
        """The call of an `insert`. Raises: ConfigError; what ended the unit."""
        return self._call(self._all.insert(table, columns), columns)

    def expect(self, name: str, changed: int, rows: int) -> None:
        """See that a statement changed so many rows. Raises: Conflict, which ends the unit."""
        if changed != rows:
            self.failed = wrong_count(name, changed, rows)
            raise self.failed

    async def execute_many(self, name: str, rows: Sequence[Mapping[str, object]], /) -> int:
        """As in Tx."""
        if not rows:
            return 0
        count: int = await Ask([self.call(name, row) for row in rows], "count")
        return count

    async def fetch_one(self, name: str, /, *, lock: Any = False, **params: object) -> Row | None:
        """As in Tx."""
        rows: list[Row] = await Ask((self.call(name, params, lock=lock),), "rows")
        return rows[0] if rows else None

    async def fetch_all(self, name: str, /, *, lock: Any = False, **params: object) -> list[Row]:
        """As in Tx."""
        rows: list[Row] = await Ask((self.call(name, params, lock=lock),), "rows")
        return rows

    def fail(self, error: ServerError | ConnectionLost | CordataError, name: str) -> CordataError:
        """A statement failed, and the unit with it; the error for the unit."""
        if isinstance(error, StatementError):  # a value that cannot be sent
            self.failed = StatementError(f"{name}: {error}" if name else str(error))
        elif isinstance(error, CordataError):
            self.failed = error
        else:
            self.cause = error
            if isinstance(error, ServerError):
                self.failed = translate(error.fault, name)
            else:
                self.failed = cut(str(error))
        return self.failed


class ReadTx(UnitTx):
    """The Tx of `Store.read()`."""

    __slots__ = ()

    def call(self, name: str, params: Mapping[str, Any], *, lock: bool = False) -> Call:
        """As in UnitTx. Raises: UnitMisuse when the statement writes."""
        call = super().call(name, params, lock=lock)
        if not call.query.selects:
            raise cannot_write(name)
        return call

    def fail(self, error: ServerError | ConnectionLost | CordataError, name: str) -> CordataError:
        """As in UnitTx; every server refuses to write for a read."""
        if isinstance(error, ServerError) and error.fault.read_only:
            self.failed = cannot_write(name)
            return self.failed
        return super().fail(error, name)


def cannot_write(name: str) -> UnitMisuse:
    """The error for a statement that writes in a read."""
    return UnitMisuse(
        f"query {name!r} writes, but a read cannot",
        hint="pass the unit to run() instead of read()",
    )


class Course:
    """A unit on its way from one Ask to the next."""

    __slots__ = ("_coroutine", "tx", "value")

    def __init__(self, unit: Unit[Any], tx: UnitTx, fence: Fence | None = None) -> None:
        self.tx = tx
        coroutine: Awaitable[Any] = unit(tx) if fence is None else _fenced(unit, tx, fence)
        self._coroutine: Any = coroutine
        #: What the unit returned, once `step` gave None.
        self.value: Any = None

    def step(self, answer: object = None) -> Ask | None:
        """Go on with the answer to the last Ask (None at first); None: the unit has ended.

        An answer that is an error is raised in the unit, which is over with it even if it goes
        on. Raises: what the unit raised; UnitMisuse when it awaits something else than its tx.
        """
        try:
            with refused():
                if isinstance(answer, BaseException):
                    if isinstance(answer, CordataError):
                        self.tx.failed = answer
                    ask = self._coroutine.throw(answer)
                else:
                    ask = self._coroutine.send(answer)
        except NeverAwaited:
            self.close()
            raise
        except StopIteration as end:
            if self.tx.failed is not None:
                raise self.tx.failed from None
            self.value = end.value
            return None
        if isinstance(ask, Ask):
            return ask
        misuse = foreign_await(self._coroutine)
        self.close()
        raise misuse

    def close(self) -> None:
        """Leave the unit where it is; what it raises on its way out changes nothing."""
        with contextlib.suppress(BaseException):
            self._coroutine.close()


async def _fenced(unit: Unit[T], tx: Tx, fence: Fence) -> T:
    await check_fence(tx, fence, hold=True)
    return await unit(tx)
