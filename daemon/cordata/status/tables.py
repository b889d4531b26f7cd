"""A snapshot as `cordata status` and the status page show it: tables of text, lines, JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cordata.doctor.judge import size
from cordata.metrics.backlog import LIMIT, GroupBacklog, shown
from cordata.metrics.rate import HttpRate
from cordata.status.judge import Reason, worst
from cordata.status.snapshot import (
    AlertState,
    JobState,
    PoolState,
    ProcessState,
    Snapshot,
    UnitState,
)
from cordata.terminal import as_record, span

Row = Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One part of a snapshot."""

    #: The part: units, groups ...
    part: str
    title: str
    heads: Sequence[str]
    rows: Sequence[Row]


def tables(snapshot: Snapshot) -> list[Table]:
    """All tables that have rows."""
    timers = [unit for unit in snapshot.units if unit.unit.endswith(".timer")]
    others = [unit for unit in snapshot.units if not unit.unit.endswith(".timer")]
    # Processes of this host that are units are in the first table.
    elsewhere = [
        one for one in snapshot.processes if not snapshot.systemd or one.host != snapshot.host
    ]
    groups = (_group(one, snapshot.handled.get(one.group)) for one in snapshot.groups)
    heads_of_group = "GROUP HANDLED/S READY SCHEDULED CLAIMED RETRYING DEAD OLDEST"
    heads_of_unit = "UNIT STATE UP RESTARTS MEMORY WATCHDOG SAYS"
    heads_of_http = "HTTP REQ/S IN-FLIGHT P50 P99 ERRORS/S"
    heads_of_pool = "WORKER POOL READY BUSY OTHER WAITING CRASHED"
    found = [
        _table("units", "Units", heads_of_unit, map(_unit, others)),
        _table("processes", "Processes", "PROCESS HOST PID STATE", map(_process, elsewhere)),
        _table("http", "Requests", heads_of_http, map(_http, snapshot.http)),
        _table("groups", "Consumer groups", heads_of_group, groups),
        _table("pool", "Process pool", heads_of_pool, map(_pool, snapshot.pool)),
        _table("jobs", "Jobs", "JOB SCOPE PERIOD STATE ATTEMPTS STARTED", map(_job, snapshot.jobs)),
        _table("timers", "Timers", "TIMER STATE NEXT LAST", map(_timer, timers)),
        _table("alerts", "Alerts", "ALERT COUNT LAST", map(_alert, snapshot.alerts)),
    ]
    return [table for table in found if table.rows]


def lines(snapshot: Snapshot) -> dict[str, str]:
    """What needs no table, by part."""
    found = {}
    if (primary := snapshot.primary) is not None:
        ended = ", released" if primary.released else ", ended" if primary.gone else ""
        since = f"term {primary.term}, since {span(primary.since_s)}"
        found["primary"] = f"{primary.holder}{ended}, {since}"
    if (mail := snapshot.mail) is not None:
        oldest = f", the oldest {span(mail.oldest_s)}" if mail.oldest_s is not None else ""
        server = "" if mail.configured else "; no mail server is configured"
        found["mail"] = f"{shown(mail.waiting)} wait{oldest}; {mail.failed} failed{server}"
    if (store := snapshot.store) is not None:
        log = ""
        if store.wal_bytes is not None and store.wal_limit_bytes is not None:
            log = f", write-ahead log {size(store.wal_bytes)} of {size(store.wal_limit_bytes)}"
        found["store"] = f"{store.database}{log}"
    if (disk := snapshot.disk) is not None:
        free = f"{size(disk.free_bytes)} of {size(disk.total_bytes)} free"
        found["disk"] = f"{free} for {disk.path}"
    return found


def document(snapshot: Snapshot, reasons: Sequence[Reason]) -> dict[str, Any]:
    """The JSON document."""
    found = [asdict(one) for one in reasons]
    record = as_record(asdict(snapshot))
    # By subscription: a name that ends with _at is no time.
    record["blocked"] = dict(snapshot.blocked)
    return {"state": worst(reasons), "reasons": found, **record}


def _table(part: str, title: str, heads: str, rows: Iterable[Row]) -> Table:
    return Table(part=part, title=title, heads=heads.split(), rows=list(rows))


def _process(one: ProcessState) -> Row:
    return one.name, one.host, one.pid, "alive" if one.alive else "gone"


def _http(one: HttpRate) -> Row:
    times = (milliseconds(one.p50_ms), milliseconds(one.p99_ms))
    return one.unit, rate(one.requests_per_s), one.in_flight, *times, rate(one.errors_per_s)


def _group(one: GroupBacklog, handled_per_s: float | None) -> Row:
    counts = [
        count if count < LIMIT else shown(count)
        for count in (one.ready, one.scheduled, one.claimed, one.retrying, one.dead)
    ]
    handled = "" if handled_per_s is None else rate(handled_per_s)
    return one.group, handled, *counts, span(one.oldest_s)


def _pool(one: PoolState) -> Row:
    state = "" if one.answers else " (no answer)"
    worker = one.worker + (" (drained)" if one.drained else state)
    return worker, one.pool, one.ready, one.busy, one.other, one.waiting, one.crashed


def _job(one: JobState) -> Row:
    return one.job, one.scope, one.period, one.state, one.attempts, ago(one.started_s)


def _timer(one: UnitState) -> Row:
    due = "" if one.next_s is None else f"in {span(one.next_s)}"
    return one.unit, one.state, due, ago(one.last_s)


def _alert(one: AlertState) -> Row:
    return one.title, one.count, ago(one.last_s)


def _unit(unit: UnitState) -> Row:
    state = unit.state if unit.state == "active" else f"{unit.state} ({unit.sub_state})"
    memory = "" if unit.memory_bytes is None else size(unit.memory_bytes)
    watchdog = "" if unit.watchdog_age_s is None else f"{unit.watchdog_age_s:.1f} s"
    return unit.unit, state, span(unit.up_s), unit.restarts, memory, watchdog, unit.status


def rate(per_s: float) -> str:
    """Rounded; a rate that is not 0 is not shown as 0."""
    return f"{per_s:.0f}" if per_s >= 10 or not per_s else f"{per_s:.2f}"


def milliseconds(number: float | None) -> str:
    """Of a duration; empty for None."""
    return "" if number is None else f"{number:.1f} ms"


def ago(seconds: float | None) -> str:
    """A time in the past; empty for None."""
    return "" if seconds is None else f"{span(seconds)} ago"
