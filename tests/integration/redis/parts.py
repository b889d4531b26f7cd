"""Real parts: a Redis, a store, the broker between them, and the primary's reconciler."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from msgspec.structs import replace
from tests.integration.engine.parts import opened
from tests.integration.redis.stores import PREFIX, url_of
from tests.processes import joined

from cordata import clock
from cordata.broker import Claimed, ClaimLimit, ClaimLimits, Message, Outcome, Queue
from cordata.broker.group import RELAY, Group, catch_up, register
from cordata.broker.redis.address import parse_url
from cordata.broker.redis.broker import RedisBroker
from cordata.broker.redis.reconciler import Reconciler
from cordata.broker.redis.relay import Relay
from cordata.broker.redis.server import RedisServer
from cordata.broker.redis.stream import Keys
from cordata.core.message_state import Verdict
from cordata.errors import BrokerUnavailable
from cordata.services.reconciler import ReconcilerService
from cordata.store import Store

#: Of each group.
RETRIES = 5
_numbers = itertools.count()


def server_of(url: str, *, timeout_s: float = 5.0, password: str | None = None) -> RedisServer:
    """A server of the tests, as a process reaches it."""
    return RedisServer(parse_url(url), password=password, timeout_s=timeout_s)


class PromptBroker(RedisBroker):
    """One without the loops of `listen`: it looks itself for entries, and marks at once."""

    #: Whether each pass relays, as in a worker; else only a test does.
    relays = False

    async def settle_and_claim(
        self, outcomes: Sequence[Outcome], limits: ClaimLimits, *, suspect_allowed: bool = False
    ) -> Claimed:
        with suppress(BrokerUnavailable):
            await self._server.connect()
        self._consumer._note_unread(None)
        self.relay._deadline = 0.0 if self.relays else clock.monotonic() + 1e6
        await self._consumer.settle([one for one in outcomes if one.message.is_from_stream])
        await self._consumer.mark()
        claimed = await super().settle_and_claim(outcomes, limits, suspect_allowed=suspect_allowed)
        if not self.relays:
            return claimed
        await self.relay.record_sent()
        return replace(claimed, next_at=self._next_at)  # not of the relay's next look


def broker_of(
    store: Store,
    url: str,
    *,
    owner: str = "",
    keyed: Collection[str] = (),
    retries: Mapping[str, int] = MappingProxyType({}),
    timeout_s: float = 5.0,
    kind: type[RedisBroker] = RedisBroker,
) -> RedisBroker:
    """A broker of one process, with a name of its own."""
    owner = owner or f"process-{next(_numbers)}"
    queue = Queue(store, owner=owner, retries=retries, keyed=keyed)
    server = server_of(url, timeout_s=timeout_s)
    return kind(store, queue, server, Keys(PREFIX), owner=owner)


def reconciler_of(store: Store, url: str) -> Reconciler:
    """The primary's."""
    return Reconciler(store, server_of(url), Keys(PREFIX))


async def relay_once(relay: Relay) -> int:
    """One pass of a relay, without reading; then what it added is recorded."""
    await relay._server.connect()
    done = await relay.run_once(lambda pipe, _: relay._server.execute(pipe))
    await relay.record_sent()
    return done


@dataclass(slots=True)
class RedisParts:
    """A store and a Redis; brokers of processes, made when they are first used."""

    store: Store
    url: str
    reconciler: Reconciler
    keyed: set[str] = field(default_factory=set)
    groups: dict[str, str] = field(default_factory=dict)
    brokers: dict[str, RedisBroker] = field(default_factory=dict)
    retries: dict[str, int] = field(default_factory=dict)

    def broker(self, name: str) -> RedisBroker:
        """That of a process."""
        if name not in self.brokers:
            # On a busy machine this process alone may need more than the 5 s that are the default.
            self.brokers[name] = broker_of(
                self.store,
                self.url,
                owner=name,
                keyed=self.keyed,
                retries=self.retries,
                timeout_s=60.0,
                kind=PromptBroker,
            )
            self.brokers[name]._consumer.register(self.groups)
        return self.brokers[name]

    async def process(self, name: str = "me") -> RedisBroker:
        """That of a process that lives, and has its groups."""
        await joined(self.store, name)
        await self.broker(name).prepare(self.groups)
        return self.broker(name)

    async def register(
        self, groups: Mapping[str, str], *, keyed: Collection[str] = (), retries: int = RETRIES
    ) -> None:
        """Make groups known, as a worker does."""
        self.retries |= dict.fromkeys(groups, retries)
        self.keyed |= set(keyed)
        self.groups |= {name: type for name, type in groups.items() if name not in self.keyed}
        await self.process()
        wanted = [
            Group(name, type, name in self.keyed, _kind(name, keyed))
            for name, type in groups.items()
        ]
        await catch_up(self.store, await register(self.store, [Group(RELAY, "*"), *wanted]))

    async def relay_all(self, name: str = "me") -> int:
        """Relay whatever is due."""
        relay, count = (await self.process(name)).relay, 0
        while done := await relay_once(relay):
            count += done
        return count

    async def claim(self, group: str, count: int = 100, owner: str = "me") -> list[Message]:
        """Claim for one group."""
        broker = await self.process(owner)
        broker._look_deadline = 0.0
        return list(
            (
                await broker.settle_and_claim([], {group: ClaimLimit(count=count, low=count)})
            ).messages
        )

    async def claim_alone(self, group: str, owner: str = "me") -> list[Message]:
        """Claim a suspect, which takes a process that holds nothing: the first claim says so."""
        broker, wants = await self.process(owner), {group: ClaimLimit(count=10, low=10)}
        broker._look_deadline = 0.0
        await broker.settle_and_claim([], wants)
        return list((await broker.settle_and_claim([], wants, suspect_allowed=True)).messages)

    async def settle(
        self,
        messages: Sequence[Message],
        verdict: Verdict = Verdict.DONE,
        owner: str = "me",
        *,
        delay_us: int = 0,
    ) -> None:
        """What became of them; those that are done wrote nothing."""
        outcomes = [Outcome(message=m, verdict=verdict, delay_us=delay_us) for m in messages]
        await (await self.process(owner)).settle_and_claim(outcomes, {})

    def close(self) -> None:
        """Close all connections."""
        self.reconciler.close()
        for broker in self.brokers.values():
            broker.close()


def _kind(name: str, keyed: Collection[str]) -> Literal["store", "redis"]:
    return "store" if name in keyed else "redis"


@asynccontextmanager
async def on_redis(state: Path) -> AsyncIterator[RedisParts]:
    """A store whose Redis (`stores.use`) the primary has looked through once."""
    url = url_of(state)
    async with opened(state) as store:
        parts = RedisParts(store, url, reconciler_of(store, url))
        await parts.reconciler.run_once()
        try:
            yield parts
        finally:
            parts.close()


@asynccontextmanager
async def keeping(
    store: Store, url: str, *, password: str | None = None, timeout_s: float = 5.0
) -> AsyncIterator[ReconcilerService]:
    """The primary's reconciler while inside; it has looked through Redis once if that is there."""
    server = server_of(url, password=password, timeout_s=timeout_s)
    reconciler = Reconciler(store, server, Keys(PREFIX))
    with suppress(BrokerUnavailable):
        await reconciler.run_once()
    service = ReconcilerService(store, reconciler)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run(stop))
        try:
            yield service
        finally:
            stop.set()
