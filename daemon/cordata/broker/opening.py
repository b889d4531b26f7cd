"""Which broker a `[broker] url` means; what only Redis needs is imported for it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cordata.broker.contract import Broker
from cordata.broker.store import StoreBroker
from cordata.config.sections import BrokerConfig
from cordata.errors import ConfigError
from cordata.store import Store

if TYPE_CHECKING:
    from cordata.broker.redis.reconciler import Reconciler
    from cordata.broker.redis.server import RedisServer

_STORE = "store:"
#: What is to be published again must not be deleted while the primary is still looking through it:
#: entries are kept this much longer than the window.
_MARGIN_S = 600.0


class Passwords(NamedTuple):
    """Those that there are."""

    redis: str | None = None
    sentinel: str | None = None


def is_store(config: BrokerConfig) -> bool:
    """Whether the store's own tables are the broker. Raises: ConfigError for a url of neither."""
    from cordata.broker.redis.address import HINT, is_redis

    if config.url == _STORE:
        return True
    if not is_redis(config.url):
        raise ConfigError("[broker] url is no broker", hint=f"{_STORE}, {HINT}")
    return False


def check_url(config: BrokerConfig) -> None:
    """See that `[broker] url` can be understood. Raises: ConfigError."""
    if not is_store(config):
        from cordata.broker.redis.address import parse_url

        parse_url(config.url)


def check(config: BrokerConfig, *, retention_s: float) -> None:
    """See that `[broker]` can be understood, and that its files are there. Raises: ConfigError."""
    if is_store(config):
        return
    from cordata.broker.redis.address import parse_url

    parse_url(config.url).check_files()
    if not config.prefix.isprintable() or not config.prefix or " " in config.prefix:
        raise ConfigError("[broker] prefix: needs printable characters without spaces")
    if config.window_s > retention_s - _MARGIN_S:
        raise ConfigError(
            f"[broker] window_s ({config.window_s:g}) must be at least {_MARGIN_S:g} s less than"
            f" [engine] retention_s ({retention_s:g}): what is deleted cannot be published again",
            hint=_window_hint(config.window_s, retention_s),
        )


def _window_hint(window_s: float, retention_s: float) -> str:
    longer = f"set [engine] retention_s to {window_s + _MARGIN_S:g} or more"
    if retention_s <= _MARGIN_S:
        return longer
    return f"set [broker] window_s to {retention_s - _MARGIN_S:g} or less, or {longer}"


def make_broker(
    config: BrokerConfig,
    store: Store,
    *,
    owner: str,
    claim_timeout_s: float,
    passwords: Passwords,
) -> Broker:
    """The broker of the process `owner`; it connects when it is used. Raises: ConfigError."""
    if is_store(config):
        return StoreBroker(store, claim_timeout_s=claim_timeout_s)
    from cordata.broker.redis.broker import RedisBroker
    from cordata.broker.redis.stream import Keys

    return RedisBroker(
        store,
        _server(config, passwords, name=owner),
        Keys(config.prefix),
        owner=owner,
        claim_timeout_s=claim_timeout_s,
    )


def make_reconciler(
    config: BrokerConfig, store: Store, *, name: str, passwords: Passwords
) -> Reconciler:
    """What the primary does for Redis; `store` writes with its term. Raises: ConfigError."""
    from cordata.broker.redis.reconciler import Reconciler
    from cordata.broker.redis.stream import Keys

    server = _server(config, passwords, name=name)
    return Reconciler(store, server, Keys(config.prefix), window_s=config.window_s)


def _server(config: BrokerConfig, passwords: Passwords, *, name: str) -> RedisServer:
    from cordata.broker.redis.address import parse_url
    from cordata.broker.redis.server import RedisServer

    return RedisServer(
        parse_url(config.url),
        password=passwords.redis,
        sentinel_password=passwords.sentinel,
        timeout_s=config.timeout_s,
        name=name,
    )
