"""Every broker, ready to use: the suite runs against each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.engine.parts import opened
from tests.integration.redis.parts import on_redis
from tests.integration.redis.stores import REDIS_KINDS

from cordata.broker import Broker, Message, StoreBroker, Want
from cordata.store import Store


@dataclass(frozen=True, slots=True)
class Parts:
    """A broker and the store whose outbox it relays."""

    store: Store
    broker: Broker
    #: Whether the store has a row per message that is not handled, and a mark for each that is.
    in_store: bool = True

    async def relay_all(self) -> int:
        """Publish whatever is due."""
        count = 0
        while published := (await self.broker.relay(100)).published:
            count += published
        return count

    async def claim(self, group: str, limit: int = 100, owner: str = "me") -> list[Message]:
        """Claim for one group."""
        return list((await self.broker.exchange(owner, [], {group: Want(live=limit)})).messages)


@asynccontextmanager
async def on_store(state: Path) -> AsyncIterator[Parts]:
    """The store's own tables, in the store that the directory is prepared for."""
    async with opened(state) as store:
        yield Parts(store, StoreBroker(store, claim_timeout_s=60.0))


@asynccontextmanager
async def beside_store(state: Path) -> AsyncIterator[Parts]:
    """Redis, beside the store that the directory is prepared for."""
    async with on_redis(state) as parts:
        yield Parts(parts.store, parts.broker, in_store=False)


BROKERS: dict[str, Callable[[Path], AbstractAsyncContextManager[Parts]]] = {
    "postgres": on_store,
    "sqlite": on_store,
    **{name: beside_store for name in REDIS_KINDS},
}
