"""Names of streams, and what is too big."""

from __future__ import annotations

import pytest

from cordata.core.eventstream import (
    BUCKETS,
    HEADERS_BYTES,
    PAYLOAD_BYTES,
    bucket_of,
    category_of,
    check_category,
    check_event,
    check_page,
    check_stream,
)
from cordata.errors import PermanentError


@pytest.mark.parametrize(
    ("stream", "category"),
    [("account-7", "account"), ("account", "account"), ("a-b-c", "a"), ("konto-ä/1", "konto")],
)
def test_category_is_what_stands_before_the_first_hyphen(stream: str, category: str) -> None:
    check_stream(stream)
    assert category_of(stream) == category
    check_category(category)


@pytest.mark.parametrize(
    "stream", ["", "-7", "a b", "a\n", "a\x00b", " a", "a\u2028", "a\ud800", "x" * 201]
)
def test_name_is_refused_when_it_is_malformed(stream: str) -> None:
    with pytest.raises(PermanentError, match="not a valid stream name"):
        check_stream(stream)


def test_category_is_refused_when_it_is_the_name_of_a_stream() -> None:
    with pytest.raises(PermanentError, match="not a valid category"):
        check_category("account-7")


def test_bucket_of_a_name_is_the_one_that_was_stored_ever_since() -> None:
    assert [bucket_of(name) for name in ("account-1", "account-2", "konto-ä")] == [
        47152,
        59786,
        42551,
    ]


def test_buckets_spread_streams_over_partitions() -> None:
    counts = [0] * 16
    for number in range(16_000):
        bucket = bucket_of(f"account-{number}")
        assert 0 <= bucket < BUCKETS
        counts[bucket % 16] += 1
    assert min(counts) > 800 and max(counts) < 1200


def test_event_is_refused_when_it_is_too_big() -> None:
    check_event("x", PAYLOAD_BYTES, HEADERS_BYTES)
    with pytest.raises(PermanentError, match="payload of 'x' has 262,145 bytes"):
        check_event("x", PAYLOAD_BYTES + 1, 0)
    with pytest.raises(PermanentError, match="headers of 'x'"):
        check_event("x", 2, HEADERS_BYTES + 1)


@pytest.mark.parametrize("type", ["", "a\nb", "x" * 101])
def test_event_is_refused_when_its_type_is_malformed(type: str) -> None:
    with pytest.raises(PermanentError, match="not a valid event type"):
        check_event(type, 2, 2)


@pytest.mark.parametrize("limit", [0, -1, 501])
def test_page_is_refused_when_it_is_not_bounded(limit: int) -> None:
    with pytest.raises(PermanentError, match="1 to 500"):
        check_page(limit)
