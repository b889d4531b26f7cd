"""Every broker, ready to use: the suite runs against each."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.integration.engine.parts import opened, registered
from tests.integration.redis.parts import RETRIES, PromptBroker, on_redis
from tests.integration.redis.stores import REDIS_KINDS

from cordata.broker import Broker, ClaimLimit, Message, Outcome, Queue
from cordata.core.message_state import Verdict
from cordata.metrics.backlog import GroupBacklog, read_backlog
from cordata.services.idle_exit import is_left
from cordata.store import Store

#: Makes the broker of a process: its name, the retries of its groups, those that want key order.
Make = Callable[[str, Mapping[str, int], Collection[str]], Broker]


async def _nothing() -> None:
    pass


@dataclass(slots=True)
class Parts:
    """A store, and the brokers of processes that handle its events."""

    store: Store
    make: Make
    #: What is published and has not reached the consumers' broker yet goes there.
    arrive: Callable[[], Awaitable[None]] = _nothing
    #: "store" or "redis": what the groups are registered with.
    kind: Literal["store", "redis"] = "store"
    #: With Redis: its own registration, before that of the store.
    prepare: Callable[..., Awaitable[None]] | None = None
    #: With Redis: whether each pass of a process relays, too, as in a worker.
    relays: bool = False
    keyed: frozenset[str] = frozenset()
    groups: dict[str, str] = field(default_factory=dict)
    #: What each group may fail before it is dead.
    retries: int = RETRIES
    _processes: dict[str, Broker] = field(default_factory=dict)

    async def register(
        self, groups: Mapping[str, str], *, keyed: Iterable[str] = (), retries: int = RETRIES
    ) -> None:
        """Make groups known (group -> event type), before any process is asked for."""
        self.retries = retries
        self.keyed |= frozenset(keyed)
        self.groups |= groups
        if self.prepare is not None:
            await self.prepare(groups, keyed=self.keyed, retries=retries)
        else:
            await registered(self.store, groups, keyed=self.keyed)

    def process(self, name: str = "me") -> Broker:
        """The broker of a process."""
        if name not in self._processes:
            retries = dict.fromkeys(self.groups, self.retries)
            self._processes[name] = self.make(name, retries, self.keyed)
        return self._processes[name]

    async def claim(
        self,
        group: str,
        count: int = 100,
        owner: str = "me",
        *,
        low: int | None = None,
        run: int = 1,
        suspect_allowed: bool = False,
    ) -> list[Message]:
        """Claim for one group; again when the first one only told that there is something."""
        await self.arrive()
        wants = {group: ClaimLimit(count=count, low=count if low is None else low, run=run)}
        claimed = await self.process(owner).settle_and_claim(
            [], wants, suspect_allowed=suspect_allowed
        )
        due = claimed.next_at is not None and claimed.next_at <= self.store.now_us()
        if not claimed.messages and (due or suspect_allowed):
            claimed = await self.process(owner).settle_and_claim(
                [], wants, suspect_allowed=suspect_allowed
            )
        return list(claimed.messages)

    async def settle(
        self, messages: Iterable[Message], verdict: Verdict, owner: str = "me", *, delay_us: int = 0
    ) -> None:
        """What became of them."""
        outcomes = [outcome(message, verdict, delay_us=delay_us) for message in messages]
        await self.process(owner).settle_and_claim(outcomes, {})

    async def backlog(self, group: str) -> GroupBacklog:
        """What waits for a group."""
        backlog = await self.store.read(read_backlog)
        return next(one for one in backlog.groups if one.group == group)

    async def is_left(self, group: str) -> bool:
        """Whether something is left to handle for a group."""
        return is_left(await self.store.read(read_backlog), [group])

    def close(self) -> None:
        """Close what the processes opened."""
        for one in self._processes.values():
            one.close()


def outcome(message: Message, verdict: Verdict, *, delay_us: int = 0) -> Outcome:
    """Of an attempt; a failed one is its history."""
    failed = verdict in (Verdict.RETRY, Verdict.DEAD)
    failures = [*json.loads(message.history or "[]"), {"attempt": message.attempt, "error": "E: x"}]
    history = json.dumps(failures) if failed else None
    return Outcome(message=message, verdict=verdict, delay_us=delay_us, history=history)


@asynccontextmanager
async def on_store(state: Path) -> AsyncIterator[Parts]:
    """The store's own tables, in the store that the directory is prepared for."""
    async with opened(state) as store:

        def make(name: str, retries: Mapping[str, int], keyed: Collection[str]) -> Broker:
            return Queue(store, owner=name, retries=retries, keyed=keyed)

        yield Parts(store, make)


@asynccontextmanager
async def on_streams(state: Path) -> AsyncIterator[Parts]:
    """Redis, beside the store that the directory is prepared for."""
    async with on_redis(state) as redis:

        def make(name: str, retries: Mapping[str, int], keyed: Collection[str]) -> Broker:
            broker = redis.broker(name)
            assert isinstance(broker, PromptBroker)
            broker.relays = parts.relays
            return broker

        async def arrive() -> None:
            if not parts.relays:
                await redis.relay_all()
            for broker in redis.brokers.values():
                broker._look_deadline = 0.0

        parts = Parts(redis.store, make, arrive, kind="redis", prepare=redis.register)
        yield parts


BROKERS: dict[str, Callable[[Path], AbstractAsyncContextManager[Parts]]] = {
    "postgres": on_store,
    "sqlite": on_store,
    **dict.fromkeys(REDIS_KINDS, on_streams),
}
