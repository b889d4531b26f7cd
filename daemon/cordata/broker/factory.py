"""Creates the broker of `[broker] url`; modules for Redis are imported only with Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cordata.broker.queue import Queue
from cordata.config.sections import BrokerConfig
from cordata.errors import ConfigError
from cordata.process import Process
from cordata.store import Store

if TYPE_CHECKING:
    from cordata.broker.redis.broker import RedisBroker
    from cordata.broker.redis.reconciler import Reconciler
    from cordata.broker.redis.server import RedisServer


class Passwords(NamedTuple):
    """The passwords for Redis and its Sentinels; None: none is set."""

    redis: str | None = None
    sentinel: str | None = None


def is_store(config: BrokerConfig) -> bool:
    """Whether the store's tables are the broker, instead of Redis."""
    return config.url == "store:"


def check_url(config: BrokerConfig) -> None:
    """Check `[broker] url`. Raises: ConfigError when it is not valid."""
    if not is_store(config):
        from cordata.broker.redis.address import parse_url

        parse_url(config.url)


def check(config: BrokerConfig) -> None:
    """Check `[broker]` and the files that it names. Raises: ConfigError when one is not valid."""
    if is_store(config):
        return
    from cordata.broker.redis.address import parse_url

    parse_url(config.url).check_files()
    if not config.prefix.isprintable() or not config.prefix or " " in config.prefix:
        raise ConfigError("[broker] prefix: needs printable characters without spaces")


def make_redis_broker(
    config: BrokerConfig, store: Store, queue: Queue, process: Process, *, passwords: Passwords
) -> RedisBroker:
    """The broker on Redis of a process; it connects when it is used. Raises: ConfigError."""
    from cordata.broker.redis.broker import RedisBroker
    from cordata.broker.redis.stream import Keys

    server = make_server(config, passwords, name=process.id)
    return RedisBroker(store, queue, server, Keys(config.prefix), owner=process.id)


def make_reconciler(
    config: BrokerConfig, store: Store, *, name: str, passwords: Passwords
) -> Reconciler:
    """The reconciler of the primary; `store` writes with its term. Raises: ConfigError."""
    from cordata.broker.redis.reconciler import Reconciler
    from cordata.broker.redis.stream import Keys

    server = make_server(config, passwords, name=name)
    return Reconciler(store, server, Keys(config.prefix))


def make_server(config: BrokerConfig, passwords: Passwords, *, name: str) -> RedisServer:
    """The server of `[broker] url`; it connects when it is used. Raises: ConfigError."""
    from cordata.broker.redis.address import parse_url
    from cordata.broker.redis.server import RedisServer

    return RedisServer(
        parse_url(config.url),
        password=passwords.redis,
        sentinel_password=passwords.sentinel,
        timeout_s=config.timeout_s,
        name=name,
    )
