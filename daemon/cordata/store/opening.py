"""Which store a `[store] url` means; what only one of them needs is imported for that one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cordata.config.sections import StoreConfig
from cordata.store.contract import Store
from cordata.store.health import OnState
from cordata.store.queries import Queries

if TYPE_CHECKING:
    from cordata.store.sqlite.store import SqliteStore


def dialect_of(config: StoreConfig) -> str:
    """The folder of the SQL files for a store."""
    return "sqlite"


def store_class(config: StoreConfig) -> type[SqliteStore]:
    """The class, with its driver imported. Who is going to change users calls this before."""
    from cordata.store.sqlite.store import SqliteStore

    return SqliteStore


async def open_store(
    config: StoreConfig,
    *,
    state_dir: Path,
    runtime_dir: Path,
    queries: Queries,
    on_state: OnState | None = None,
) -> Store:
    """Open the store of a configuration. Raises: ConfigError for a bad url, StoreUnavailable."""
    return await store_class(config).open(
        config,
        state_dir=state_dir,
        runtime_dir=runtime_dir,
        queries=queries,
        on_state=on_state,
    )
