"""Stores to begin with, migrated once in a process: to migrate one takes longer than most tests."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.queries import queries_of
from tests.servers.postgres import PostgresServer

from cordata.config.sections import StoreConfig
from cordata.store import Chain, dialect_of, open_store

_FILE = "cordata.db"
_made: dict[tuple[Chain, ...], bytes] = {}
_templates: dict[tuple[PostgresServer, tuple[Chain, ...]], str] = {}


async def begin(folder: Path, url: str, chains: Sequence[Chain]) -> None:
    """Give a folder without a store one that has these chains; only the embedded kind."""
    file = folder / _FILE
    if url != "sqlite:" or file.exists():
        return
    key = tuple(chains)
    if key not in _made:
        made_in = Path(tempfile.mkdtemp())
        try:
            await migrate(made_in, url, chains)
            _made[key] = (made_in / _FILE).read_bytes()
        finally:
            shutil.rmtree(made_in)
    file.write_bytes(_made[key])


def template_of(server: PostgresServer, chains: Sequence[Chain]) -> str:
    """Name of a database that has these chains, to be copied: the server copies its files in less
    than half of the processor time that the migrations take.
    """
    key = (server, tuple(chains))
    if key not in _templates:
        name = server.create_database()
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(migrate(Path(folder), server.url(name), chains))
        _templates[key] = name
    return _templates[key]


async def migrate(folder: Path, url: str, chains: Sequence[Chain]) -> None:
    """Bring the store of a folder up to date, and close it."""
    config = StoreConfig(url=url)
    queries = queries_of(dialect_of(config))
    async with await open_store(
        config, state_dir=folder, runtime_dir=folder, queries=queries
    ) as store:
        await store.migrate(chains)
