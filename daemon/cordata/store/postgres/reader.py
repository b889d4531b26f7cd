"""Reads: each unit on one snapshot, never waiting for a writer.

Most reads are one statement, and one statement is a snapshot by itself: it is sent with its
settings, but without BEGIN and COMMIT, in one round trip. If a unit sends a second statement, it
runs again in a transaction, and its function uses a transaction from then on.

A read is planned each time, which may cost more than running a join. A query that runs often has
`-- plan: kept` in its file; its cached plan has no sequential scan from when a table was small.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from cordata.config.sections import StoreConfig
from cordata.errors import ReadTimeout, StoreUnavailable
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import CANCELED, ConnectionLost, ServerError
from cordata.store.postgres.probe import LivenessProbe
from cordata.store.postgres.transaction import Transaction
from cordata.store.postgres.unit import ReadTx, Request, UnitCoroutine, UnitTx
from cordata.store.postgres.unit_runner import GRACE_S, Again, Resources, answer
from cordata.store.tx import Unit

T = TypeVar("T")

_ATTEMPTS = 3


class _SecondStatement(Exception):
    """A unit needs a transaction: it sends more than one statement."""


class Reader:
    """All reads of one process."""

    def __init__(self, resources: Resources, config: StoreConfig) -> None:
        self._resources = resources
        self._timeout_s = config.read_timeout_s
        self._prepared = config.prepared_statements
        self._settings = resources.connector.settings
        self._loop = asyncio.get_running_loop()
        self._liveness = LivenessProbe(resources, resources.connector.connect)
        #: Code objects of units that send more than one statement.
        self._long: set[object] = set()

    async def read(self, unit: Unit[T]) -> T:
        """A unit on a snapshot. Raises: ReadTimeout, StoreUnavailable, its own errors."""
        health = self._resources.health
        deadline = self._loop.time() + self._timeout_s
        key = getattr(unit, "__code__", None)
        attempt = 0
        while True:
            if health.state == "unavailable" and (refusal := health.error()) is not None:
                raise refusal
            alone = not self._settings.proxied and key not in self._long
            try:
                value: T = await self._attempt(unit, deadline, alone=alone)
                return value
            except _SecondStatement:
                self._long.add(key)
            except Again as again:
                attempt += 1
                if attempt == _ATTEMPTS:
                    health.failed(again.error)
                    raise again.error from None
            except ReadTimeout:  # the server may be ok, and only the statement slow
                raise
            except StoreUnavailable as error:
                health.failed(error)
                raise

    async def _attempt(self, unit: Unit[Any], deadline: float, *, alone: bool) -> Any:
        connection = await self._resources.pool.acquire(deadline)
        tx = ReadTx(self._resources.queries, self._resources.clock.now_us())
        limit = asyncio.timeout_at(deadline + GRACE_S)
        try:
            async with limit:
                with self._liveness.watch(connection):
                    return await self._run(connection, UnitCoroutine(unit, tx), alone=alone)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - a unit's failure is its caller's
            if limit.expired() and isinstance(error, TimeoutError):
                connection.close()
                raise self._too_long() from None
            raise self._translate_error(error, tx) from None
        finally:
            if connection.is_clean or connection.lost:
                self._resources.pool.release(connection)
            else:  # it failed in its transaction, or its caller was cancelled
                resetting = self._resources.tasks.start(connection.reset(deadline + GRACE_S))
                resetting.add_done_callback(lambda done: self._resources.pool.release(connection))

    async def _run(self, connection: Connection, coroutine: UnitCoroutine, *, alone: bool) -> Any:
        """Run a unit; `alone`: its first statement, without a transaction.

        Raises: what the unit raised; _SecondStatement.
        """
        transaction = Transaction(connection, self._settings, "read")
        tx = coroutine.tx
        is_first = True

        async def reply(request: Request) -> Any:
            nonlocal is_first
            if not alone:
                return (await answer(transaction, tx, request))[0]
            if not is_first:
                raise _SecondStatement
            is_first = False
            return await self._send_alone(connection, request, tx)

        value = await coroutine.to_end(reply)
        await transaction.commit()
        return value

    async def _send_alone(self, connection: Connection, request: Request, tx: UnitTx) -> Any:
        """The answer to a request. Raises: `tx.failed`."""
        (call,) = request.calls
        kept = call.query.kept_plan and self._prepared
        try:
            # No Sync in between: both are one transaction, and the settings end with it.
            self._settings.send_read(connection, kept=kept)
            connection.send(call.query.sql, call.args, prepare=kept or bool(call.args))
            return request.answer((await connection.sync())[1:])
        except (ServerError, ConnectionLost) as error:
            raise tx.fail(error, call.query.name) from None

    def _translate_error(self, error: BaseException, tx: ReadTx) -> BaseException:
        cause = tx.cause if error is tx.failed else error
        if isinstance(cause, ServerError) and cause.fault.sqlstate == CANCELED:
            return self._too_long()
        return self._resources.translate_error(error, tx)

    def _too_long(self) -> ReadTimeout:
        return ReadTimeout(f"a read took longer than {self._timeout_s:g} s")
