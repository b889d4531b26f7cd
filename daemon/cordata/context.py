"""Context: what the runtime hands to the application's functions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from cordata import clock
from cordata.store import Chain, Store, Tx
from cordata.vault import Vault


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The runtime as the application sees it; one per process."""

    store: Store
    #: Seals and opens secrets with the master key.
    vault: Vault
    #: Sections of cordata.toml that the application declared, by name.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: The migrations that this code needs.
    chains: tuple[Chain, ...] = ()
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("cordata.app"))

    def now_us(self) -> int:
        """Wall time in microseconds since the epoch."""
        return clock.now_us()

    async def schema_current(self) -> bool:
        """Whether every migration that this code needs is applied. Raises: StoreUnavailable."""
        return await self.store.schema_current(self.chains)

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        """A transaction of its own for code that awaits other things between its writes.

        It takes the write lock at its first write and holds it for `transaction_timeout_s` at
        most. Prefer `store.run(unit)`, which shares its commit with others.
        """
        return self.store.transaction()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventContext(Context):
    """The Context of one message in one consumer group."""

    group: str
    event_id: str

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        """As `Context.transaction`; the message's seen-mark commits with it: one effect, once."""
        return self.store.transaction(seen=(self.group, self.event_id))
