"""All settings: one frozen dataclass for each section of cordata.toml.

A field has a `#:` comment with unit and reason of the default, and a type that allows the valid
values only. Every number has limits (`msgspec.Meta`): outside of them the setting would not work,
or would load a processor for nothing. Rules that types cannot express: `rules`. A setting has more
places than its field: CONTRIBUTING.md lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from cordata.config.pool import PoolConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AppConfig:
    """[app]: which application to run."""

    #: `module:attribute` of the App. There is no default: a role does not start without one.
    import_: str = ""
    #: Directories put on sys.path before the import, for code outside the package's directory.
    path: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """[worker]: the services of each worker. `[worker.N]` overrides single keys for worker@N."""

    #: Any of "http", "engine", "pool".
    services: tuple[Literal["http", "engine", "pool"], ...] = ("http", "engine", "pool")
    #: Seconds from SIGTERM to the end; less than the unit's TimeoutStopSec.
    stop_timeout_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """[http]: limits of the connection layer. Deadlines in seconds, sizes in bytes."""

    #: Connections of one worker; further ones wait in the listen queue of the kernel until one
    #: ends. One that sends no request within a second, or does not read its responses, is closed.
    max_connections: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    #: Method, target and version together; above it 414.
    max_request_line_bytes: Annotated[int, Meta(ge=64, le=16_000)] = 8192
    #: All header lines together; above it 431.
    max_header_bytes: Annotated[int, Meta(ge=256, le=65_536)] = 32768
    #: Header lines; above it 431.
    max_headers: Annotated[int, Meta(ge=1, le=10_000)] = 100
    #: Body of a request; above it 413.
    max_body_bytes: Annotated[int, Meta(ge=1, le=2**40)] = 10_485_760
    #: From accept (or the last response: idle keep-alive) to the first byte.
    first_byte_timeout_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 30.0
    #: From the first byte to the end of the headers; above it 408.
    header_timeout_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 10.0
    #: Longest time without data within a body; above it 408, as for less than 512 bytes/s.
    body_timeout_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 20.0
    #: From the end of the request, or the application's last read of its body, to the start of the
    #: response: above it 504. Also the longest time that a client may read nothing of its response,
    #: and that the application may take to end after its client disconnected.
    response_timeout_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 60.0
    #: After SIGTERM, responses have `Connection: close` for this long; then idle connections close.
    #: Then a client that reads nothing of a complete response for 10 s is cut off.
    drain_s: Annotated[float, Meta(ge=0, le=3600)] = 0.5
    #: Addresses or networks whose X-Forwarded-For/-Proto/-Host are trusted; "unix": unix sockets.
    trusted_proxies: tuple[str, ...] = ("unix",)
    #: One INFO line per accepted request.
    access_log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """[store]: the database."""

    #: `sqlite:` (file in the state directory), `sqlite:///path`, or `postgresql://host/database`.
    url: str = "sqlite:"
    #: Longest time a unit of work waits for a lock before StoreUnavailable.
    write_timeout_s: Annotated[float, Meta(ge=0.05, le=3600)] = 10.0
    #: Longest time `ctx.transaction()` may hold its locks.
    transaction_timeout_s: Annotated[float, Meta(ge=0.05, le=3600)] = 5.0
    #: Longest time of a read: while it runs, the WAL cannot be reset, or old rows vacuumed.
    read_timeout_s: Annotated[float, Meta(ge=0.05, le=86_400)] = 30.0
    #: SQLite: reader threads of one process.
    readers: Annotated[int, Meta(ge=1, le=64)] = 2
    #: Units of work waiting for a commit at most; above it StoreUnavailable at once.
    max_waiting: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    #: SQLite: a process that writes checkpoints the WAL when it is larger than this, or than the
    #: free space of its disk.
    wal_limit_bytes: Annotated[int, Meta(ge=32_768, le=2**40)] = 16_777_216
    #: PostgreSQL: connections of one process at most, besides one or two for LISTEN. At least two:
    #: one for a transaction that stays open, one for work that must not wait for it.
    pool_size: Annotated[int, Meta(ge=2, le=1000)] = 10
    #: PostgreSQL: URL for connections that need a session, if `url` is a transaction-pooling proxy.
    session_url: str = ""
    #: PostgreSQL: longest time to connect to one server; rounded to whole seconds, at least 2.
    connect_timeout_s: Annotated[float, Meta(ge=0.1, le=3600)] = 5.0
    #: PostgreSQL: false for a proxy that cannot keep them (PgBouncer before 1.21).
    prepared_statements: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """[broker]: the transport of events to the handlers."""

    #: `store:` (the store's own tables), `redis://host:port/db`, `rediss://...` (TLS) or
    #: `redis+sentinel://host:port,host:port/NAME/db`. The password is the credential
    #: `redis-password`, that of the Sentinels `sentinel-password`.
    url: str = "store:"
    #: Redis: prefix of every key. With different prefixes, installations can share a Redis.
    prefix: str = "cordata"
    #: Redis: longest wait for an answer; then Redis counts as unavailable.
    timeout_s: Annotated[float, Meta(ge=0.05, le=3600)] = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """[engine]: the event handlers of each worker."""

    #: Messages of one group claimed at once; of a keyed group, keys. Those of a priority below 0
    #: count apart. The relay to Redis takes 500 instead.
    batch: Annotated[int, Meta(ge=1, le=10_000)] = 200
    #: Handlers of one group that run at once, unless its `@app.on` says otherwise.
    concurrency: Annotated[int, Meta(ge=1, le=1000)] = 16
    #: A worker that has not renewed its process lease for this long counts as dead.
    process_lease_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 60.0
    #: Seconds between polls of the tables when no wake-up arrives. With Redis those of the events
    #: are polled at most every 5 s.
    poll_s: Annotated[float, Meta(ge=0.01, le=86_400)] = 5.0
    #: Longest pause before the first retry; it doubles with each attempt. A random share is used.
    retry_first_s: Annotated[float, Meta(ge=0.001, le=86_400)] = 1.0
    #: Longest pause before any retry.
    retry_max_s: Annotated[float, Meta(ge=0.001, le=2_592_000)] = 300.0
    #: How long to keep events that all groups have handled, their marks, and idempotency keys.
    retention_s: Annotated[float, Meta(ge=0, le=315_360_000)] = 604_800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryConfig:
    """[primary]: the process that does the work that only one may do."""

    #: Seconds from SIGTERM to the end; less than the unit's TimeoutStopSec.
    stop_timeout_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MailConfig:
    """[mail]: the SMTP server. It logs in if credentials `smtp-user`, `smtp-password` exist."""

    #: Empty: mail waits in the store until a server is configured.
    host: str = ""
    #: 25 plain, 587 STARTTLS, 465 TLS.
    port: Annotated[int, Meta(ge=1, le=65_535)] = 25
    #: "none", "starttls" or "tls".
    security: Literal["none", "starttls", "tls"] = "none"
    #: From address.
    sender: str = "cordata@localhost"
    #: Limit for connecting and logging in, and again for each mail.
    timeout_s: Annotated[float, Meta(ge=0.1, le=3600)] = 30.0
    #: Longest pause before the first retry; it doubles with each attempt. A random share is used.
    retry_first_s: Annotated[float, Meta(ge=0.001, le=86_400)] = 5.0
    #: Longest pause before any retry.
    retry_max_s: Annotated[float, Meta(ge=0.001, le=2_592_000)] = 900.0
    #: After this long, a mail is `failed`, with an alert.
    give_up_s: Annotated[float, Meta(ge=1, le=315_360_000)] = 432_000.0
    #: Sent and failed mails are kept this long.
    retention_s: Annotated[float, Meta(ge=1, le=315_360_000)] = 2_592_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertConfig:
    """[alert]: mails about errors and failed units."""

    #: Addresses; empty: the journal only.
    to: tuple[str, ...] = ()
    #: One mail per kind of error, or of failure of a unit, in this time; the rest is counted.
    cooldown_s: Annotated[float, Meta(ge=0, le=2_592_000)] = 900.0
    #: Errors of a kind are mailed together as soon as there are this many, or
    count: Annotated[int, Meta(ge=1, le=1_000_000)] = 10
    #: when the first of them is this old. Urgent alerts (the store, dead letters, units) are mailed
    #: at once.
    wait_s: Annotated[float, Meta(ge=0, le=2_592_000)] = 300.0
    #: Mails per hour, from the primary and, for urgent alerts, from each host; further alerts are
    #: mailed together later. A host keeps half of them for kinds that had no mail within the hour.
    max_per_hour: Annotated[int, Meta(ge=1, le=1000)] = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """[metrics]: what each process counts, and where Prometheus gets it."""

    #: Count requests, events, calls, mails and jobs. It costs less than a twentieth of a request.
    enabled: bool = True
    #: Loopback address and port, or path of a unix socket, at which any worker answers for all
    #: processes of this host (GET /metrics). Empty: nowhere.
    listen: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusConfig:
    """[status]: the status page, for operators with a browser."""

    #: Loopback address and port, or path of a unix socket, at which any worker serves the page. It
    #: asks for the credential `status-token`. Empty: nowhere.
    listen: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """[log]: the log level."""

    #: debug, info, warning or error. Only debug, for development, shows the messages of exceptions,
    #: which may quote personal data.
    level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceConfig:
    """[trace]: export of traces by OpenTelemetry."""

    #: Workers export spans of requests, attempts at events and calls of the pool. The SDK of
    #: OpenTelemetry has to be installed; its variables, such as OTEL_TRACES_EXPORTER and
    #: OTEL_EXPORTER_OTLP_ENDPOINT, say how and where to.
    export: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """[network]: what `cordata network restrict` lets the units connect to."""

    #: Hosts that the application itself connects to: addresses, networks or names; "any":
    #: everywhere. Those that other sections name need not be here.
    allow: tuple[str, ...] = ("any",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathsConfig:
    """[paths]: directories, unless systemd sets them."""

    #: The store and small state files; $STATE_DIRECTORY overrides it.
    state: Path = Path("/var/lib/cordata")
    #: Sockets; $CORDATA_RUNTIME overrides it (set by `cordata server --state`).
    runtime: Path = Path("/run/cordata")
    #: Secrets, one file each; $CREDENTIALS_DIRECTORY overrides it.
    credentials: Path = Path("/etc/cordata/credentials")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole of cordata.toml."""

    app: AppConfig = field(default_factory=AppConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    pool: PoolConfig = field(default_factory=PoolConfig)
    primary: PrimaryConfig = field(default_factory=PrimaryConfig)
    mail: MailConfig = field(default_factory=MailConfig)
    alert: AlertConfig = field(default_factory=AlertConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    status: StatusConfig = field(default_factory=StatusConfig)
    log: LogConfig = field(default_factory=LogConfig)
    trace: TraceConfig = field(default_factory=TraceConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    paths: PathsConfig = field(default_factory=PathsConfig)
    #: `[worker.N]` merged with [worker], by instance name.
    workers: Mapping[str, WorkerConfig] = field(default_factory=dict)
    #: `[pool.NAME]` merged with [pool], by name; without the pool "default".
    pools: Mapping[str, PoolConfig] = field(default_factory=dict)
    #: Sections of the application, converted to the types of `App.settings`, by section name.
    settings: Mapping[str, object] = field(default_factory=dict)

    def worker_of(self, instance: str) -> WorkerConfig:
        """The effective [worker] of worker@<instance>."""
        return self.workers.get(instance, self.worker)
