"""The page that Prometheus scrapes: one for all processes of this host, text or OpenMetrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from cordata.disk import Space
from cordata.metrics.backlog import Backlog
from cordata.metrics.file import Reading
from cordata.metrics.series import FAMILIES, Family

if TYPE_CHECKING:
    from prometheus_client import Metric


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Page:
    """What is known at a scrape."""

    #: Versions, and the name of the application.
    build: Mapping[str, str]
    readings: Sequence[Reading]
    #: What waits in the store; None: it did not answer.
    backlog: Backlog | None
    #: Of the state directory.
    disk: Space

    def render(self, accept: str) -> tuple[str, bytes]:
        """Content type and text, in the format that the `Accept` header asks for.

        Takes milliseconds, and a tenth of a second the first time: call it in a thread.
        """
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return content_type, encode(registry)

    def collect(self) -> Iterator[Metric]:
        """As a collector of prometheus_client: all metric families."""
        yield from self._build()
        yield from self._units()
        for family in FAMILIES:
            if (metric := _metric(family, self.readings)) is not None:
                yield metric
        yield from self._starts()
        yield from self._disk()
        yield from self._backlog()

    def _build(self) -> Iterator[Metric]:
        from prometheus_client.core import InfoMetricFamily

        yield InfoMetricFamily("cordata_build", "Versions, and the application.", dict(self.build))

    def _units(self) -> Iterator[Metric]:
        yield _gauge(
            "cordata_unit_up",
            "1: a process of the unit runs; 0: it was killed, or failed. One that was stopped is"
            " not listed.",
            ["unit"],
            (([one.unit], float(one.alive)) for one in self.readings if not one.ended),
        )

    def _starts(self) -> Iterator[Metric]:
        started = (([one.unit], one.started_at) for one in self.readings if one.alive)
        text = "Start time of the process since the epoch."
        yield _gauge("cordata_process_start_time_seconds", text, ["unit"], started)

    def _disk(self) -> Iterator[Metric]:
        for name, text, count in (
            ("free", "Bytes that the service may still write to", self.disk.free_bytes),
            ("size", "Size of", self.disk.total_bytes),
        ):
            text += " the file system of the state directory."
            yield _gauge(f"cordata_disk_{name}_bytes", text, [], [([], float(count))])

    def _backlog(self) -> Iterator[Metric]:
        backlog = self.backlog
        text = "Whether the store answered the questions of this scrape."
        yield _gauge("cordata_store_up", text, [], [([], float(backlog is not None))])
        if backlog is None:
            return
        yield _gauge(
            "cordata_queue_messages",
            "Open messages in the store by consumer group and state, each counted up to 10000."
            " dead: dead letters.",
            ["group", "state"],
            (
                ([one.group, state], getattr(one, state))
                for one in backlog.groups
                for state in ("ready", "scheduled", "claimed", "dead")
            ),
        )
        for name, text, key in (
            ("retrying_messages", "Ready and scheduled messages that failed before.", "retrying"),
            ("oldest_message_seconds", "Age of the oldest message that is due.", "oldest_s"),
            ("group_absent_seconds", "Time since a process last reported the group.", "absent_s"),
        ):
            samples = [([one.group], float(getattr(one, key) or 0)) for one in backlog.groups]
            yield _gauge(f"cordata_queue_{name}", text, ["group"], samples)
        text = "Partitions of the subscription that wait for an operator."
        samples = [([name], float(count)) for name, count in backlog.blocked.items()]
        yield _gauge("cordata_subscription_blocked_partitions", text, ["subscription"], samples)
        primary = backlog.primary
        for name, text, value in (
            ("mail_waiting", "Mails that wait, counted up to 10000.", backlog.mails),
            ("mail_oldest_seconds", "Age of the oldest mail that waits.", backlog.oldest_mail_s),
            (
                "primary_term",
                "Number of the primary's term: grows with each change.",
                primary and primary.term,
            ),
            (
                "primary_up",
                "1: the lease of the primary is held; 0: it was given back, or its holder, of this"
                " host, has ended.",
                primary and primary.is_held,
            ),
        ):
            yield _gauge(f"cordata_{name}", text, [], [([], float(value or 0))])


def _gauge(
    name: str, text: str, labels: list[str], samples: Iterable[tuple[list[str], float]]
) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    metric = GaugeMetricFamily(name, text, labels=labels)
    for values, number in samples:
        metric.add_metric(values, number)
    return metric


def _metric(family: Family, readings: Sequence[Reading]) -> Metric | None:
    """A family of all processes, each with its unit as a label; None: no process counts it."""
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    found = [
        (reading, series, values)
        for reading in readings
        if reading.alive or not family.of_now
        for series, values in reading.values.items()
        if series.name == family.name and series.kind == family.kind
    ]
    if not found:
        return None
    labels = ["unit", *(key for key, _ in found[0][1].labels)]
    rows = [([one.unit, *(value for _, value in s.labels)], s, values) for one, s, values in found]
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=labels)
        for row, series, values in rows:
            *counts, total = values
            bounds = [*map(repr, series.bounds), "+Inf"]
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            histogram.add_metric(row, buckets, total)
        return histogram
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = make(family.name, family.help, labels=labels)
    for row, _, values in rows:
        metric.add_metric(row, values[0])
    return metric
