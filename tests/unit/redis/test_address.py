"""`[broker] url`: what it means, and that its mistakes are told without quoting it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordata.broker.opening import check, is_store
from cordata.broker.redis.address import RedisAddress, parse_url
from cordata.config.sections import BrokerConfig
from cordata.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://host", RedisAddress(hosts=(("host", 6379),))),
        ("redis://host:1/2", RedisAddress(hosts=(("host", 1),), database=2)),
        ("redis://me@host/", RedisAddress(hosts=(("host", 6379),), user="me")),
        ("redis://[::1]:7/0", RedisAddress(hosts=(("::1", 7),))),
        ("rediss://host:1", RedisAddress(hosts=(("host", 1),), tls=True)),
        (
            "rediss://host/3?ssl_ca_certs=/ca&ssl_certfile=/c&ssl_keyfile=/k",
            RedisAddress(
                hosts=(("host", 6379),),
                database=3,
                tls=True,
                ca=Path("/ca"),
                certificate=Path("/c"),
                key=Path("/k"),
            ),
        ),
        (
            "redis+sentinel://a,b:1/main/4",
            RedisAddress(hosts=(("a", 26379), ("b", 1)), service="main", database=4),
        ),
        (
            "rediss+sentinel://u@a:1/main",
            RedisAddress(hosts=(("a", 1),), service="main", user="u", tls=True),
        ),
    ],
)
def test_url_names_a_redis(url: str, address: RedisAddress) -> None:
    assert parse_url(url) == address
    assert not is_store(BrokerConfig(url=url))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:secret@host", "password"),
        ("redis://me:secret@host", "password"),
        ("redis+sentinel://:secret@host/main", "password"),
        ("redis://", "host"),
        ("redis://a,b", "host"),
        ("redis://host:port", "HOST:PORT"),
        ("redis://host:99999", "HOST:PORT"),
        ("redis://host/zero", "number"),
        ("redis://host/0/1", "number"),
        ("redis+sentinel://a,b", "service"),
        ("redis+sentinel://a,,b/main", "host"),
        ("rediss://host?ssl_ca_cert=/secret", "unknown parameter"),
        ("http://secret", "not the address"),
    ],
)
def test_mistake_is_named_and_nothing_secret_quoted(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_url(url)
    assert said in str(caught.value)
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_broker_is_the_store_unless_told_otherwise() -> None:
    assert is_store(BrokerConfig())
    check(BrokerConfig(), retention_s=1.0)
    with pytest.raises(ConfigError, match="no broker"):
        is_store(BrokerConfig(url="amqp://me:secret@host"))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (BrokerConfig(url="redis://h", window_s=5000.0), "window_s"),
        (BrokerConfig(url="redis://h", window_s=1.0, prefix="a b"), "prefix"),
        (BrokerConfig(url="redis://h", window_s=1.0, prefix=""), "prefix"),
        (BrokerConfig(url="rediss://h?ssl_ca_certs=/nowhere", window_s=1.0), "/nowhere"),
    ],
)
def test_start_is_refused_when_the_settings_cannot_work(config: BrokerConfig, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(config, retention_s=5000.0)
    assert said in str(caught.value)


@pytest.mark.parametrize("window_s", [3000.0, 2400.5])
def test_start_is_refused_when_entries_are_not_kept_longer_than_the_window(
    window_s: float,
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(BrokerConfig(url="redis://h", window_s=window_s), retention_s=3000.0)
    assert "set [broker] window_s to 2400 or less" in str(caught.value.hint)
    assert f"retention_s to {window_s + 600.0:g} or more" in str(caught.value.hint)


def test_window_that_entries_outlive_is_fine() -> None:
    check(BrokerConfig(url="redis://h", window_s=2400.0), retention_s=3000.0)


def test_hint_names_no_window_when_entries_are_not_kept_at_all() -> None:
    with pytest.raises(ConfigError) as caught:
        check(BrokerConfig(url="redis://h", window_s=60.0), retention_s=0.0)
    assert caught.value.hint == "set [engine] retention_s to 660 or more"
