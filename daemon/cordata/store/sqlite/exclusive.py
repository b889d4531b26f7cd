"""Blocking calls on the write connection, alone: migrations and checkpoints."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from cordata.errors import CordataError, StoreUnavailable
from cordata.store.sqlite.connection import WriteConnection
from cordata.store.sqlite.crew import Hand, Job
from cordata.store.sqlite.lock import Turn

T = TypeVar("T")


class Exclusive:
    """The way to the write connection for what is not a unit of work."""

    def __init__(self, connection: WriteConnection, turn: Turn, hand: Hand) -> None:
        self._connection = connection
        self._turn = turn
        self._hand = hand
        self._loop = asyncio.get_running_loop()

    def call(self, call: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a blocking call with the write connection in the thread, under the write lock.

        Cancelling the future leaves the call to its end; the lock is given back in any case.
        """
        future: asyncio.Future[T] = self._loop.create_future()

        def failed(error: CordataError) -> None:
            if not future.done():
                future.set_exception(error)

        def ready() -> None:
            if future.done():
                self._turn.release()
                return
            try:
                connection = self._connection.ready()
            except StoreUnavailable as error:
                self._turn.release()
                failed(error)
                return
            self._hand.submit(lambda: call(connection), ended)

        def ended(job: Job[T]) -> None:
            self._connection.roll_back()
            error = job.error
            if isinstance(error, sqlite3.Error):
                self._connection.discard()
                error = self._connection.told(error, "writing")
            self._turn.release()
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(job.result())

        self._turn.request(ready, failed)
        return future
