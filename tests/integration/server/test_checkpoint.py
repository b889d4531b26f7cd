"""The checkpoint service folds a grown log back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.integration.engine.parts import publish, runtime_of, until

from cordata.config.sections import StoreConfig
from cordata.services.checkpoint import CheckpointService
from cordata.store import Queries, Store
from cordata.store.migrate import RUNTIME
from cordata.store.sqlite.store import SqliteStore

LIMIT_BYTES = 65_536


@asynccontextmanager
async def grown(state: Path) -> AsyncIterator[Store]:
    """A store whose log is over its limit."""
    store = await SqliteStore.open(
        # One writer alone would fold it back at four times the limit.
        StoreConfig(wal_limit_bytes=LIMIT_BYTES),
        state_dir=state,
        runtime_dir=runtime_of(state),
        queries=Queries.load([], "sqlite"),
    )
    async with store:
        await store.migrate((RUNTIME,))
        while store.stats().wal_bytes <= LIMIT_BYTES:
            await publish(store, 20)
        yield store


async def test_log_is_folded_back_when_it_has_grown(tmp_path: Path) -> None:
    async with grown(tmp_path) as store:
        service, stop = CheckpointService(store), asyncio.Event()

        async with asyncio.TaskGroup() as group:
            group.create_task(service.run(stop))
            await until(lambda: store.stats().wal_bytes <= LIMIT_BYTES)
            stop.set()
