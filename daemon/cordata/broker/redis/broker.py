"""The broker on Redis: streams for the first delivery, the store for everything else.

    message of the group `redis` ──relay──> stream ──read──> handler ──done──> acknowledged
                                                               └─failed, given back─> message
                                                                                     (store)

A message that succeeds at once costs the store only its mark and the handler's writes; its event
also costs a message of the relay, and a row of `redis_sent`. Everything else (further attempts,
back-off, dead letters, an operator's replay, events with a priority, keyed groups, messages that a
stopping worker gives back) uses the queue on the store, with the same tables and commands as
without Redis.

Redis may lose anything at any time: see reconciler.py. While it is unavailable, messages of the
store are still handled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError

from cordata import clock
from cordata.broker.contract import Broker
from cordata.broker.message import (
    Claimed,
    ClaimLimit,
    ClaimLimits,
    Message,
    MessageId,
    Outcome,
)
from cordata.broker.queue import Queue
from cordata.broker.redis.consumer import Consumer
from cordata.broker.redis.pending import move_claims
from cordata.broker.redis.relay import LOOK_S, Relay
from cordata.broker.redis.server import RedisServer
from cordata.broker.redis.state import NEW, REDIS_TOPIC, load, make_groups
from cordata.broker.redis.stream import Keys
from cordata.core.message_state import Verdict
from cordata.errors import BrokerUnavailable, StoreUnavailable
from cordata.log import logger
from cordata.store import Store, published_topic, watch

log = logger("cordata.redis")


class RedisBroker(Broker):
    """The broker of one process; `queue` is its queue on the store."""

    def __init__(
        self, store: Store, queue: Broker, server: RedisServer, keys: Keys, *, owner: str
    ) -> None:
        self._store = store
        self._queue = queue
        self._server = server
        self._keys = keys
        self._consumer = Consumer(store, server, keys, name=owner)
        # A queue of its own: what `queue` remembers of its groups is not true of the relay's group.
        claims = Queue(store, owner=owner, retries={})
        self.relay = Relay(store, claims, server, keys)
        #: Groups of which the last claim left nothing in the store; and those that may have
        #: messages with a priority below 0 there, for which that claim had no room.
        self._none_in_store: set[str] = set()
        self._may_be_low: set[str] = set()
        #: As the last claim said.
        self._next_at: int | None = None
        self._suspects = False
        self._look_deadline = 0.0
        self._is_stopping = False

    def status(self) -> str:
        """As in Broker."""
        reason = self._server.reason or self.relay.trouble
        return f"Redis: {reason}" if reason else ""

    async def prepare(self, groups: Mapping[str, str]) -> None:
        """Before groups (group -> event type) are registered to read streams.

        Those that are new exist in Redis before the first event is published for them. If Redis is
        not available, and for those that it has lost, the primary makes them.
        """
        self._consumer.register(groups)
        state = await self._store.read(load)
        new = {group: type for group, type in groups.items() if state.groups.get(group) != type}
        try:
            await make_groups(self._server, self._keys, new, start=NEW)
        except (BrokerUnavailable, ResponseError) as error:
            log.info("the primary makes groups in Redis later: %s", error)

    async def listen(
        self, groups: Mapping[str, str], wake: Callable[[], None], look: Callable[[], None]
    ) -> None:
        """As in Broker."""

        def wake_for_store() -> None:
            self._look_deadline = 0.0
            wake_for_relay()

        def wake_for_relay() -> None:
            self.relay.wake()
            wake()

        def relay_again() -> None:
            self.relay.wake()
            look()

        streamed = {name for name in groups if self._consumer.reads(name)}
        stored = {name: type for name, type in groups.items() if name not in streamed}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.listen(stored, wake_for_store, look))
            for type in {groups[name] for name in streamed}:
                tasks.create_task(watch(self._store, published_topic(type), wake_for_relay))
            tasks.create_task(self.relay.keep_recording(relay_again))
            tasks.create_task(self._consumer.listen(wake, look))
            tasks.create_task(self._consumer.keep_connected(relay_again))
            tasks.create_task(self._consumer.keep_marking(look))

    async def settle_and_claim(
        self, outcomes: Sequence[Outcome], limits: ClaimLimits, *, suspect_allowed: bool = False
    ) -> Claimed:
        """As in Broker. While Redis is unavailable it claims messages of the store only."""
        streamed = [one for one in outcomes if one.message.is_from_stream]
        await self._consumer.settle(streamed)
        if any(one.verdict is not Verdict.DONE for one in streamed):
            self._look_deadline = 0.0  # they are in the store now, due at some time
        stored = [one for one in outcomes if not one.message.is_from_stream]
        claimed = await self._from_store(stored, limits, suspect_allowed=suspect_allowed)
        left = {group: _left(limit, group, claimed.messages) for group, limit in limits.items()}
        if claimed.suspects and (
            not suspect_allowed or any(message.suspect for message in claimed.messages)
        ):
            left.clear()  # nothing is claimed beside a suspect, or while one waits for this process
        # From here on nothing may raise: claimed messages would wait until they are given back as
        # orphans.
        relayed, found = await self._relay_and_read(left)
        more = {group for group in left if self._consumer.may_have(group)}
        return Claimed(
            messages=[*claimed.messages, *found],
            more=claimed.more | more,
            next_at=min(filter(None, (claimed.next_at, self.relay.due_at()))),
            suspects=claimed.suspects,
            relayed=relayed,
        )

    async def _relay_and_read(self, left: dict[str, int]) -> tuple[int | None, list[Message]]:
        """Relay, acknowledge and read: one round trip, if nothing else was left to read.

        Returns how many messages the relay claimed (None: it did not look), and those that were
        read: `left` new ones of each group at most, and the doubtful ones. Raises nothing.
        """
        found: list[Message] = []

        async def add_and_read(pipe: Pipeline, types: Collection[str]) -> list[Any]:
            replies, messages = await self._consumer.execute_and_read(pipe, types, left)
            found.extend(messages)
            return replies

        relayed = None if self._is_stopping else await self.relay.run_if_due(add_and_read)
        found += await self._consumer.read(left)
        return relayed, found

    async def _from_store(
        self, outcomes: Sequence[Outcome], limits: ClaimLimits, *, suspect_allowed: bool
    ) -> Claimed:
        """Settle and claim in the store, if there may be anything: it costs a commit."""
        now = clock.monotonic()
        if limits and now >= self._look_deadline:
            self._look_deadline = now + LOOK_S
            self._none_in_store.clear()
            await self._consumer.load_state()
        wanted = {
            group: limit
            for group, limit in limits.items()
            if group not in self._none_in_store or (limit.low and group in self._may_be_low)
        }
        if not outcomes and not wanted:
            next_at = self._next_at if limits else None
            return Claimed(messages=(), next_at=next_at, suspects=self._suspects)
        claimed = await self._queue.settle_and_claim(
            outcomes, wanted, suspect_allowed=suspect_allowed
        )
        self._next_at, self._suspects = claimed.next_at, claimed.suspects
        if not claimed.suspects:  # while one waits, other messages may have been left there
            self._none_in_store = (self._none_in_store | wanted.keys()) - claimed.more
            for group, limit in wanted.items():
                (self._may_be_low.discard if limit.low else self._may_be_low.add)(group)
        if claimed.next_at is not None:
            due_in_s = (claimed.next_at - self._store.now_us()) / 1e6
            self._look_deadline = min(self._look_deadline, now + max(due_in_s, 0.0))
        return claimed

    async def give_back_orphans(self, held: Collection[MessageId]) -> None:
        """As in Broker."""
        await self._queue.give_back_orphans({*held, *self.relay.held})
        await self._consumer.give_back_orphans(held)

    async def reclaim(self, owner: str, *, is_dead: bool) -> int:
        """As in Broker. Its pending entries move to the store first; or later, by the primary, if
        Redis is unavailable, or it is not certain that the process is dead.
        """
        if is_dead:
            state = await self._store.read(load)
            places = self._store, self._server, self._keys
            try:
                await move_claims(*places, state.groups, name=owner)
            except (BrokerUnavailable, ResponseError) as error:
                log.debug("what %s held in Redis is reclaimed later: %s", owner, error)
        count = await self._queue.reclaim(owner, is_dead=is_dead)
        self._store.notify(REDIS_TOPIC)
        return count

    def stop_claiming(self) -> Sequence[Message]:
        """As in Broker. What is published from here on is relayed by another process, or by the
        next one.
        """
        self._is_stopping = True
        return self._consumer.stop_claiming()

    async def leave(self) -> None:
        """As in Broker."""
        # What fails here is reclaimed when this process is gone.
        with contextlib.suppress(BrokerUnavailable, StoreUnavailable):
            await self.relay.record_sent()
        with contextlib.suppress(StoreUnavailable):
            await self.relay.settle_failed()
        await self._consumer.leave()
        await self._queue.leave()

    def close(self) -> None:
        """As in Broker."""
        self._server.close()
        self._queue.close()


def _left(limit: ClaimLimit, group: str, messages: Sequence[Message]) -> int:
    """How many more messages than those from the store a group may claim."""
    return limit.count - sum(one.group == group and one.priority >= 0 for one in messages)
