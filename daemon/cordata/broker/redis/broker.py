"""The broker on Redis: streams for the first delivery, the store for everything else.

    outbox ──relay──> stream ──read──> handler ──done──> acknowledged
       │                                  └──failed, given back, its process died──> message (store)
       └──groups that want key order──────────────────────────────────────────────> message (store)

A message that goes well costs the store nothing but what its handler writes. Whatever else may
happen to it (further attempts, back-off, dead letters, an operator's replay) is the store broker's,
in the same tables and with the same commands as without Redis: it is written there first, then
acknowledged here. Who stops gives back what it has not begun in the same way.

Redis may lose anything at any time: see reconciler.py. While it is unavailable, what is in the
store goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from cordata import clock
from cordata.broker import Broker, Claimed, Depth, Due, Held, Message, Outcome, Relayed, Want, claim
from cordata.broker.direct import Taker
from cordata.broker.message import NOTHING, PERHAPS
from cordata.broker.redis.consumer import Consumer
from cordata.broker.redis.publisher import Publisher
from cordata.broker.redis.server import RedisServer
from cordata.broker.redis.stream import Keys
from cordata.broker.settle import STREAM_TOPIC
from cordata.broker.store import StoreBroker
from cordata.core.outbox import LIVE
from cordata.errors import BrokerUnavailable
from cordata.log import logger
from cordata.store import OUTBOX_TOPIC, Fence, Store, Tx

log = logger("cordata.redis")

_WAIT_S = 3600.0
#: Without a wake-up the store is looked at this often.
_LOOK_S = 5.0
#: A look at who holds what takes one command per stream and group: none of them more often.
_SCAN_S = 2.0


class RedisBroker(Broker):
    """Of one process; `owner` is its id as a relay."""

    outbox_topic = OUTBOX_TOPIC
    stream_topic = STREAM_TOPIC

    def __init__(
        self, store: Store, server: RedisServer, keys: Keys, *, owner: str, claim_timeout_s: float
    ) -> None:
        self._store = store
        self._server = server
        self._owner = owner
        self._claim_timeout_s = claim_timeout_s
        self._inner = StoreBroker(store, claim_timeout_s=claim_timeout_s)
        self._publisher = Publisher(
            store, server, keys, owner=owner, claim_timeout_s=claim_timeout_s
        )
        self._consumer = Consumer(store, server, keys, owner=owner, claim_timeout_s=claim_timeout_s)
        #: What the store holds for groups, as far as was looked.
        self._due: dict[str, Due] = {}
        self._look_deadline = 0.0
        self._is_listening = False
        self._scan_deadline = 0.0
        #: Knows what this process has in hand.
        self._taker: Taker | None = None

    def status(self) -> str:
        """For STATUS=: what is wrong, "" when nothing is."""
        reason = self._server.reason or self._publisher.trouble or self._consumer.trouble
        return f"Redis: {reason}" if reason else ""

    async def register(
        self,
        groups: Mapping[str, str],
        *,
        keyed: Collection[str] = (),
        fence: Fence | None = None,
    ) -> None:
        """As `Broker.register`; in Redis they are made when it is there."""
        await self._inner.register(groups, keyed=keyed, fence=fence)
        self._consumer.register({g: type for g, type in groups.items() if g not in keyed})

    async def relay(self, limit: int) -> Relayed:
        """As `Broker.relay`. Raises: BrokerUnavailable, StoreUnavailable."""
        return await self._publisher.relay(limit)

    async def outbox_due_at(self) -> int | None:
        """As `Broker.outbox_due_at`."""
        return await self._inner.outbox_due_at()

    async def due_at(self, groups: Iterable[str]) -> dict[str, Due]:
        """As `Broker.due_at`; PERHAPS where a read of a stream may bring something."""
        names = tuple(groups)
        if clock.monotonic() >= self._look_deadline:
            await self._look(names)
        now_us = self._store.now_us()
        found: dict[str, Due] = {}
        for name in names:
            due = _sooner(self._due.get(name), self._consumer.due_of(self._owner, name), now_us)
            if due != NOTHING or name in self._due:
                found[name] = due
        return found

    async def _look(self, groups: Collection[str]) -> None:
        """See what the store has, and what it knows of Redis."""
        if self._is_listening:  # else nobody would tell
            self._look_deadline = clock.monotonic() + _LOOK_S
        try:
            self._due = await self._inner.due_at(groups)
            await self._consumer.load_state()
        except BaseException:
            self._look_deadline = 0.0
            raise

    async def exchange(
        self, owner: str, outcomes: Sequence[Outcome], wanted: Mapping[str, Want]
    ) -> Claimed:
        """As `Broker.exchange`. While Redis is away it brings what is in the store."""
        await self._consumer.settle(owner, [one for one in outcomes if isinstance(one.id, str)])
        stored = [one for one in outcomes if isinstance(one.id, int)]
        if clock.monotonic() >= self._look_deadline and wanted:
            await self._look(tuple(wanted))
        messages, next_at = await self._from_store(owner, stored, wanted)
        left = {group: _less(want, group, messages) for group, want in wanted.items()}
        # From here on nothing may fail: what was claimed would be in nobody's hands.
        found = await self._consumer.exchange(owner, left)
        for group, want in left.items():
            if want.live and sum(one.group == group for one in found) >= want.live:
                due = next_at.get(group, NOTHING)
                next_at[group] = due._replace(live=self._store.now_us())
        return Claimed(messages=[*messages, *found], next_at=next_at)

    async def _from_store(
        self, owner: str, outcomes: Sequence[Outcome], wanted: Mapping[str, Want]
    ) -> tuple[Sequence[Message], dict[str, Due]]:
        """Settle and claim what is there, if anything is: a unit of its own costs a commit."""
        now_us = self._store.now_us()
        due = {g: w for g, w in wanted.items() if self._due.get(g, NOTHING).is_due(now_us)}
        if outcomes or due:
            claimed = await self._inner.exchange(owner, outcomes, due)
            for group in due:
                self._due[group] = claimed.next_at.get(group, NOTHING)
            messages = claimed.messages
        else:
            messages = ()
        return messages, {group: self._due[group] for group in wanted if group in self._due}

    async def renew(self, owner: str) -> None:
        """As `Broker.renew`. A store that is away keeps nobody from renewing in Redis."""
        await self._consumer.renew(owner)
        known = self._taker.known() if self._taker is not None else None
        stored = known is None or any(isinstance(id, int) for _, id in known)
        if stored or self._inner.doubts():
            await self._inner.renew(owner)

    async def listen(self, owner: str, groups: Collection[str], ring: Callable[[], None]) -> None:
        """As `Broker.listen`."""
        self._is_listening = True
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ring_at_topic(ring))
            tasks.create_task(self._consumer.listen(ring))

    async def _ring_at_topic(self, ring: Callable[[], None]) -> None:
        while True:
            if await self._store.wait(STREAM_TOPIC, _WAIT_S):
                self._look_deadline = 0.0
                ring()

    def bring(self, taker: Taker) -> None:
        """As `Broker.bring`: nothing is brought, but the store may hold what nobody knows of."""
        self._taker = taker
        self._inner.bring(taker)

    def doubts(self) -> bool:
        """As `Broker.doubts`."""
        return self._inner.doubts()

    async def quiet(self, owner: str) -> None:
        """As `Broker.quiet`."""
        await self._consumer.quiet(owner)

    async def leave(self, owner: str) -> None:
        """As `Broker.leave`."""
        await self._consumer.leave(owner)

    async def owners(self, dead: Collection[str] = ()) -> dict[str, bool]:
        """As `Broker.owners`. The streams are looked at if somebody is dead, or now and then."""
        found = await self._inner.owners()
        if self._is_listening and not dead and clock.monotonic() < self._scan_deadline:
            return found
        streams = await self._consumer.stream_groups()
        period_s = max(self._claim_timeout_s / 3, _SCAN_S * len(streams))
        self._scan_deadline = clock.monotonic() + period_s
        try:
            holders = await self._consumer.holders()
        except BrokerUnavailable:
            self._scan_deadline = 0.0
            return found
        return {
            name: found.get(name, False) or holders.get(name, False) for name in found | holders
        }

    async def held(self, owner: str, *, limit: int) -> list[Held]:
        """As `Broker.held`."""
        found = await self._inner.held(owner, limit=limit)
        if len(found) < limit:
            try:
                found += await self._consumer.held_by(owner, limit=limit - len(found))
            except BrokerUnavailable as error:
                log.debug("what %s holds in Redis is not known: %s", owner, error)
        return found

    async def forget(self, owner: str) -> bool:
        """As `Broker.forget`: not while anything is in its name."""
        try:
            return await self._consumer.forget(owner)
        except BrokerUnavailable:
            return False

    async def take_entries_back(self, dead: Collection[str]) -> int:
        """As `Broker.take_entries_back`."""
        holders = await self._store.read(claim.owners)
        now_us = self._store.now_us()
        if not any(until < now_us or name in dead for name, until in holders.items()):
            return 0
        return await self._store.run(lambda tx: claim.take_back(tx, dead))

    async def depth(self, groups: Iterable[str]) -> Depth:
        """As `Broker.depth`, though messages move meanwhile. Raises: BrokerUnavailable.

            outbox ──> stream ──> nowhere any more, or `message` in the store
               ^          │
               └──────────┘  what handlers publish

        The store before the stream misses what is moved on to it meanwhile, the stream before the
        store what comes from the outbox. So the store is looked at twice, and if anything has gone
        from the outbox to a stream in between, something may be left.
        """
        names = tuple(groups)
        top = await self._store.read(_top)
        before = await self._inner.depth(names)
        relaying = bool(await self._store.read(claim.owners))
        waiting, claimed = await self._consumer.backlog(names)
        after = await self._inner.depth(names)
        relaying = relaying or bool(await self._store.read(claim.owners))
        moved = top != await self._store.read(_top)
        return Depth(
            outbox=before.outbox or after.outbox or relaying or moved,
            ready=before.ready or after.ready or waiting,
            claimed=before.claimed or after.claimed or claimed,
            dead=after.dead,
        )

    def given_up(self) -> int:
        """As `Broker.given_up`."""
        return self._publisher.given_up_count

    def close(self) -> None:
        """Close all connections."""
        self._server.close()


async def _top(tx: Tx) -> int:
    """The highest position that an entry got in a stream."""
    row = await tx.fetch_one("redis.top")
    return row["position"] or 0 if row is not None else 0


def _sooner(stored: Due | None, streamed: Due, now_us: int) -> Due:
    """For each lane: what the store has to be claimed now, PERHAPS of a stream, or later."""
    if stored is None:
        return streamed
    lanes = zip(stored, streamed, strict=True)
    return Due(*(s if p is None or (s is not None and s <= now_us) else PERHAPS for s, p in lanes))


def _less(want: Want, group: str, messages: Sequence[Message]) -> Want:
    """What is wanted beside what the store brought: no backfill if it brought anything live."""
    live = sum(one.group == group and one.lane == LIVE for one in messages)
    some_live = any(one.lane == LIVE for one in messages)
    return Want(live=max(want.live - live, 0), backfill=0 if some_live else want.backfill)
