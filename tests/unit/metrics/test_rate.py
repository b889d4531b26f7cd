"""Rates and quantiles from two readings of the counters."""

from __future__ import annotations

import pytest

from cordata.metrics.file import Reading, Series
from cordata.metrics.rate import handled_per_s, http_rate, quantile
from cordata.metrics.series import HANDLERS, SHORT, http_series

Values = dict[Series, tuple[float, ...]]


def reading(now: Values, before: Values) -> Reading:
    return Reading(
        unit="worker@0",
        pid=1,
        alive=True,
        ended=False,
        started_at=0.0,
        values=now,
        before=before,
        span_s=10.0,
    )


def test_quantile_is_linear_within_its_bucket() -> None:
    counts, bounds = (10.0, 30.0, 60.0, 0.0), (0.1, 0.2, 0.4)
    assert quantile(0.1, counts, bounds) == pytest.approx(0.1)
    assert quantile(0.25, counts, bounds) == pytest.approx(0.15)
    assert quantile(0.7, counts, bounds) == pytest.approx(0.3)


def test_quantile_is_the_last_bound_when_it_lies_beyond() -> None:
    assert quantile(0.99, (1.0, 0.0, 9.0), (0.1, 0.2)) == 0.2


def test_quantile_is_unknown_when_nothing_happened() -> None:
    assert quantile(0.5, (0.0, 0.0), (0.1,)) is None


def test_rate_counts_what_came_since_the_sample() -> None:
    zero = {series: (0.0,) * series.size for series in http_series()}
    get = Series("cordata_http_requests", "counter", (("method", "GET"), ("code", "2xx")))
    bad = Series("cordata_http_requests", "counter", (("method", "POST"), ("code", "5xx")))
    durations = Series("cordata_http_request_duration_seconds", "histogram", (), SHORT)
    in_flight = Series("cordata_http_requests_in_flight", "gauge")
    old = (100.0,) + (0.0,) * (len(SHORT) + 1)
    new = (180.0, 20.0) + (0.0,) * len(SHORT)
    before = {**zero, get: (100.0,), durations: old}
    rate = http_rate(
        reading({**zero, get: (195.0,), bad: (5.0,), durations: new, in_flight: (3.0,)}, before)
    )
    assert rate is not None
    assert (rate.requests_per_s, rate.errors_per_s, rate.in_flight) == (10.0, 0.5, 3)
    assert rate.p50_ms == pytest.approx(0.5 * 50 / 80)
    assert rate.p99_ms == pytest.approx(0.5 + 0.5 * 19 / 20)


def test_handled_messages_are_those_of_all_processes() -> None:
    done = HANDLERS.counts.series(group="a", outcome="done")
    retry = HANDLERS.counts.series(group="a", outcome="retry")
    one = reading({done: (70.0,), retry: (9.0,)}, {done: (20.0,), retry: (0.0,)})
    assert handled_per_s([one, reading({done: (10.0,)}, {done: (0.0,)})]) == {"a": 6.0}


def test_process_without_http_has_no_rate() -> None:
    assert http_rate(reading({}, {})) is None
