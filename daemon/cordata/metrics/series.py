"""What is counted: names by Prometheus' conventions, labels with few values, buckets in seconds."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from cordata.metrics.file import Kind, Series

#: Upper bounds in seconds: of requests, commits and calls; and of jobs.
SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LONG = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)

#: Label values of requests; other methods are "other".
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "other")
CODES = ("2xx", "3xx", "4xx", "5xx")


class Family(Struct, frozen=True):
    """All series of one name."""

    name: str
    kind: Kind
    help: str
    bounds: tuple[float, ...] = ()
    #: Whether its values mean nothing when the process has ended.
    of_now: bool = False

    def series(self, **labels: str) -> Series:
        """The series with these labels."""
        return Series(self.name, self.kind, tuple(labels.items()), self.bounds)


class Operation(Struct, frozen=True):
    """What a process does many times: it is counted by its outcome, and timed."""

    counts: Family
    outcomes: tuple[str, ...]
    #: How long it took; of a call, how long it waited, and how long it ran.
    times: tuple[Family, ...]

    @property
    def families(self) -> tuple[Family, ...]:
        """All of its families."""
        return self.counts, *self.times

    def series(self, **labels: str) -> list[Series]:
        """All series of the operation with these labels."""
        counts = [self.counts.series(**labels, outcome=one) for one in self.outcomes]
        return [*counts, *(family.series(**labels) for family in self.times)]


REQUESTS = Family(
    "cordata_http_requests",
    "counter",
    "HTTP requests that were answered, refused or cut off, by method and class of the status code"
    " (a client that left before its answer: 4xx).",
)
REQUEST_SECONDS = Family(
    "cordata_http_request_duration_seconds",
    "histogram",
    "Time from the end of the request's head to the last byte of the answer.",
    SHORT,
)
IN_FLIGHT = Family(
    "cordata_http_requests_in_flight",
    "gauge",
    "HTTP requests that the application handles, as of the last 2 s.",
    of_now=True,
)
CONNECTIONS = Family(
    "cordata_http_connections", "gauge", "Open connections, as of the last 2 s.", of_now=True
)
COMMIT_SECONDS = Family(
    "cordata_store_commit_duration_seconds",
    "histogram",
    "Time of COMMIT, with the sync to disk. Several units of work may share one.",
    SHORT,
)
WAITING_UNITS = Family(
    "cordata_store_waiting_units",
    "gauge",
    "Units of work that wait for their commit, as of the last 2 s.",
    of_now=True,
)
#: Attempts at messages, and at events of a subscription.
HANDLERS = Operation(
    Family(
        "cordata_handler_attempts",
        "counter",
        "Attempts at messages by consumer group and outcome: done, retry, dead (letter), defer (the"
        " store was unavailable), given_back (it is not counted as an attempt).",
    ),
    ("done", "retry", "dead", "defer", "given_back"),
    (
        Family(
            "cordata_handler_duration_seconds",
            "histogram",
            "Time of an attempt at a message, by consumer group.",
            SHORT,
        ),
    ),
)
REDIS_UP = Family(
    "cordata_redis_up",
    "gauge",
    "1: events go by Redis, as of the last 2 s; 0: they wait, since it is away or takes none.",
    of_now=True,
)
CALLS = Operation(
    Family(
        "cordata_pool_calls",
        "counter",
        "Calls of commands by outcome: done, failed (the command raised), error (deadline, crash,"
        " queue full, ...).",
    ),
    ("done", "failed", "error"),
    (
        Family(
            "cordata_pool_wait_seconds",
            "histogram",
            "Time of a call outside of its command: in the queue and on the way.",
            SHORT,
        ),
        Family(
            "cordata_pool_run_seconds", "histogram", "Time that a command ran in its child.", SHORT
        ),
    ),
)
POOL_CHILDREN = Family(
    "cordata_pool_children", "gauge", "Child processes that a worker keeps.", of_now=True
)
POOL_CHILDREN_READY = Family(
    "cordata_pool_children_ready",
    "gauge",
    "Child processes that take calls, as of the last 2 s.",
    of_now=True,
)
MAILS = Operation(
    Family(
        "cordata_mail_attempts",
        "counter",
        "Attempts to send a mail by outcome: sent, failed (given up), later (it is tried again).",
    ),
    ("sent", "failed", "later"),
    (
        Family(
            "cordata_mail_attempt_duration_seconds",
            "histogram",
            "Time of an attempt to send a mail.",
            LONG,
        ),
    ),
)
JOBS = Operation(
    Family("cordata_job_runs", "counter", "Runs of jobs by outcome: done, failed."),
    ("done", "failed"),
    (Family("cordata_job_duration_seconds", "histogram", "Time of a run of a job.", LONG),),
)
JOB_ENDED = Family(
    "cordata_job_last_run_timestamp_seconds",
    "gauge",
    "When the last run of a job with this outcome ended, since the boot of the host; 0: none did.",
)

#: Each process writes its own: the user namespace of a hardened unit hides them from the others.
CPU_SECONDS = Family(
    "cordata_process_cpu_seconds", "counter", "Processor time of the process, user and system."
)
RESIDENT_BYTES = Family(
    "cordata_process_resident_memory_bytes", "gauge", "Resident memory.", of_now=True
)
VIRTUAL_BYTES = Family(
    "cordata_process_virtual_memory_bytes", "gauge", "Virtual memory.", of_now=True
)
OPEN_FDS = Family("cordata_process_open_fds", "gauge", "Open file descriptors.", of_now=True)
MAX_FDS = Family("cordata_process_max_fds", "gauge", "Limit of open file descriptors.", of_now=True)

FAMILIES = (
    *(REQUESTS, REQUEST_SECONDS, IN_FLIGHT, CONNECTIONS),
    *(COMMIT_SECONDS, WAITING_UNITS, *HANDLERS.families, REDIS_UP),
    *(*CALLS.families, POOL_CHILDREN, POOL_CHILDREN_READY),
    *(*MAILS.families, *JOBS.families, JOB_ENDED),
    *(CPU_SECONDS, RESIDENT_BYTES, VIRTUAL_BYTES, OPEN_FDS, MAX_FDS),
)


def http_series() -> list[Series]:
    """What a process that serves HTTP counts."""
    codes = [REQUESTS.series(method=method, code=code) for method in METHODS for code in CODES]
    return [*codes, REQUEST_SECONDS.series(), IN_FLIGHT.series(), CONNECTIONS.series()]


def process_series() -> list[Series]:
    """What every process says of itself."""
    families = (CPU_SECONDS, RESIDENT_BYTES, VIRTUAL_BYTES, OPEN_FDS, MAX_FDS)
    return [family.series() for family in families]


def context_series(commands: Iterable[str]) -> list[Series]:
    """What a process with a Context counts: commits, and its calls of these commands."""
    calls = [series for command in commands for series in CALLS.series(command=command)]
    return [COMMIT_SECONDS.series(), WAITING_UNITS.series(), *calls]


def job_series(job: str) -> list[Series]:
    """What a process that runs a job counts."""
    ended = [JOB_ENDED.series(job_name=job, outcome=outcome) for outcome in JOBS.outcomes]
    return [*JOBS.series(job_name=job), *ended]
