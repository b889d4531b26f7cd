"""A connection that is made again when it was lost, with a pause that grows."""

from __future__ import annotations

import asyncio
import random

from cordata import clock
from cordata.broker.redis.connection import Connection
from cordata.broker.redis.dial import Dialer, Reach
from cordata.core.retry import next_delay_s
from cordata.errors import BrokerUnavailable

_FIRST_S, _LONGEST_S = 0.1, 2.0
#: At least this much of a pause, or many processes would call a server that just starts.
_LEAST = 0.25


class Link:
    """One way to Redis of one process: while that is away, at most one attempt per pause."""

    def __init__(self, dialer: Dialer, reach: Reach) -> None:
        self._dialer = dialer
        self._reach = reach
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._failures = 0
        self._reason = ""
        self._next_deadline = 0.0

    @property
    def connection(self) -> Connection | None:
        """The connection, when there is a good one."""
        return self._connection if self._connection and not self._connection.lost else None

    @property
    def pause_s(self) -> float:
        """Seconds until a call makes the next attempt to connect."""
        return max(0.0, self._next_deadline - clock.monotonic())

    async def ready(self) -> Connection:
        """The connection, made if there is none. Raises: BrokerUnavailable."""
        if (connection := self.connection) is not None:
            return connection
        async with self._lock:
            if (connection := self.connection) is not None:
                return connection
            if self.pause_s > 0.0:
                raise BrokerUnavailable(self._reason)
            return await self._connect()

    async def _connect(self) -> Connection:
        try:
            connection = await self._dialer.connect()
        except BrokerUnavailable as error:
            self._failures += 1
            share = _LEAST + (1.0 - _LEAST) * random.random()
            pause_s = next_delay_s(self._failures, share, first_s=_FIRST_S, longest_s=_LONGEST_S)
            self._next_deadline = clock.monotonic() + pause_s
            self._reason = str(error)
            self._reach.failed(error)
            raise
        self._failures = 0
        self._connection = connection
        self._reach.succeeded()
        return connection

    def close(self) -> None:
        """Close the connection; the next call makes a new one."""
        if self._connection is not None:
            self._connection.abort("closed")
            self._connection = None
