"""Everything a worker's subscriptions need of the streams: what is there, what comes, the goodbye.

The life of one entry, by the fields of a Consumer in which it is:

    read ──> arrived ─────────────────────> handler ──done──> hands.done ──XACK──> gone
      │                                       ↑  │                ↑  ↑   └─in another name─┐
      └─may have been handled before─┐        │  └─failed, back─> store  │             unsettled
                                     ↓        │                          │                 ↓
    answer lost ─> missed_answer ─> doubtful ─┴─handled already──────────┘             seen-mark

Who moves it: `Sentry` and `_read` read, `adopt` reads again what is in our name, `collect` hands
out, `sift` asks the store about what is doubtful, `settle` moves to the store what goes on there.
From the read to `settle` it is in `hands` as well, and renewed. A group that Redis has lost is in
`misses` until `Making` has made it anew.

Of another process (`reads` is false) `scan.held` puts into `hands` what is in its name; `settle`
takes that over, moves it to the store, and it is acknowledged in our name.

The connection for commands is kept up in the background while somebody listens, so that a Redis
which does not answer never holds up what comes from the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from cordata.broker.message import Message, Outcome, Want, back
from cordata.broker.redis import scan
from cordata.broker.redis.connection import Command, Connection
from cordata.broker.redis.dial import Dialer, Reach
from cordata.broker.redis.link import Link
from cordata.broker.redis.making import Making
from cordata.broker.redis.naming import Keys
from cordata.broker.redis.reading import Consumer
from cordata.broker.redis.registry import Knowledge, load
from cordata.broker.redis.sentry import Sentry
from cordata.broker.redis.settling import Settling
from cordata.core.outbox import BACKFILL, LIVE
from cordata.errors import BrokerUnavailable, StoreUnavailable, TransientError
from cordata.log import logger
from cordata.store import Store

log = logger("cordata.redis")


class Front:
    """Of one process."""

    def __init__(
        self,
        store: Store,
        dialer: Dialer,
        reach: Reach,
        link: Link,
        keys: Keys,
        *,
        owner: str,
        claim_timeout_s: float,
    ) -> None:
        #: What the store knows of Redis.
        self.known = Knowledge()
        self._store = store
        self._dialer = dialer
        self._reach = reach
        self._link = link
        self._keys = keys
        self._timeout_s = dialer.timeout_s
        self._owner = owner
        self._claim_timeout_s = claim_timeout_s
        self._settling = Settling(store, link, reach, timeout_s=dialer.timeout_s)
        self._consumers: dict[str, Consumer] = {}
        self._making = Making(store, keys, timeout_s=dialer.timeout_s)
        #: The connection on which nothing is missing.
        self._prepared: Connection | None = None
        self._listening = False
        self._sentry_tasks: list[asyncio.Task[None]] = []

    def register(self, groups: Mapping[str, str]) -> None:
        """These read streams: group -> event type."""
        self._making.register(groups)

    def consumer(self, name: str) -> Consumer:
        """The consumer of a process; another one's, to settle what it left."""
        if (consumer := self._consumers.get(name)) is None:
            consumer = self._consumers[name] = Consumer(
                name, self._keys, reliever=self._owner, claim_timeout_s=self._claim_timeout_s
            )
        return consumer

    def forget_others(self, holders: Collection[str]) -> None:
        """Keep nothing of processes that hold nothing any more."""
        for name in self._consumers.keys() - {*holders, self._owner}:
            if not self._consumers[name].reads:
                del self._consumers[name]

    @property
    def trouble(self) -> str:
        """Why Redis, though it answers, does not let us read everything; "" when it does."""
        return self._making.trouble

    async def learn(self) -> None:
        """Read what the store knows. Raises: StoreUnavailable."""
        self.known = await self._store.read(load)
        for consumer in self._consumers.values():
            await self._arm_anew(consumer)

    async def _arm_anew(self, consumer: Consumer) -> None:
        """Sentries that wait for fewer streams than there are now."""
        outdated = consumer.arm_anew(self.known)
        connection = self._link.connection
        if connection is not None:
            try:
                await self._unblock(connection, outdated)
            except BrokerUnavailable as error:
                self._reach.failed(error)

    async def _unblock(self, connection: Connection, client_ids: Sequence[int]) -> None:
        """Let sentries begin anew, for what they wait for now. Raises: BrokerUnavailable."""
        if client_ids:
            commands = [("CLIENT", "UNBLOCK", client_id) for client_id in client_ids]
            await connection.call(*commands, timeout_s=self._timeout_s)

    def could_read(self, name: str, groups: Collection[str]) -> list[str]:
        """Those of the groups that an exchange may bring something for."""
        consumer = self.consumer(name)
        doubtful = {taken.message.group for taken in consumer.doubtful}
        up = not self._listening or self._link.connection is not None
        owes = consumer.hands.owes
        return [
            group
            for group in groups
            if consumer.arrived.get(group)
            or group in doubtful
            or (up and self._may_have(group) and (owes or not consumer.watches(group, self.known)))
        ]

    def _may_have(self, group: str) -> bool:
        """Whether there is a stream to read for it, or may be."""
        if group not in self._making.types or self._making.pauses(group):
            return False
        return bool(self.known.streams_of(group)) or self._making.is_due()

    async def settle(self, name: str, outcomes: Sequence[Outcome]) -> None:
        """Note what is done, and move the rest to the store. Raises: StoreUnavailable."""
        await self._settling.settle(self.consumer(name), outcomes)

    async def exchange(self, name: str, wanted: Mapping[str, Want]) -> list[Message]:
        """Acknowledge, and bring what is wanted. Raises nothing: what is away comes later."""
        consumer = self.consumer(name)
        try:
            connection = self._link.connection if self._listening else await self._link.ready()
            if connection is not None:
                await self._prepare(consumer, connection)
                await self._read(consumer, connection, wanted)
        except BrokerUnavailable as error:
            self._reach.failed(error)
        except TransientError as error:
            log.debug("streams are not read: %s", error)
        found = consumer.collect(wanted)
        try:
            await self._settling.mark_unsettled(consumer)
            found += await self._settling.sift(consumer, wanted, self.known)
        except TransientError as error:
            log.debug("what was delivered before is not looked up: %s", error)
        await self._acknowledge(consumer)
        return [taken.message for taken in found]

    async def _acknowledge(self, consumer: Consumer) -> None:
        """What was found to be done already: nothing may come for long that it could go with."""
        connection = self._link.connection
        if connection is None or not consumer.hands.owes:
            return
        try:
            await consumer.exchange(connection, {}, self.known, self._timeout_s)
        except BrokerUnavailable as error:
            self._reach.failed(error)

    async def _read(
        self, consumer: Consumer, connection: Connection, wanted: Mapping[str, Want]
    ) -> None:
        open_ = {group: w for group, w in wanted.items() if not self._making.pauses(group)}
        reads = consumer.reads_of(open_, self.known)
        there = {group: consumer.there(group) for group in reads}
        await consumer.exchange(connection, reads, self.known, self._timeout_s)
        if consumer.misses:
            self.known = await self._making.restore(connection, consumer.misses)
            consumer.misses.clear()
        outdated: list[int] = []
        for group, want in reads.items():
            got = consumer.there(group) - there[group]
            backfill = max(want.backfill - got[BACKFILL], 0)
            if self._making.pauses(group):
                continue
            if got[LIVE] < want.live:
                consumer.arm(group, Want(want.live - got[LIVE], backfill), self.known)
            elif backfill and consumer.passes_by(group, self.known):
                outdated += consumer.widen(group, backfill, self.known)
        await self._unblock(connection, outdated)

    async def _prepare(self, consumer: Consumer, connection: Connection) -> None:
        """On a new connection: the groups exist, and answers that were lost are made up for."""
        if connection is not self._prepared or self._making.is_due():
            self.known = await self._making.make(connection)
        if connection is not self._prepared:
            self._prepared = connection
            # Whatever Redis went through, it may have brought back what we once held. All are told:
            # the first to come here may be one of whom only something is taken back.
            for one in self._consumers.values():
                one.missed_answer = one.reads
        if consumer.missed_answer:
            consumer.missed_answer = False  # a sentry may miss one meanwhile
            groups = self._making.types
            if not await consumer.adopt(connection, groups, self.known, self._timeout_s):
                consumer.missed_answer = True

    async def renew(self, name: str) -> None:
        """Keep what a process holds in its name. Raises nothing."""
        await self._settling.renew(self.consumer(name))

    async def listen(self, name: str, groups: Collection[str], ring: Callable[[], None]) -> None:
        """Until cancelled: wait for entries; `ring` when there are some or Redis is back."""
        consumer = self.consumer(name)
        self._listening = True
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hold(ring))
            for group in groups:
                sentry = Sentry(
                    consumer,
                    group,
                    Link(self._dialer, self._reach),
                    lambda: self.known,
                    ring,
                    timeout_s=self._timeout_s,
                )
                consumer.sentries[group] = sentry
                self._sentry_tasks.append(tasks.create_task(sentry.run()))

    async def _hold(self, ring: Callable[[], None]) -> None:
        """Keep the connection for commands up."""
        while True:
            try:
                connection = await self._link.ready()
            except BrokerUnavailable:
                await asyncio.sleep(max(self._link.pause_s, 0.01))
                continue
            ring()
            await connection.closed.wait()

    async def quiet(self, name: str) -> None:
        """Read no more: what was read and not handed out goes back. Raises nothing."""
        consumer = self.consumer(name)
        connection = self._link.connection
        try:
            if connection is not None:
                # Not by closing them: Redis might give them an entry before it notices.
                ids = [s.client_id for s in consumer.sentries.values() if s.client_id]
                kills: list[Command] = [("CLIENT", "KILL", "ID", client_id) for client_id in ids]
                if kills:
                    await connection.call(*kills, timeout_s=self._timeout_s)
        except BrokerUnavailable as error:
            self._reach.failed(error)
        for task in self._sentry_tasks:
            task.cancel()
        consumer.sentries.clear()
        try:
            if connection is not None:
                await consumer.adopt(connection, self._making.types, self.known, self._timeout_s)
        except BrokerUnavailable as error:
            self._reach.failed(error)
        left = [taken.message for taken in consumer.unread()]
        try:
            await self.settle(name, [back(message) for message in left])
        except StoreUnavailable as error:
            log.warning("%d messages stay in the name of %s: %s", len(left), name, error)

    async def leave(self, name: str) -> None:
        """Acknowledge the last, and remove the consumer. Raises nothing."""
        consumer = self.consumer(name)
        try:
            connection = await self._link.ready()
            await consumer.exchange(connection, {}, self.known, self._timeout_s)
            own = [mark for mark in self.known.marks if mark.group in self._making.types]
            await scan.forget(connection, self._keys, own, [name], timeout_s=self._timeout_s)
        except BrokerUnavailable as error:
            self._reach.failed(error)
            await self._settling.give_up(consumer)
