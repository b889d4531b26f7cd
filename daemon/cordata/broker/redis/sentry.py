"""Waits for one group's next entries in a blocking read, on a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cordata import clock
from cordata.broker.message import Want
from cordata.broker.redis.connection import Connection, Refused
from cordata.broker.redis.link import Link
from cordata.broker.redis.reading import Consumer
from cordata.broker.redis.registry import Knowledge
from cordata.errors import BrokerUnavailable

#: How long a blocking read lasts without anything to read; with more groups than this longer, so
#: that an idle worker sends one command per second at most.
_BLOCK_S = 10.0
#: Until a read that was refused is tried again.
_REFUSED_S = 1.0


class Sentry:
    """Armed by the consumer when a group has nothing to read; disarmed by what comes."""

    def __init__(
        self,
        consumer: Consumer,
        group: str,
        link: Link,
        known: Callable[[], Knowledge],
        ring: Callable[[], None],
        *,
        timeout_s: float,
    ) -> None:
        """`ring`: called when something has arrived."""
        self._consumer = consumer
        self._group = group
        self._link = link
        self._known = known
        self._ring = ring
        self._timeout_s = timeout_s
        self._armed = asyncio.Event()
        #: Whose entries it waits for.
        self.keys: list[str] = []
        self.want = Want(live=0)

    @property
    def armed(self) -> bool:
        """Whether it waits, or is about to."""
        return self._armed.is_set()

    @property
    def client_id(self) -> int:
        """Its connection, as Redis numbers them; 0 without one."""
        connection = self._link.connection
        return connection.client_id if connection else 0

    def arm(self, keys: list[str], want: Want) -> None:
        """Wait for entries of these streams; of each one as many at most as are wanted."""
        if keys:
            self.keys, self.want = keys, want
            self._armed.set()

    async def run(self) -> None:
        """Wait whenever it is armed, until cancelled."""
        try:
            while True:
                await self._armed.wait()
                try:
                    await self._wait(await self._link.ready())
                except BrokerUnavailable:
                    self._consumer.missed_answer = True
                    await asyncio.sleep(max(self._link.pause_s, 0.01))
        finally:
            self._link.close()

    async def _wait(self, connection: Connection) -> None:
        block_s = max(_BLOCK_S, float(len(self._consumer.sentries)))
        begun = clock.monotonic()
        count = min(self.want.live, self.want.backfill or self.want.live)
        (reply,) = await connection.call(
            (
                *("XREADGROUP", "GROUP", self._group, self._consumer.name, "COUNT", count),
                *("BLOCK", int(block_s * 1000), "STREAMS", *self.keys, *">" * len(self.keys)),
            ),
            timeout_s=block_s + self._timeout_s,
        )
        if reply is None:
            return
        self._armed.clear()
        self._consumer.take(self._group, reply, connection, self._known(), since=begun)
        if isinstance(reply, Refused) and reply.kind != "NOGROUP":
            await asyncio.sleep(_REFUSED_S)
        self._ring()
