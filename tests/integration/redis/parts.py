"""Real parts: a Redis, a store, the broker between them, and the primary's reconciler."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.integration.engine.parts import context_of, opened
from tests.integration.redis.stores import PREFIX, url_of

from cordata.broker import Message, Outcome, Want
from cordata.broker.redis.address import parse_url
from cordata.broker.redis.broker import RedisBroker
from cordata.broker.redis.reconciler import Reconciler
from cordata.broker.redis.server import RedisServer
from cordata.broker.redis.stream import Keys
from cordata.core.delivery import Verdict
from cordata.errors import BrokerUnavailable
from cordata.services.primary import Leadership
from cordata.services.reconciler import ReconcilerService
from cordata.store import Store

WINDOW_S = 86_400.0
_numbers = itertools.count()


@dataclass(slots=True)
class RedisParts:
    """A broker on Redis and what belongs to it."""

    store: Store
    broker: RedisBroker
    reconciler: Reconciler

    async def relay_all(self) -> int:
        """Publish whatever is due."""
        count = 0
        while published := (await self.broker.relay(100)).published:
            count += published
        return count

    async def claim(self, group: str, limit: int = 100, owner: str = "me") -> list[Message]:
        """Claim for one group."""
        return list((await self.broker.exchange(owner, [], {group: Want(live=limit)})).messages)

    async def finish(self, messages: Sequence[Message], owner: str = "me") -> None:
        """They were handled, by code that wrote nothing."""
        await self.settle(messages, Verdict.DONE, owner)

    async def settle(
        self, messages: Sequence[Message], verdict: Verdict, owner: str = "me"
    ) -> None:
        """What became of them."""
        outcomes = [
            Outcome(group=m.group, id=m.id, verdict=verdict, event_id=m.event_id) for m in messages
        ]
        await self.broker.exchange(owner, outcomes, {})


def server_of(url: str, *, timeout_s: float = 5.0, password: str | None = None) -> RedisServer:
    """A server of the tests, as a process reaches it."""
    return RedisServer(parse_url(url), password=password, timeout_s=timeout_s)


def broker_of(
    store: Store, url: str, *, owner: str = "", claim_timeout_s: float = 60.0
) -> RedisBroker:
    """A broker of one process, with a name of its own."""
    return RedisBroker(
        store,
        server_of(url),
        Keys(PREFIX),
        owner=owner or f"process-{next(_numbers)}",
        claim_timeout_s=claim_timeout_s,
    )


@asynccontextmanager
async def on_redis(state: Path, *, claim_timeout_s: float = 60.0) -> AsyncIterator[RedisParts]:
    """A broker whose Redis (`stores.use`) the primary has looked through once."""
    url = url_of(state)
    async with opened(state) as store:
        broker = broker_of(store, url, claim_timeout_s=claim_timeout_s)
        reconciler = Reconciler(store, server_of(url), Keys(PREFIX), window_s=WINDOW_S)
        await reconciler.run_once()
        try:
            yield RedisParts(store, broker, reconciler)
        finally:
            broker.close()
            reconciler.close()


@asynccontextmanager
async def keeping(
    store: Store, url: str, *, password: str | None = None, timeout_s: float = 5.0
) -> AsyncIterator[ReconcilerService]:
    """The primary's reconciler while inside; it has looked through Redis once if that is there."""
    leadership = Leadership()
    leadership.begin(context_of(store))

    def make(fenced: Store) -> Reconciler:
        server = server_of(url, password=password, timeout_s=timeout_s)
        return Reconciler(fenced, server, Keys(PREFIX), window_s=WINDOW_S)

    reconciler = make(store)
    with suppress(BrokerUnavailable):
        await reconciler.run_once()
    reconciler.close()
    service = ReconcilerService(leadership, make)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run(stop))
        try:
            yield service
        finally:
            stop.set()
