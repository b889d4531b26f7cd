"""Snapshots, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cordata.metrics.backlog import GroupBacklog, PrimaryState
from cordata.metrics.rate import HttpRate
from cordata.status.judge import judge, worst
from cordata.status.snapshot import (
    DiskState,
    JobState,
    MailState,
    PoolState,
    ProcessState,
    Snapshot,
    StoreState,
    UnitState,
)

SOCKET = UnitState(unit="http.socket", state="active", sub_state="listening", wanted=True)
WORKER = UnitState(
    unit="worker@0.service",
    state="active",
    sub_state="running",
    wanted=True,
    pid=7,
    up_s=900.0,
    restarts=2,
    watchdog_s=10.0,
    watchdog_age_s=2.0,
)
OTHER = replace(WORKER, unit="worker@1.service")
PRIMARY = replace(WORKER, unit="primary.service")
GROUP = GroupBacklog(
    group="shop.pack",
    type="order.made",
    broker="store",
    ready=3,
    scheduled=1,
    claimed=1,
    retrying=1,
    dead=0,
    oldest_s=2.0,
    absent_s=5.0,
)
LEASE = PrimaryState(holder="a/1", term=4, since_s=900, released=False, gone=False)
MAIL = MailState(waiting=2, oldest_s=60.0, failed=0, configured=True)
JOB = JobState(job="tally", scope="", period="2026-11-24", state="done", attempts=1, started_s=9)
POOL = PoolState(
    worker="0",
    pool="default",
    ready=1,
    busy=0,
    other=0,
    waiting=0,
    crashed=3,
    drained=False,
    start_error="",
    answers=True,
)
PROCESS = ProcessState(name="worker-0", host="a", pid=7, alive=True)
RATE = HttpRate(
    unit="worker@0",
    span_s=12.0,
    requests_per_s=0.0,
    errors_per_s=0.0,
    in_flight=0,
    p50_ms=None,
    p99_ms=None,
)
HEALTHY = Snapshot(
    version="1",
    host="a",
    systemd=True,
    units=[SOCKET, WORKER, OTHER, PRIMARY],
    processes=[PROCESS],
    primary=LEASE,
    groups=[GROUP],
    jobs=[JOB],
    mail=MAIL,
    store=StoreState(database="SQLite 3", wal_bytes=3, wal_limit_bytes=1),
    pool=[POOL],
    disk=DiskState(path="/var", free_bytes=9, total_bytes=10, state="ok"),
)


def said(**changed: Any) -> tuple[str, list[str]]:
    reasons = judge(replace(HEALTHY, **changed))
    return worst(reasons), [f"{one.part}: {one.text}" for one in reasons]


def test_nothing_is_said_when_all_is_well() -> None:
    assert said() == ("healthy", [])


def units(*changed: UnitState) -> dict[str, Any]:
    names = {one.unit for one in changed}
    kept = [one for one in HEALTHY.units if one.unit not in names]
    return {"units": [*kept, *changed]}


DEAD: dict[str, Any] = {"pid": 0, "up_s": None, "watchdog_age_s": None, "watchdog_s": None}
LOOPS = replace(
    OTHER, state="activating", sub_state="auto-restart", result="signal", restarts=4, **DEAD
)
STOPPED = replace(PRIMARY, state="inactive", sub_state="dead", **DEAD)
FAILED = replace(
    WORKER, unit="job@tally.service", state="failed", wanted=False, result="exit-code", **DEAD
)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (units(LOOPS), "worker@1.service is activating: it ended (signal), restart 5 follows"),
        (units(replace(OTHER, up_s=3.0)), "worker@1.service: 2 restarts, the last 3 s ago"),
        (units(replace(OTHER, watchdog_age_s=9.0)), "has not notified its watchdog for 9 s"),
        (units(replace(OTHER, outdated=True)), "worker@1.service: older than the installed"),
        (units(STOPPED), "primary.service is inactive"),
        (units(FAILED), "job@tally.service failed (exit-code)"),
        ({"primary": None}, "there has been no primary yet"),
        ({"primary": replace(LEASE, released=True)}, "a/1 has released its lease"),
        ({"primary": replace(LEASE, gone=True)}, "a/1 has ended"),
        ({"groups": [replace(GROUP, oldest_s=75.0)]}, "3 messages wait, the oldest 75 s"),
        ({"groups": [replace(GROUP, dead=2)]}, "shop.pack: 2 dead letters: `cordata dlq list`"),
        ({"groups": [replace(GROUP, absent_s=7300.0)]}, "no process has had it for 2 h"),
        ({"redis_away": ["worker@0"]}, "redis: events of worker@0 wait for Redis"),
        ({"blocked": {"sums": 1}}, "sums: 1 partitions are blocked"),
        ({"jobs": [replace(JOB, state="failed")]}, "tally 2026-11-24 failed"),
        ({"mail": replace(MAIL, failed=1)}, "1 mails failed"),
        ({"mail": replace(MAIL, oldest_s=1000.0)}, "2 mails wait, the oldest 1000 s"),
        ({"pool": [replace(POOL, ready=0)]}, "worker 0 has no child that takes calls"),
        ({"pool": [replace(POOL, answers=False, ready=0)]}, "pool: worker 0 does not answer"),
        ({"pool": [replace(POOL, start_error="no memory")]}, "worker 0 starts: no memory"),
        ({"disk": DiskState(path="/var", free_bytes=0, total_bytes=9, state="failed")}, "/var"),
        ({"errors": {"pool": "no answer within 5 s"}}, "pool: no answer within 5 s"),
        ({"store": StoreState(database="S", wal_bytes=5, wal_limit_bytes=1)}, "write-ahead log"),
        ({"errors": {"store": "run it as root"}, "store": None}, "store: run it as root"),
    ],
)
def test_service_is_degraded_when_it_serves_but_somebody_should_look(
    changed: dict[str, Any], text: str
) -> None:
    state, texts = said(**changed)
    assert state == "degraded" and len(texts) == 1 and text in texts[0], texts


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (units(replace(WORKER, state="failed"), LOOPS), "no worker runs"),
        (units(replace(SOCKET, state="inactive", wanted=False)), "http.socket does not listen"),
        (
            {"errors": {"store": "no connection"}, "unavailable": ["store"], "store": None},
            "store: no connection",
        ),
        (
            {
                "systemd": False,
                "units": [],
                "pool": [],
                "processes": [replace(PROCESS, alive=False)],
                "primary": replace(LEASE, gone=True),
            },
            "no process runs",
        ),
        (
            {
                "systemd": False,
                "units": [],
                "pool": [],
                "processes": [replace(PROCESS, host="b")],
                "primary": replace(LEASE, holder="b/1"),
            },
            "no process runs",
        ),
    ],
)
def test_service_is_down_when_nobody_can_be_served(changed: dict[str, Any], text: str) -> None:
    state, texts = said(**changed)
    assert state == "down" and text in texts[0], texts


TROUBLE: dict[str, Any] = {
    "primary": replace(LEASE, gone=True),
    "jobs": [replace(JOB, state="failed")],
    "pool": [replace(POOL, answers=False, ready=0), replace(POOL, start_error="no memory")],
    "store": StoreState(database="S", wal_bytes=5, wal_limit_bytes=1),
}


def test_reasons_name_the_journal_only_where_units_run() -> None:
    with_units = said(**TROUBLE)[1]
    assert sum("journalctl" in text for text in with_units) == 4
    without = said(**TROUBLE, systemd=False, units=[])[1]
    assert len(without) == len(with_units)
    assert not any("journalctl" in text or "systemctl" in text for text in without)


def test_service_is_degraded_when_workers_serve_and_their_primary_is_dead() -> None:
    # Under `cordata server`, with workers that neither handle events nor have children.
    gone = replace(LEASE, gone=True)
    state, texts = said(
        systemd=False, units=[], pool=[], processes=[], http=[RATE], primary=gone, groups=[]
    )
    assert (state, texts) == (
        "degraded",
        ["primary: there is no primary: a/1 has ended; see the log"],
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"mail": replace(MAIL, oldest_s=1e6, configured=False)},
        {"pool": [replace(POOL, ready=0, drained=True)]},
        {"pool": []},
        {"groups": [replace(GROUP, oldest_s=None)]},
        {"systemd": False, "units": []},
    ],
)
def test_nothing_is_said_of_what_is_meant_to_be_so(changed: dict[str, Any]) -> None:
    assert said(**changed) == ("healthy", [])
