"""Reads: each unit on one snapshot, never waiting for a writer.

Most reads are one statement, and one statement is a snapshot by itself: it is sent with its
settings, but without BEGIN and COMMIT, in one round trip. If a unit sends a second statement, it
runs again in a transaction, and its function uses a transaction from then on.

A read is planned each time, which may cost more than running a join. A query that runs often has
`-- plan: kept` in its file; its cached plan has no sequential scan from when a table was small.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from cordata.config.sections import StoreConfig
from cordata.errors import ReadTimeout, StoreUnavailable
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import CANCELED, ConnectionLost, ServerError
from cordata.store.postgres.probe import LivenessProbe
from cordata.store.postgres.transaction import Transaction
from cordata.store.postgres.unit import ReadTx, UnitCoroutine
from cordata.store.postgres.unit_runner import Again, Resources, answer
from cordata.store.tx import Unit

T = TypeVar("T")

_ATTEMPTS = 3
#: The server ends a slow read itself; if it does not answer this much later, it is taken for
#: dead.
_GRACE_S = 1.0


class Reader:
    """All reads of one process."""

    def __init__(self, resources: Resources, config: StoreConfig) -> None:
        self._resources = resources
        self._timeout_s = config.read_timeout_s
        self._prepared = config.prepared_statements
        self._settings = resources.connector.settings
        self._loop = asyncio.get_running_loop()
        self._liveness = LivenessProbe(resources)
        #: Code objects of units that send more than one statement.
        self._long: set[object] = set()

    async def read(self, unit: Unit[T]) -> T:
        """A unit on a snapshot. Raises: ReadTimeout, StoreUnavailable, its own errors."""
        health = self._resources.health
        if health.state == "unavailable" and (refusal := health.error()) is not None:
            raise refusal
        deadline = self._loop.time() + self._timeout_s
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                value: T = await self._attempt(unit, deadline)
                return value
            except Again as again:
                if attempt == _ATTEMPTS:
                    self._resources.health.failed(again.error)
                    raise again.error from None
            except ReadTimeout:  # the server may be ok, and only the statement slow
                raise
            except StoreUnavailable as error:
                self._resources.health.failed(error)
                raise
        raise AssertionError("not reached")

    async def _attempt(self, unit: Unit[Any], deadline: float) -> Any:
        connection = await self._resources.pool.acquire(deadline)
        try:
            async with self._liveness.limit(deadline + _GRACE_S):
                return await self._run(connection, unit)
        except StoreUnavailable:
            connection.close()
            raise
        except TimeoutError:
            connection.close()
            raise ReadTimeout(f"a read took longer than {self._timeout_s:g} s") from None
        except _Failed as failed:
            raise failed.error from None
        finally:
            if not connection.busy:
                self._resources.pool.release(connection)
            else:  # its caller was cancelled, or it is lost
                self._resources.tasks.start(self._clear(connection, deadline))

    async def _run(self, connection: Connection, unit: Unit[Any]) -> Any:
        key = getattr(unit, "__code__", None)
        if not self._settings.proxied and key not in self._long:
            tx = self._tx()
            done, value = await self._guard(tx, connection, lambda: self._one(connection, unit, tx))
            if done:
                return value
            self._long.add(key)
        tx = self._tx()
        return await self._guard(tx, connection, lambda: self._several(connection, unit, tx))

    def _tx(self) -> ReadTx:
        return ReadTx(self._resources.queries, self._resources.clock.now_us())

    async def _one(self, connection: Connection, unit: Unit[Any], tx: ReadTx) -> tuple[bool, Any]:
        """Run a unit of at most one statement; (False, None) when it sends a second one."""
        coroutine = UnitCoroutine(unit, tx)
        try:
            request = coroutine.step()
            if request is not None:
                (call,) = request.calls
                kept = call.query.kept_plan and self._prepared
                try:
                    # No Sync in between: both are one transaction, and the settings end with it.
                    self._settings.send_read(connection, kept=kept)
                    connection.send(call.query.sql, call.args, prepare=kept or bool(call.args))
                    reply: Any = request.answer((await connection.sync())[1:])
                except (ServerError, ConnectionLost) as error:
                    reply = tx.fail(error, call.query.name)
                if coroutine.step(reply) is not None:
                    return False, None
            return True, coroutine.value
        finally:
            coroutine.close()

    async def _several(self, connection: Connection, unit: Unit[Any], tx: ReadTx) -> Any:
        """Run a unit in a transaction."""
        transaction = Transaction(connection, self._settings, "read")
        coroutine = UnitCoroutine(unit, tx)
        try:
            request = coroutine.step()
            while request is not None:
                reply = await answer(transaction, tx, request)
                request = coroutine.step(reply if tx.failed is not None else reply[0])
        finally:
            coroutine.close()
        await transaction.commit()
        return coroutine.value

    async def _guard(
        self, tx: ReadTx, connection: Connection, read: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Run a read; after an error the connection is idle or closed. Raises: _Failed."""
        try:
            return await read()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - a unit's failure is its caller's
            if connection.in_transaction:
                await Transaction(connection, self._settings, "read").roll_back()
            raise _Failed(self._judge(error, tx)) from None

    def _judge(self, error: BaseException, tx: ReadTx) -> BaseException:
        cause = tx.cause if error is tx.failed else error
        if isinstance(cause, ServerError) and cause.fault.sqlstate == CANCELED:
            return ReadTimeout(f"a read took longer than {self._timeout_s:g} s")
        return self._resources.judge(error, tx)

    async def _clear(self, connection: Connection, deadline: float) -> None:
        """Wait for the statements under way, so that the connection can be used again."""
        try:
            async with asyncio.timeout_at(deadline + _GRACE_S):
                await connection.settle()
            if connection.in_transaction:
                await Transaction(connection, self._settings, "read").roll_back()
        except (TimeoutError, ConnectionLost):
            connection.close()
        finally:
            self._resources.pool.release(connection)


class _Failed(Exception):
    """A read failed with `error`; its connection is idle or closed."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error
