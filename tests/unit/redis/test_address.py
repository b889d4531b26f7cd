"""`[broker] url`: what it means, and that its mistakes are told without quoting it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordata.broker.factory import check, is_store
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
        ("amqp://me:secret@host", "no broker"),
    ],
)
def test_mistake_is_named_and_nothing_secret_quoted(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_url(url)
    assert said in str(caught.value)
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_broker_is_the_store_unless_told_otherwise() -> None:
    assert is_store(BrokerConfig())
    check(BrokerConfig())


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (BrokerConfig(url="redis://h", prefix="a b"), "prefix"),
        (BrokerConfig(url="redis://h", prefix=""), "prefix"),
        (BrokerConfig(url="rediss://h?ssl_ca_certs=/nowhere"), "/nowhere"),
    ],
)
def test_start_is_refused_when_the_settings_cannot_work(config: BrokerConfig, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(config)
    assert said in str(caught.value)
