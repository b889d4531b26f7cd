"""Opens what every process of an application needs: the store, the vault, a Context of both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cordata.app import App
from cordata.config import Config
from cordata.context import Context
from cordata.errors import ConfigError
from cordata.store import Chain, Queries, Store
from cordata.store.migrate import RUNTIME
from cordata.store.queries import sql_folder
from cordata.systemd import Credentials
from cordata.vault import MASTER_KEY, Vault

#: Of the SQL files; the embedded store is the only one today.
DIALECT = "sqlite"


def chains_of(app: App) -> tuple[Chain, ...]:
    """The migration chains of a process: the runtime's own, then the application's."""
    return (RUNTIME, *(Chain(app.name, package) for package in app.migration_packages))


def read_vault(config: Config) -> Vault:
    """The vault with the master key, read while this process may still read it.

    Raises: ConfigError when there is a key and it cannot be used.
    """
    return Vault(Credentials(config.paths.credentials).read(MASTER_KEY))


def smtp_login(config: Config) -> tuple[str, str] | None:
    """User and password of the mail server; None when there are none. Raises: ConfigError."""
    credentials = Credentials(config.paths.credentials)
    user, password = credentials.text("smtp-user"), credentials.text("smtp-password")
    return (user, password) if user and password else None


@asynccontextmanager
async def open_context(
    config: Config, app: App, *, vault: Vault | None = None
) -> AsyncIterator[Context]:
    """The store and the rest of a Context; closed at the end.

    Raises: ConfigError, StoreUnavailable.
    """
    vault = vault or read_vault(config)
    store = await Store.open(
        config.store,
        state_dir=config.paths.state,
        runtime_dir=config.paths.runtime,
        queries=Queries.load(app.query_packages, DIALECT),
    )
    async with store:
        yield Context(store=store, vault=vault, settings=config.settings, chains=chains_of(app))


def check_app(app: App) -> None:
    """What a start would stumble over, without a store: SQL files and their names.

    Raises: ConfigError with every problem.
    """
    problems: list[str] = []
    for chain in chains_of(app):
        try:
            sql_folder(chain.package, DIALECT)
        except ConfigError as error:
            problems.extend(error.problems)
    try:
        Queries.load(app.query_packages, DIALECT)
    except ConfigError as error:
        problems.extend(problem for problem in error.problems if problem not in problems)
    if problems:
        raise ConfigError(*problems)
