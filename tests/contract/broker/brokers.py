"""Every broker, ready to use: the suite runs against each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.engine.parts import opened

from cordata.broker import Message, StoreBroker, Want
from cordata.store import Store


@dataclass(frozen=True, slots=True)
class Parts:
    """A broker and the store whose outbox it relays."""

    store: Store
    broker: StoreBroker

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


BROKERS: dict[str, Callable[[Path], AbstractAsyncContextManager[Parts]]] = {
    "postgres": on_store,
    "sqlite": on_store,
}
