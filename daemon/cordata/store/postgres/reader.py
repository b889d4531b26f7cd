"""Reads: each unit on one snapshot, never waiting for a writer.

Most reads are one statement, and one statement is a snapshot by itself: it goes without BEGIN and
COMMIT, in one round trip. When a unit turns out to want a second one, it is run again in a
transaction, and its function goes there directly from then on.

A read is planned each time, which may cost more than all the rest of a join. One that runs often
says `-- plan: kept` in its file; it never reads a table through because that was small once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from cordata.errors import CordataError, ReadTimeout, StoreUnavailable
from cordata.store.postgres.alone import Again, Parts, answer, tell
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import CANCELED, ConnectionLost, ServerError
from cordata.store.postgres.silence import Silence
from cordata.store.postgres.transaction import KEEP, Transaction
from cordata.store.postgres.unit import Course, ReadTx
from cordata.store.tx import Unit

T = TypeVar("T")

_ATTEMPTS = 3
#: The server stops a read by itself; one that does not answer then is gone.
_GRACE_S = 1.0
#: So many functions are remembered.
_MANY = 1000
#: Sent with a statement: the server undoes it when both have run, since they are one transaction.
_KEEP = f"SELECT {KEEP}"


class Reader:
    """All reads of one process."""

    def __init__(self, parts: Parts, *, timeout_s: float) -> None:
        self._parts = parts
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._silence = Silence(parts)
        #: Code of units that want more than one statement.
        self._long: set[object] = set()

    async def read(self, unit: Unit[T]) -> T:
        """A unit on a snapshot. Raises: ReadTimeout, StoreUnavailable, its own errors."""
        health = self._parts.health
        if health.state == "unavailable" and (refusal := health.refusal()) is not None:
            raise refusal
        deadline = self._loop.time() + self._timeout_s
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                value: T = await self._attempt(unit, deadline)
                return value
            except Again as again:
                if attempt == _ATTEMPTS:
                    self._parts.failed(again.error)
                    raise again.error from None
            except ReadTimeout:  # the server may be well, and the statement slow
                raise
            except StoreUnavailable as error:
                self._parts.failed(error)
                raise
        raise AssertionError("not reached")

    async def _attempt(self, unit: Unit[Any], deadline: float) -> Any:
        connection = await self._parts.pool.take(deadline)
        ended = False
        try:
            async with self._silence.limit(deadline + _GRACE_S):
                value = await self._run(connection, unit)
                ended = True
                return value
        except StoreUnavailable:
            connection.close()
            raise
        except TimeoutError:
            connection.close()
            raise ReadTimeout(f"a read took longer than {self._timeout_s:g} s") from None
        except _Failed as failed:
            ended = True
            raise failed.error from None
        finally:
            if ended or not connection.busy:
                self._parts.pool.give_back(connection)
            else:  # its caller went away
                self._parts.crew.start(self._clear(connection, deadline))

    async def _run(self, connection: Connection, unit: Unit[Any]) -> Any:
        key = getattr(unit, "__code__", None)
        tx = ReadTx(self._parts.queries, self._parts.time.now_us())
        if not self._parts.connector.prologue.proxied and key not in self._long:
            done, value = await self._guard(tx, connection, lambda: _single(connection, unit, tx))
            if done:
                return value
            if len(self._long) < _MANY:
                self._long.add(key)
            tx = ReadTx(self._parts.queries, self._parts.time.now_us())
        return await self._guard(tx, connection, lambda: self._whole(connection, unit, tx))

    async def _whole(self, connection: Connection, unit: Unit[Any], tx: ReadTx) -> Any:
        transaction = self._parts.begin(connection, "read")
        course = Course(unit, tx)
        try:
            ask = course.step()
            while ask is not None:
                ask = course.step(await answer(transaction, tx, ask))
        finally:
            course.close()
        await transaction.commit()
        return course.value

    async def _guard(
        self, tx: ReadTx, connection: Connection, read: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Run a read; what fails leaves the connection idle or closed. Raises: _Failed."""
        try:
            return await read()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - a unit's failure is its caller's
            if connection.in_transaction:
                await Transaction(connection, self._parts.connector.prologue).roll_back()
            raise _Failed(self._told(error, tx)) from None

    def _told(self, error: BaseException, tx: ReadTx) -> BaseException:
        cause = tx.cause if error is tx.failed else error
        if isinstance(cause, ServerError) and cause.fault.sqlstate == CANCELED:
            return ReadTimeout(f"a read took longer than {self._timeout_s:g} s")
        return tell(error, tx, self._parts)

    async def _clear(self, connection: Connection, deadline: float) -> None:
        """Wait for what is still under way, so that the connection can be used again."""
        try:
            async with asyncio.timeout_at(deadline + _GRACE_S):
                await connection.settle()
            if connection.in_transaction:
                await Transaction(connection, self._parts.connector.prologue).roll_back()
        except (TimeoutError, ConnectionLost):
            connection.close()
        finally:
            self._parts.pool.give_back(connection)


class _Failed(Exception):
    """A read failed with `error`, and its connection was seen to."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


async def _single(connection: Connection, unit: Unit[Any], tx: ReadTx) -> tuple[bool, Any]:
    """Run a unit of at most one statement; (False, None) when it wants more."""
    course = Course(unit, tx)
    try:
        ask = course.step()
        if ask is not None:
            (call,) = ask.calls
            if not call.query.reads:  # a READ ONLY transaction shows whether it does
                return False, None
            try:
                if call.query.kept and connection.prepares:
                    connection.send(_KEEP, keep=True)
                connection.send(call.query.sql, call.args)
                result = (await connection.sync())[-1]
                reply: Any = result.rows() if ask.wants == "rows" else result.count
            except (ServerError, ConnectionLost, CordataError) as error:
                reply = tx.fail(error, call.query.name)
            if course.step(reply) is not None:
                return False, None
        return True, course.value
    finally:
        course.close()
