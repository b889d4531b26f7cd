"""Rates of the last seconds: the counters of a process now, less their oldest sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cordata.metrics.file import Reading, Series
from cordata.metrics.series import HANDLERS, IN_FLIGHT, REQUEST_SECONDS, REQUESTS, SHORT


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRate:
    """The requests of one worker within the last `span_s` seconds."""

    unit: str
    #: Usually 10 to 15.
    span_s: float
    requests_per_s: float
    #: Those answered with 5xx.
    errors_per_s: float
    #: As of the last 2 s.
    in_flight: int
    #: Durations that half, and 99 of 100, of the requests stayed below, estimated from the buckets
    #: of a histogram; None: there was no request.
    p50_ms: float | None
    p99_ms: float | None


def http_rate(reading: Reading) -> HttpRate | None:
    """None: it serves no HTTP, or it has ended."""
    durations = REQUEST_SECONDS.series()
    if not reading.alive or reading.before is None or durations not in reading.values:
        return None
    span_s = max(reading.span_s, 0.001)
    counts = _grown(reading, durations)[:-1]
    codes = {s: _grown(reading, s)[0] for s in reading.values if s.name == REQUESTS.name}
    errors = sum(count for series, count in codes.items() if ("code", "5xx") in series.labels)
    return HttpRate(
        unit=reading.unit,
        span_s=span_s,
        requests_per_s=sum(counts) / span_s,
        errors_per_s=errors / span_s,
        in_flight=round(reading.values[IN_FLIGHT.series()][0]),
        p50_ms=_milliseconds(quantile(0.5, counts, SHORT)),
        p99_ms=_milliseconds(quantile(0.99, counts, SHORT)),
    )


def handled_per_s(readings: Iterable[Reading]) -> dict[str, float]:
    """Messages handled per second, by consumer group, by all these processes together."""
    rates: dict[str, float] = {}
    for one in readings:
        for series in one.values if one.alive and one.before is not None else ():
            labels = dict(series.labels)
            if series.name == HANDLERS.counts.name and labels["outcome"] == "done":
                rate = _grown(one, series)[0] / max(one.span_s, 0.001)
                rates[labels["group"]] = rates.get(labels["group"], 0.0) + rate
    return rates


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000.0 * seconds


def _grown(reading: Reading, series: Series) -> list[float]:
    """By how much the values of a series have grown since the sample."""
    before = (reading.before or {}).get(series, (0.0,) * series.size)
    return [new - old for new, old in zip(reading.values[series], before, strict=True)]


def quantile(share: float, counts: Sequence[float], bounds: Sequence[float]) -> float | None:
    """As Prometheus' histogram_quantile: linear within a bucket; None: there is nothing in any.

    `counts` has one more than `bounds`: beyond the last bound, that bound is the answer.
    """
    rank = share * sum(counts)
    if rank <= 0.0:
        return None
    seen = 0.0
    for count, (low, high) in zip(counts, pairwise((0.0, *bounds)), strict=False):
        if count and seen + count >= rank:
            return low + (high - low) * (rank - seen) / count
        seen += count
    return bounds[-1]
