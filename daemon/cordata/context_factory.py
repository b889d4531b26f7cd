"""Creates what each process of an application needs: store, vault, Context, queue, pool client."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cordata.app import App
from cordata.config import Config
from cordata.config.pool import DEFAULT_POOL, PoolConfig, pool_of_command
from cordata.config.sections import BrokerConfig, EngineConfig
from cordata.context import Context
from cordata.errors import ConfigError, CordataError, PermanentError, StoreUnavailable, is_transient
from cordata.metrics.process import ProcessMetrics, outcomes_by
from cordata.metrics.series import CALLS, WAITING_UNITS
from cordata.pool.client.lazy_client import LazyClient
from cordata.registry import Handler
from cordata.store import Chain, Queries, Store, check_url, dialect_of, missing_file, open_store
from cordata.store.migrate import RUNTIME, SchemaError
from cordata.store.migrate import load as load_migrations
from cordata.systemd import Credentials
from cordata.vault import MASTER_KEY, Vault

if TYPE_CHECKING:
    from cordata.broker import Queue
    from cordata.broker.factory import Passwords
    from cordata.broker.group import Group
    from cordata.pool.client.client import Client
    from cordata.pool.shared.protocol import CommandOptions

#: Shortest token of the status page: nobody can guess it.
_TOKEN_CHARS = 20


def chains_of(app: App) -> tuple[Chain, ...]:
    """The migration chains of a process: the runtime's own, then the application's."""
    package = app.migration_package
    return (RUNTIME,) if package is None else (RUNTIME, Chain(app.name, package))


def read_vault(config: Config) -> Vault:
    """The vault with the credential `master-key`, or without a key if there is none.

    Raises: ConfigError when the key is not valid.
    """
    return Vault(Credentials(config.paths.credentials).read(MASTER_KEY))


def smtp_login(config: Config) -> tuple[str, str] | None:
    """User and password for the mail server; None unless both are set. Raises: ConfigError."""
    credentials = Credentials(config.paths.credentials)
    user, password = credentials.text("smtp-user"), credentials.text("smtp-password")
    return (user, password) if user and password else None


def store_password(config: Config) -> str | None:
    """The password for the store's server; None when there is none. Raises: ConfigError."""
    return Credentials(config.paths.credentials).text("store-password")


def broker_passwords(config: Config) -> Passwords:
    """The passwords for Redis and its Sentinels, if there are any. Raises: ConfigError."""
    from cordata.broker.factory import Passwords

    credentials = Credentials(config.paths.credentials)
    return Passwords(credentials.text("redis-password"), credentials.text("sentinel-password"))


def status_token(config: Config) -> str:
    """The credential of the status page. Raises: ConfigError when it is missing or too short."""
    token = Credentials(config.paths.credentials).text("status-token") or ""
    if len(token) < _TOKEN_CHARS:
        wrong = f"is shorter than {_TOKEN_CHARS} characters" if token else "is missing"
        raise ConfigError(
            f"[status] listen: the credential status-token {wrong}",
            hint="`cordata credentials init status-token` creates it; then restart the workers",
        )
    return token


def missing_state(config: Config) -> Path | None:
    """The directory of the embedded store, if it does not exist yet; else None."""
    state = config.paths.state
    return state if config.store.url == "sqlite:" and not state.exists() else None


def make_state(config: Config) -> None:
    """Create the directory of the embedded store, readable by this user only.

    Does nothing while its parent is missing, too: a disk may be mounted there later. Raises:
    StoreUnavailable when creating it failed for now; ConfigError when it cannot be created.
    """
    state = missing_state(config)
    if state is None or not state.parent.is_dir():
        return
    try:
        state.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        text = f"[paths] state {state} cannot be created: {error.strerror}"
        if is_transient(error):
            raise StoreUnavailable(text) from error
        hint = "create it for the service's user, or set another directory"
        raise ConfigError(text, hint=hint) from error


@asynccontextmanager
async def open_context(
    config: Config,
    app: App,
    *,
    vault: Vault | None = None,
    password: str | None = None,
    make: bool = True,
    metrics: ProcessMetrics | None = None,
) -> AsyncIterator[Context]:
    """The store and the rest of a Context; closed at the end.

    `vault` and `password`: those that were read before the process changed its user; None: read
    them now. `make`: create an embedded store that does not exist. `metrics`: where commits and
    calls are counted. Raises: CordataError when there is none and `make` is False; ConfigError;
    StoreUnavailable.
    """
    from cordata.broker.factory import check_url as check_broker_url

    check_broker_url(config.broker)
    if vault is None:
        vault, password = read_vault(config), store_password(config)
    if not make and (path := missing_file(config.store, config.paths.state)) is not None:
        raise CordataError(
            f"there is no store yet: no file {path}",
            hint="start primary.service (or `cordata server`), which creates it; "
            "if it runs already, pass its directory or its configuration",
        )
    store = await open_store(
        config.store,
        state_dir=config.paths.state,
        runtime_dir=config.paths.runtime,
        queries=Queries.load(app.query_packages, dialect_of(config.store)),
        password=password,
    )
    if metrics is not None:
        store.observe_commits(metrics.commits())
        metrics.watch(WAITING_UNITS.series(), lambda: store.waiting)
    lazy_client = make_lazy_client(config, app, metrics)
    async with store:
        try:
            yield Context(
                store=store,
                vault=vault,
                settings=config.settings,
                chains=chains_of(app),
                lazy_client=lazy_client,
            )
        finally:
            await lazy_client.close()


def make_lazy_client(config: Config, app: App, metrics: ProcessMetrics | None = None) -> LazyClient:
    """The client of this host's pool. It connects at its first use."""

    def make() -> Client:
        from cordata.pool.client.client import Client

        options, pools = command_options(app), pools_of(config)
        counted = outcomes_by("command", app.commands, CALLS, metrics)
        return Client(pool_directory(config), pools=pools, options=options, metrics=counted)

    return LazyClient(make)


def command_options(app: App) -> dict[str, CommandOptions]:
    """The options of each command, as declared by `@app.command`."""
    from cordata.pool.shared.protocol import CommandOptions

    return {
        name: CommandOptions(task.timeout_s, task.idempotent, task.retries)
        for name, task in app.commands.items()
    }


def call_timeout_s(config: Config, command: str) -> float:
    """The default timeout of a call to a command."""
    pools = config.pools
    return pools.get(pool_of_command(pools, command), config.pool).call_timeout_s


def pools_of(config: Config) -> dict[str, PoolConfig]:
    """All pools by name, the default one first."""
    return {DEFAULT_POOL: config.pool, **config.pools}


def metrics_directory(config: Config) -> Path:
    """The directory with the counters of the processes of this host."""
    return config.paths.runtime / "metrics"


def pool_directory(config: Config) -> Path:
    """The directory below which the children of all pools listen."""
    return config.paths.runtime / "pool"


def groups_of(config: BrokerConfig, handlers: Sequence[Handler]) -> list[Group]:
    """The consumer groups of an application. Keyed groups use the store, also with Redis."""
    from cordata.broker.factory import is_store
    from cordata.broker.group import RELAY, Group

    if is_store(config):
        return [Group(one.group, one.type, one.key) for one in handlers]
    return [
        Group(RELAY, "*"),
        *(Group(one.group, one.type, one.key, "store" if one.key else "redis") for one in handlers),
    ]


def make_queue(
    store: Store, handlers: Sequence[Handler], engine: EngineConfig, *, owner: str
) -> Queue:
    """The queue on the store, as the process `owner` sees it."""
    from cordata.broker import Queue
    from cordata.core.retry import Backoff

    return Queue(
        store,
        owner=owner,
        retries={one.group: one.retries for one in handlers},
        keyed={one.group for one in handlers if one.key},
        backoff=Backoff(engine.retry_first_s, engine.retry_max_s),
    )


def check_start(config: Config, app: App) -> None:
    """Check what can make a start fail although the file is valid: SQL files, URLs, secrets.

    Secrets are checked only if this user can read them. Raises: ConfigError with every problem.
    """
    from cordata.broker.factory import check as check_broker

    checks: list[Callable[[], object]] = [
        lambda: check_url(config.store, config.paths.state),
        lambda: check_broker(config.broker),
        lambda: _check_sender(config),
        lambda: load_migrations(chains_of(app), dialect_of(config.store)),
        lambda: Queries.load(app.query_packages, dialect_of(config.store)),
    ]
    if os.access(config.paths.credentials, os.R_OK | os.X_OK):
        checks += [
            lambda: read_vault(config),
            lambda: smtp_login(config),
            lambda: store_password(config),
            lambda: broker_passwords(config),
        ]
        if config.status.listen:
            checks.append(lambda: status_token(config))
    problems: dict[str, None] = {}
    hints: dict[str, None] = {}
    for check in checks:
        try:
            check()
        except ConfigError as error:
            problems.update(dict.fromkeys(error.problems))
            hints.update({error.hint: None} if error.hint else {})
        except SchemaError as error:
            problems.update(dict.fromkeys(str(error).split("\n")))
    if problems:
        raise ConfigError(*problems, hint="; ".join(hints) or None)


def _check_sender(config: Config) -> None:
    """Raises: ConfigError when the sender is not an e-mail address: every mail would fail."""
    from cordata.mail.message import check_address  # 16 ms

    try:
        check_address(config.mail.sender)
    except PermanentError as error:
        raise ConfigError(f"[mail] sender: {config.mail.sender!r}: {error}") from None
