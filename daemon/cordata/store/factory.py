"""Opens the store of a `[store] url`; imports only the modules that this store needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cordata.config.sections import StoreConfig
from cordata.errors import ConfigError
from cordata.store.queries import Queries
from cordata.store.runtime_store import RuntimeStore

if TYPE_CHECKING:
    from cordata.store.postgres.store import PostgresStore
    from cordata.store.sqlite.store import SqliteStore

_DIALECTS = {"sqlite:": "sqlite", "postgresql:": "postgres", "postgres:": "postgres"}


def dialect_of(config: StoreConfig) -> str:
    """The folder of a store's SQL files. Raises: ConfigError for an unknown scheme; it does not
    quote the url, which may contain a password.
    """
    for scheme, dialect in _DIALECTS.items():
        if config.url.startswith(scheme):
            return dialect
    raise ConfigError(
        "[store] url is not the address of a store",
        hint='use "sqlite:", "sqlite:///path/to/file.db" or "postgresql://user@host/database"',
    )


def store_class(config: StoreConfig) -> type[SqliteStore] | type[PostgresStore]:
    """The class of a store; imports its driver. Call it before the process changes its user.

    Raises: ConfigError.
    """
    if dialect_of(config) == "postgres":
        from cordata.store.postgres.store import PostgresStore

        return PostgresStore
    from cordata.store.sqlite.store import SqliteStore

    return SqliteStore


def check_url(config: StoreConfig, state_dir: Path) -> None:
    """Check that `[store] url` is valid. Raises: ConfigError."""
    if dialect_of(config) == "postgres":
        from cordata.store.postgres.address import check

        check(config)
    else:
        from cordata.store.sqlite.connection import database_path

        database_path(config.url, state_dir)


def missing_file(config: StoreConfig, state_dir: Path) -> Path | None:
    """The file that opening the store would create in an existing directory; None: it creates none.

    None also if there was a store before: then opening it raises. Raises: ConfigError.
    """
    if dialect_of(config) == "postgres":
        return None
    from cordata.store.sqlite.connection import Database, database_path

    database = Database(database_path(config.url, state_dir))
    try:
        names = os.listdir(database.path.parent)
        was_there = database.lock_path.name in names and database.lock_path.stat().st_size > 0
    except OSError:
        return None  # opening it raises
    return None if was_there or database.path.name in names else database.path


async def open_store(
    config: StoreConfig,
    *,
    state_dir: Path,
    runtime_dir: Path,
    queries: Queries,
    password: str | None = None,
) -> RuntimeStore:
    """Open the store of a configuration; `password` is for PostgreSQL.

    Raises: ConfigError for a bad url, StoreUnavailable.
    """
    if dialect_of(config) == "postgres":
        from cordata.store.postgres.store import PostgresStore

        return await PostgresStore.open(config, queries=queries, password=password)
    from cordata.store.sqlite.store import SqliteStore

    return await SqliteStore.open(
        config,
        state_dir=state_dir,
        runtime_dir=runtime_dir,
        queries=queries,
    )
