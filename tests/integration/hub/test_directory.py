"""The cache of hotels, accounts and sources, asked by many requests at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.engine.template import template_of
from tests.integration.hub.material import CHAINS
from tests.queries import queries_of
from tests.servers.postgres import PostgresServer

from alpinehub.directory import Directory
from cordata.config.sections import StoreConfig
from cordata.errors import ReadTimeout
from cordata.store import Store, dialect_of, open_store


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(template=template_of(postgres, CHAINS)) as url:
        yield url


class Counted:
    """A store that counts its reads."""

    def __init__(self, store: Store) -> None:
        self.reads = 0
        self._store = store

    async def read(self, unit: Any) -> Any:
        self.reads += 1
        return await self._store.read(unit)


@asynccontextmanager
async def opened(url: str, folder: Path, **settings: Any) -> AsyncIterator[Counted]:
    config = StoreConfig(url=url, **settings)
    queries = queries_of(dialect_of(config), "alpinehub.sql")
    async with await open_store(
        config, state_dir=folder, runtime_dir=folder, queries=queries
    ) as store:
        yield Counted(store)


async def test_requests_share_the_failure_of_a_read_when_the_database_is_slow(
    url: str, tmp_path: Path
) -> None:
    """One after the other, the last of them would wait for as many timeouts."""
    async with opened(url, tmp_path, read_timeout_s=0.5) as store:
        directory = Directory(store)  # type: ignore[arg-type]
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE directory")
            asked = (directory.snapshot() for _ in range(5))
            failed = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in failed] == [ReadTimeout] * 5
        assert store.reads == 1
        found = await asyncio.gather(*(directory.snapshot() for _ in range(5)))
        assert {one.revision for one in found} == {0}
        assert store.reads == 2


async def test_request_reads_when_the_one_that_it_waited_for_was_cancelled(
    url: str, tmp_path: Path
) -> None:
    async with opened(url, tmp_path) as store, asyncio.TaskGroup() as group:
        directory = Directory(store)  # type: ignore[arg-type]
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE directory")
            first, second = (group.create_task(directory.snapshot()) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait((first,))
        assert first.cancelled() and (await second).revision == 0
        assert store.reads == 2
