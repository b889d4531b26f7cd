"""The page, as Prometheus' own parsers read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from cordata.disk import Space
from cordata.metrics.backlog import Backlog, GroupBacklog, PrimaryState
from cordata.metrics.file import Reading, Series
from cordata.metrics.page import Page
from cordata.metrics.series import IN_FLIGHT, REQUEST_SECONDS, REQUESTS, SHORT

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
GET = REQUESTS.series(method="GET", code="2xx")
SECONDS = REQUEST_SECONDS.series()
BACKLOG = Backlog(
    groups=[
        GroupBacklog(
            group='a"b\\c',
            type="thing.done",
            broker="store",
            ready=3,
            scheduled=2,
            claimed=1,
            dead=4,
            retrying=1,
            oldest_s=12.5,
            absent_s=0.5,
        )
    ],
    blocked={"a": 2, "b": 0},
    mails=7,
    oldest_mail_s=1.5,
    primary=PrimaryState(holder="a/1", term=9, since_s=1.0, released=False, gone=False),
)

DISK = Space(path="/a", free_bytes=3, total_bytes=40, free_inodes=1, total_inodes=2)


def reading(unit: str, *, alive: bool = True, ended: bool = False) -> Reading:
    counts = (1.0, 2.0, *(0.0,) * (len(SHORT) - 2), 3.0)
    values: dict[Series, tuple[float, ...]] = {
        GET: (6.0,),
        SECONDS: (*counts, 30.25),
        IN_FLIGHT.series(): (2.0,),
        Series("of_a_newer_version", "counter"): (1.0,),
    }
    return Reading(
        unit=unit,
        pid=1,
        alive=alive,
        ended=ended,
        started_at=1.7e9,
        values=values,
        before=None,
    )


def samples(page: Page, accept: str = "") -> dict[tuple[str, frozenset[Any]], float]:
    """By name and labels."""
    content_type, body = page.render(accept)
    families: Iterable[Metric]
    if accept:
        assert content_type.startswith("application/openmetrics-text")
        families = openmetrics_families(body.decode())  # type: ignore[no-untyped-call]
    else:
        assert content_type.startswith("text/plain")
        families = text_string_to_metric_families(body.decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def page(*readings: Reading, backlog: Backlog | None = BACKLOG) -> Page:
    return Page(build={"version": "1", "app": "a"}, readings=readings, backlog=backlog, disk=DISK)


def key(name: str, **labels: str) -> tuple[str, frozenset[Any]]:
    return name, frozenset(labels.items())


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_page_has_each_process_by_its_unit(accept: str) -> None:
    found = samples(page(reading("worker@0"), reading("worker@1")), accept)
    for unit in ("worker@0", "worker@1"):
        labels = {"unit": unit, "method": "GET", "code": "2xx"}
        assert found[key("cordata_http_requests_total", **labels)] == 6.0
        assert found[key("cordata_http_requests_in_flight", unit=unit)] == 2.0
        assert found[key("cordata_unit_up", unit=unit)] == 1.0
        assert found[key("cordata_process_start_time_seconds", unit=unit)] == 1.7e9
    assert found[key("cordata_build_info", version="1", app="a")] == 1.0


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_buckets_of_a_histogram_add_up(accept: str) -> None:
    found = samples(page(reading("primary")), accept)
    name = "cordata_http_request_duration_seconds"

    def bucket(bound: str) -> float:
        return found[key(f"{name}_bucket", unit="primary", le=bound)]

    assert (bucket("0.0005"), bucket("0.001"), bucket("10.0"), bucket("+Inf")) == (1, 3, 3, 6)
    assert found[key(f"{name}_count", unit="primary")] == 6.0
    assert found[key(f"{name}_sum", unit="primary")] == 30.25


def test_backlog_is_by_group_with_its_name_escaped() -> None:
    found = samples(page())
    states = {"ready": 3, "scheduled": 2, "claimed": 1, "dead": 4}
    for state, count in states.items():
        labels = {"group": 'a"b\\c', "state": state}
        assert found[key("cordata_queue_messages", **labels)] == count
    assert found[key("cordata_queue_oldest_message_seconds", group='a"b\\c')] == 12.5
    assert found[key("cordata_store_up")] == 1.0
    assert found[key("cordata_mail_waiting")] == 7.0
    assert found[key("cordata_primary_term")] == 9.0
    assert found[key("cordata_primary_up")] == 1.0
    blocked = "cordata_subscription_blocked_partitions"
    assert [found[key(blocked, subscription=name)] for name in "ab"] == [2.0, 0.0]


def test_disk_is_there_whatever_the_store_does() -> None:
    found = samples(page(backlog=None))
    assert found[key("cordata_disk_free_bytes")] == 3.0
    assert found[key("cordata_disk_size_bytes")] == 40.0


def test_backlog_is_left_out_when_the_store_does_not_answer() -> None:
    found = samples(page(reading("primary"), backlog=None))
    assert found[key("cordata_store_up")] == 0.0
    assert not [name for name, _ in found if name.startswith(("cordata_queue", "cordata_mail"))]


def test_process_that_was_killed_keeps_its_counters_and_no_gauge() -> None:
    found = samples(page(reading("worker@0", alive=False)))
    labels = {"unit": "worker@0", "method": "GET", "code": "2xx"}
    assert found[key("cordata_http_requests_total", **labels)] == 6.0
    assert found[key("cordata_unit_up", unit="worker@0")] == 0.0
    assert key("cordata_http_requests_in_flight", unit="worker@0") not in found
    assert key("cordata_process_start_time_seconds", unit="worker@0") not in found


def test_process_that_has_ended_in_order_is_not_missed() -> None:
    found = samples(page(reading("worker@0", alive=False, ended=True)))
    assert key("cordata_unit_up", unit="worker@0") not in found
    labels = {"unit": "worker@0", "method": "GET", "code": "2xx"}
    assert found[key("cordata_http_requests_total", **labels)] == 6.0


def test_series_of_another_version_are_left_out() -> None:
    assert "of_a_newer_version" not in page(reading("primary")).render("")[1].decode()
