"""What `cordata status` shows: records of one moment. Its --json document has the same keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cordata.metrics.backlog import GroupBacklog, PrimaryState
from cordata.metrics.rate import HttpRate

#: What a reason or an error is about.
Part = (
    Literal["configuration", "units", "processes", "primary", "http", "groups", "subscriptions"]
    | Literal["redis", "jobs", "mail", "store", "pool", "disk"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """A socket, service, target or timer of systemd."""

    unit: str
    #: active, activating, failed, inactive ...
    state: str
    #: running, auto-restart, dead ...; listening of a socket, waiting of a timer.
    sub_state: str
    #: Whether it is to run: cordata.target starts it, or it is enabled.
    wanted: bool
    #: loaded; bad-setting, error: systemd cannot use its files, so that it would not start again.
    load_state: str = "loaded"
    pid: int = 0
    #: Seconds since it became active; None: it is not.
    up_s: float | None = None
    #: Restarts by systemd itself since somebody last started it.
    restarts: int = 0
    memory_bytes: int | None = None
    #: Seconds since its last watchdog notification, and how long that may take; None: no watchdog.
    watchdog_age_s: float | None = None
    watchdog_s: float | None = None
    #: What the process says of itself: "ready; 12 req/s; 3 in flight".
    status: str = ""
    #: exit-code, signal, watchdog ... of the last end; success.
    result: str = "success"
    #: Whether its process is older than the installed files of cordata.
    outdated: bool = False
    #: Of a timer: in so many seconds, and so many seconds ago.
    next_s: float | None = None
    last_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """A process that has joined the store: a worker or a job, of any host."""

    name: str
    host: str
    pid: int
    #: Whether its lease is valid, and the process is not known to be gone.
    alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The last run of a job."""

    job: str
    scope: str
    period: str
    #: running, done, failed.
    state: str
    attempts: int
    #: Seconds since it started.
    started_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MailState:
    """The mails in the store."""

    waiting: int
    #: Age of the oldest one that waits; None: none waits.
    oldest_s: float | None
    #: Given up in the last 24 hours.
    failed: int
    #: Whether a mail server is configured: without one, mails wait for it.
    configured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertState:
    """An alert of the last 24 hours."""

    title: str
    count: int
    #: Seconds since the last occurrence.
    last_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """The store itself."""

    database: str
    #: Live part of SQLite's write-ahead log and its limit; None on PostgreSQL.
    wal_bytes: int | None = None
    wal_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """The child processes of one worker."""

    worker: str
    pool: str
    ready: int
    busy: int
    other: int
    waiting: int
    crashed: int
    drained: bool
    #: Why its last child could not start; "": it did.
    start_error: str
    #: False: the worker did not answer, so that nothing else is known.
    answers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskState:
    """The file system of the state directory."""

    path: str
    free_bytes: int
    total_bytes: int
    #: ok, warning (little is free) or failed (commits are about to fail).
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything; a part is None or empty if it could not be collected, and `errors` says why."""

    version: str
    host: str
    #: Whether the processes of this host are units of systemd; without it there are no units.
    systemd: bool
    units: Sequence[UnitState] = ()
    processes: Sequence[ProcessState] = ()
    primary: PrimaryState | None = None
    #: The requests of each worker of this host, within the last seconds.
    http: Sequence[HttpRate] = ()
    groups: Sequence[GroupBacklog] = ()
    #: Messages that the workers of this host handled per second, by group, within the last seconds.
    handled: Mapping[str, float] = field(default_factory=dict)
    #: Workers of this host whose events wait because Redis is away or takes none (the last 2 s).
    redis_away: Sequence[str] = ()
    #: Partitions of subscriptions that wait for an operator, by subscription.
    blocked: Mapping[str, int] = field(default_factory=dict)
    jobs: Sequence[JobState] = ()
    mail: MailState | None = None
    alerts: Sequence[AlertState] = ()
    store: StoreState | None = None
    pool: Sequence[PoolState] = ()
    disk: DiskState | None = None
    #: Part (units, store, pool, disk, configuration) -> what is wrong with it, if it is missing.
    errors: Mapping[Part, str] = field(default_factory=dict)
    #: Those of them that did not answer, or said that they cannot serve.
    unavailable: Sequence[Part] = ()
