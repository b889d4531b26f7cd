"""PostgreSQL without a server: its urls, its errors, its time."""

from __future__ import annotations

import pytest
from psycopg import pq

from cordata import clock
from cordata.config.sections import StoreConfig
from cordata.errors import (
    ConfigError,
    Conflict,
    PermanentError,
    StatementError,
    StoreFull,
    StoreUnavailable,
)
from cordata.store.health import Busy, Health
from cordata.store.postgres.address import addresses, check
from cordata.store.postgres.clock import FleetClock
from cordata.store.postgres.fault import Fault, ServerFull, translate


def test_server_is_told_what_the_url_says_and_our_limits() -> None:
    config = StoreConfig(url="postgresql://u@one,two:5433/d?sslmode=require")
    address, session = addresses(config, "secret")
    assert address.params["host"] == "one,two" and address.params["sslmode"] == "require"
    assert address.params["target_session_attrs"] == "read-write"
    assert address.params["password"] == session.params["password"] == "secret"
    assert address.params["connect_timeout"] == 5
    assert not address.proxied and "secret" not in repr(address)


def test_what_the_url_sets_is_left_as_it_is() -> None:
    url = "postgresql://one,two/d?target_session_attrs=any&connect_timeout=9"
    address, _ = addresses(StoreConfig(url=url), None)
    assert address.params["target_session_attrs"] == "any"
    assert int(address.params["connect_timeout"]) == 9
    assert "password" not in address.params


def test_transactions_go_through_the_proxy_and_sessions_past_it() -> None:
    config = StoreConfig(url="postgresql://proxy/d", session_url="postgresql://server/d")
    address, session = addresses(config, None)
    assert (address.params["host"], address.proxied) == ("proxy", True)
    assert (session.params["host"], session.proxied) == ("server", False)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://u:secret@h/d", "contains a password"),
        ("postgresql://h/d?password=secret", "contains a password"),
        ("postgresql://h/d?colour=secret", "parameter"),
        ("postgresql://h:secret/d", "port"),
        ("postgresql://secret..example/d", "an invalid host name"),
        (f"postgresql://one,{'secret' * 11}/d", "an invalid host name"),
        pytest.param(
            "postgresql://h/secret d",
            "a space: write %20",
            marks=pytest.mark.skipif(pq.version() < 180000, reason="this libpq takes a space"),
        ),
        ("postgresql://h/secret%zz", "a % without two hex digits"),
    ],
)
def test_url_is_refused_without_being_quoted(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        check(StoreConfig(url=url))
    assert "secret" not in str(caught.value)


def test_both_urls_are_named_when_both_are_wrong() -> None:
    with pytest.raises(ConfigError) as caught:
        check(StoreConfig(url="postgresql://u:p@h/d", session_url="mysql://h/d"))
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("code", "kind", "storage"),
    [
        ("53100", StoreFull, True),
        ("53300", ServerFull, True),
        ("25006", StoreUnavailable, True),
        ("58030", StoreUnavailable, True),
        ("XX001", StoreUnavailable, True),
        ("57P01", Busy, False),
        ("57014", Busy, False),
        ("40P01", Busy, False),
        ("40001", Busy, False),
        ("42P01", StatementError, False),
        ("22P02", PermanentError, False),
        ("23514", Conflict, False),
    ],
)
def test_error_is_what_its_code_says(code: str, kind: type[Exception], storage: bool) -> None:
    error = translate(Fault(code, "text"), "q")
    assert type(error) is kind and str(error).startswith("q: ")
    assert Health().failed(error) is storage


def test_conflict_names_the_constraint_or_the_column() -> None:
    named = translate(Fault("23505", "x", "t_pkey", "t"), "q")
    column = translate(Fault("23502", "x", "", "t", "c"), "q")
    assert isinstance(named, Conflict) and named.constraint == "t_pkey"
    assert isinstance(column, Conflict) and column.constraint == "t.c"


@pytest.mark.parametrize("code", ["22P02", "22001", "P0001", "XX000"])
def test_message_is_kept_back_when_it_may_quote_a_value(code: str) -> None:
    assert "secret" not in str(translate(Fault(code, 'invalid: "secret"'), "q"))


def passed_us(since: float) -> float:
    return (clock.monotonic() - since) * 1e6


def test_time_is_the_servers_whatever_this_host_thinks() -> None:
    time = FleetClock()
    before_us = clock.now_us()
    told_us = time.now_us()  # nobody was asked yet
    assert before_us - 100_000 < told_us < clock.now_us() + 100_000
    now = clock.monotonic()
    time.measured(1_000_000_000, sent=now - 0.01, received=now)
    told_us = time.now_us()
    assert 1_000_000_000 <= told_us < 1_000_100_000 + passed_us(now)


def test_vague_measurement_changes_nothing_when_it_does_not_contradict() -> None:
    exact, disturbed = FleetClock(), FleetClock()
    now = clock.monotonic()
    for time in (exact, disturbed):
        time.measured(1_000_000_000, sent=now - 0.001, received=now)
    disturbed.measured(999_980_000, sent=now - 0.1, received=now)  # 30 ms off, give or take 50
    before_us, told_us = exact.now_us(), disturbed.now_us()
    assert before_us - 20_000 < told_us < exact.now_us() + 20_000


def test_better_measurement_replaces_a_vague_one() -> None:
    time = FleetClock()
    now = clock.monotonic()
    time.measured(1_000_000_000, sent=now - 2.0, received=now)
    time.measured(1_000_500_000, sent=now - 0.001, received=now)
    told_us = time.now_us()
    assert 1_000_300_000 < told_us < 1_000_700_000 + passed_us(now)


def test_vague_measurement_wins_when_the_servers_clock_was_set() -> None:
    time = FleetClock()
    now = clock.monotonic()
    time.measured(1_000_000_000, sent=now - 0.001, received=now)
    time.measured(9_000_000_000, sent=now - 0.1, received=now)
    assert time.now_us() >= 9_000_000_000
