"""Collects a snapshot: each part is bounded in time, and one that fails hides no other."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import cordata
from cordata import __version__, clock
from cordata.app import App
from cordata.command_context import connect
from cordata.config import Config
from cordata.context import Context
from cordata.context_factory import metrics_directory, pool_directory
from cordata.disk import space_of
from cordata.doctor.finding import in_thread
from cordata.doctor.judge import judge_space
from cordata.errors import CordataError, StoreUnavailable
from cordata.metrics.backlog import read_backlog
from cordata.metrics.file import read_all
from cordata.metrics.rate import handled_per_s, http_rate
from cordata.metrics.series import REDIS_UP
from cordata.process import Process, plain_name
from cordata.status.snapshot import (
    AlertState,
    DiskState,
    JobState,
    MailState,
    Part,
    PoolState,
    ProcessState,
    Snapshot,
    StoreState,
    UnitState,
)
from cordata.store import Tx, dialect_of
from cordata.systemd import is_booted
from cordata.systemd.systemctl import Unit, show_units, span_s

#: Longest time for a part: more than a busy store needs, less than somebody waits.
LIMIT_S = 5.0
#: Longest time for a worker of the pool: less than a part has, since the others are shown.
_WORKER_S = 3.0
_DAY_US = 86_400_000_000
_ALERTS = 5
_SLICE = "cordata.slice"
_TARGETS = ("cordata.target", "workers.target")
_MAIN = ("http.socket", "primary.service")
#: LoadState of units that have files. One whose files are bad may still run.
_INSTALLED = ("loaded", "bad-setting", "error")
_PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "Result", "NRestarts", "MainPID", "MemoryCurrent"),
    *("ActiveEnterTimestampMonotonic", "WatchdogTimestampMonotonic", "WatchdogUSec", "StatusText"),
    *("ExecMainStartTimestampMonotonic", "UnitFileState", "Slice", "Wants", "PartOf", "WantedBy"),
    *("NextElapseUSecRealtime", "LastTriggerUSec"),
)


async def collect(
    config: Config,
    problems: Sequence[str] = (),
    *,
    with_units: bool = True,
    ctx: Context | None = None,
) -> Snapshot:
    """Everything there is to know now. A root process becomes the owner of the state directory, as
    with every command that opens the store. `problems`: of the configuration.
    `with_units` False: a `cordata server`, which is no unit of the package. `ctx`: the open store.
    """
    found: dict[str, Any] = {"systemd": False}
    errors: dict[Part, str] = {"configuration": "; ".join(problems)} if problems else {}
    unavailable: list[Part] = []

    async def part(name: Part, look: Callable[[], Coroutine[Any, Any, Mapping[str, Any]]]) -> None:
        try:
            async with asyncio.timeout(LIMIT_S):
                found.update(await look())
        except TimeoutError:
            errors[name] = f"no answer within {LIMIT_S:g} s"
            unavailable.append(name)
        except CordataError as error:
            first = str(error).partition("\n")[0]
            errors[name] = f"{first} ({error.hint})" if error.hint else first
            if isinstance(error, StoreUnavailable):
                unavailable.append(name)
        except Exception as error:  # noqa: BLE001 - one broken part must not hide the others
            # Without its message, which may quote anything.
            errors[name] = f"could not be looked at: {type(error).__name__}"

    async with asyncio.TaskGroup() as group:
        if with_units and is_booted():
            group.create_task(part("units", _units))
        group.create_task(part("disk", lambda: _disk(config)))
        group.create_task(part("http", lambda: _http(config)))
        group.create_task(part("store", lambda: _look(ctx, config) if ctx else _store(config)))
    # As the user that the store was opened with: workers answer no other.
    await part("pool", lambda: _pool(config))
    return Snapshot(
        version=__version__,
        host=socket.gethostname(),
        errors=errors,
        unavailable=unavailable,
        **found,
    )


async def _units() -> Mapping[str, Any]:
    # One call for all: of services that run in the slice, and of timers that belong to the target.
    units = await show_units(_PROPERTIES, "*.service", "*.timer", *_MAIN, *_TARGETS)
    by_name = {unit["Id"]: unit for unit in units}
    if by_name.get(_MAIN[1], {}).get("LoadState") in (None, "not-found"):
        return {}
    wanted = _wanted(by_name)
    installed_at = _installed_at()
    states = [
        _state(unit, unit["Id"] in wanted, installed_at)
        for unit in units
        if unit.get("LoadState") in _INSTALLED
        and (
            unit["Id"] in (*_MAIN, *wanted)
            or (unit.get("Slice") == _SLICE and unit.get("ActiveState") != "inactive")
            or _is_timer(unit)
        )
    ]
    return {"systemd": True, "units": sorted(states, key=lambda one: (len(one.unit), one.unit))}


def _installed_at() -> float:
    """Installing a file changes the time of its inode, whatever time the package gives the file."""
    return Path(cordata.__file__).stat().st_ctime


def _wanted(units: Mapping[str, Unit]) -> set[str]:
    """What cordata.target starts, if it is enabled or active."""
    target = units.get("cordata.target", {})
    if target.get("ActiveState") != "active" and target.get("UnitFileState") != "enabled":
        return set()
    names = {name for one in _TARGETS for name in units.get(one, {}).get("Wants", "").split()}
    if units.get("http.socket", {}).get("UnitFileState") == "enabled":
        names.add("http.socket")
    return names - set(_TARGETS)


def _is_timer(unit: Unit) -> bool:
    """A timer that somebody has enabled for cordata, or that runs a unit of it."""
    if not unit["Id"].endswith(".timer") or unit.get("ActiveState") == "inactive":
        return False
    return unit["Id"].startswith("cordata-") or any(
        "cordata.target" in unit.get(name, "").split() for name in ("PartOf", "WantedBy")
    )


def _state(unit: Unit, wanted: bool, installed_at: float) -> UnitState:
    now = clock.monotonic()
    is_active = unit.get("ActiveState") in ("active", "reloading", "deactivating")
    pid = int(unit.get("MainPID") or 0)
    watchdog_s = span_s(unit.get("WatchdogUSec", "")) or None
    pinged = _number(unit, "WatchdogTimestampMonotonic")
    next_at, last_at = _time(unit, "NextElapseUSecRealtime"), _time(unit, "LastTriggerUSec")
    now_s = clock.now().timestamp()
    started = _number(unit, "ExecMainStartTimestampMonotonic")
    entered = _number(unit, "ActiveEnterTimestampMonotonic")
    return UnitState(
        unit=unit["Id"],
        state=unit.get("ActiveState", ""),
        sub_state=unit.get("SubState", ""),
        wanted=wanted,
        load_state=unit.get("LoadState", ""),
        pid=pid,
        up_s=now - entered / 1e6 if is_active and entered else None,
        restarts=_number(unit, "NRestarts") or 0,
        memory_bytes=_number(unit, "MemoryCurrent") if pid else None,
        watchdog_age_s=now - pinged / 1e6 if watchdog_s and pinged and pid else None,
        watchdog_s=watchdog_s if pid else None,
        status=unit.get("StatusText", "") if pid else "",
        result=unit.get("Result", "success"),
        outdated=bool(pid and started and now_s - (now - started / 1e6) < installed_at),
        next_s=None if next_at is None else next_at - now_s,
        last_s=None if last_at is None else now_s - last_at,
    )


def _number(unit: Unit, name: str) -> int | None:
    """None: not set, "[not set]", or a number that means so."""
    text = unit.get(name, "")
    return int(text) if text.isdecimal() and int(text) < 2**63 else None


def _time(unit: Unit, name: str) -> float | None:
    """Seconds since the epoch of "Wed 2026-11-25 08:00:01 UTC"; None: there is none."""
    text = unit.get(name, "").replace(" UTC", " +0000")
    try:
        return datetime.strptime(text, "%a %Y-%m-%d %H:%M:%S %z").timestamp()
    except ValueError:
        return None


async def _disk(config: Config) -> Mapping[str, Any]:
    return {"disk": await in_thread(lambda: _space(config.paths.state))}


def _space(path: Path) -> DiskState:
    space = space_of(path)
    return DiskState(
        path=space.path,
        free_bytes=space.free_bytes,
        total_bytes=space.total_bytes,
        state=judge_space(space, fix="").state,
    )


async def _http(config: Config) -> Mapping[str, Any]:
    readings = await in_thread(lambda: read_all(metrics_directory(config)))
    up = REDIS_UP.series()
    return {
        "http": [rate for one in readings if (rate := http_rate(one)) is not None],
        "handled": {group: round(rate, 3) for group, rate in handled_per_s(readings).items()},
        "redis_away": [one.unit for one in readings if one.alive and one.values.get(up) == (0.0,)],
    }


async def _store(config: Config) -> Mapping[str, Any]:
    state = config.paths.state
    if await in_thread(lambda: state.exists() and not os.access(state, os.R_OK | os.X_OK)):
        raise CordataError(f"this user may not look into {state}: run it as root")
    async with connect(App("status"), config) as ctx:
        return await _look(ctx, config)


async def _look(ctx: Context, config: Config) -> Mapping[str, Any]:
    is_sqlite = dialect_of(config.store) == "sqlite"
    stats = ctx.store.stats()
    facts = await ctx.store.read(lambda tx: tx.fetch_one("server.facts"))
    assert facts is not None
    name = "SQLite" if is_sqlite else "PostgreSQL"
    store = StoreState(
        database=f"{name} {facts['version']}",
        wal_bytes=stats.wal_bytes if is_sqlite else None,
        wal_limit_bytes=config.store.wal_limit_bytes if is_sqlite else None,
    )

    async def read(tx: Tx) -> Mapping[str, Any]:
        return await _rows(tx, config)

    return {"store": store, **await ctx.store.read(read)}


async def _rows(tx: Tx, config: Config) -> Mapping[str, Any]:
    now_us = tx.now_us

    def age_s(at_us: int) -> float:
        return max(0.0, (now_us - at_us) / 1e6)

    processes = [Process.from_row(row) for row in await tx.fetch_all("process.all")]
    backlog = await read_backlog(tx)
    failed = await tx.fetch_one("status.failed_mail", since=now_us - _DAY_US)
    assert failed is not None
    jobs = {row["job"]: row for row in await tx.fetch_all("status.jobs")}
    alerts = await tx.fetch_all("alert.list", limit=_ALERTS)
    return {
        "primary": backlog.primary,
        "processes": [
            ProcessState(
                name=plain_name(one.id).partition("@")[0],
                host=one.host,
                pid=one.pid,
                alive=one.expires_at > now_us and not one.is_gone(),
            )
            for one in processes
        ],
        "groups": backlog.groups,
        "blocked": {name: count for name, count in backlog.blocked.items() if count},
        "jobs": [
            JobState(
                job=row["job"],
                scope=row["scope"],
                period=row["period"],
                state=row["state"],
                attempts=row["attempts"],
                started_s=age_s(row["started_at"]),
            )
            for row in jobs.values()
        ],
        "mail": MailState(
            waiting=backlog.mails,
            oldest_s=backlog.oldest_mail_s,
            failed=failed["count"],
            configured=bool(config.mail.host),
        ),
        "alerts": [
            AlertState(title=row["title"], count=row["count"], last_s=age_s(row["last_at"]))
            for row in alerts
            if row["last_at"] > now_us - _DAY_US
        ],
    }


async def _pool(config: Config) -> Mapping[str, Any]:
    path = pool_directory(config)
    if not any(path.glob("*/*.control.sock")):
        return {}
    from cordata.pool import Client

    async with Client(path, timeout=_WORKER_S) as client:
        answer = await client.status()
    return {"pool": [_pool_state(worker) for worker in answer["workers"]]}


def _pool_state(worker: Mapping[str, Any]) -> PoolState:
    states = [child["state"] for child in worker["children"]]
    ready, busy = states.count("ready"), states.count("busy")
    return PoolState(
        worker=worker["worker"],
        pool=worker["pool"],
        ready=ready,
        busy=busy,
        other=len(states) - ready - busy,
        waiting=sum(child["waiting"] for child in worker["children"]),
        crashed=worker["crashed"],
        drained=worker["drained"],
        start_error=worker["start_error"],
        answers=worker["answers"],
    )
