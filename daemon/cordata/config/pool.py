"""[pool]: settings of the pool of warm processes; `[pool.NAME]`: those of a named pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

#: Keys allowed in `[pool.NAME]`: limits of one queue. The other keys are for all pools.
OF_ONE_POOL = frozenset(
    {
        "call_timeout_s",
        "queue_timeout_s",
        "max_waiting",
        "max_waiting_bytes",
        "retries",
        "workers",
        "commands",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """[pool]: limits of the workers' children, and of calls in each client. Seconds and bytes."""

    #: Children that each worker keeps.
    children: Annotated[int, Meta(ge=1, le=1000)] = 1
    #: Deadline of a call that names none: waiting and running together.
    call_timeout_s: Annotated[float, Meta(ge=0.001, le=86_400)] = 60.0
    #: Longest wait for a child; 0: the deadline alone.
    queue_timeout_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    #: Calls that wait in one client process at most; above it PoolSaturated at once.
    max_waiting: Annotated[int, Meta(ge=1, le=10_000_000)] = 10_000
    #: The same limit, in bytes of their messages.
    max_waiting_bytes: Annotated[int, Meta(ge=1024, le=2**40)] = 268_435_456
    #: How often a call declared idempotent is run again when its child died.
    retries: Annotated[int, Meta(ge=0, le=100)] = 3
    #: `[pool.NAME]` only: worker instances whose children are in it. A worker is in one pool.
    workers: tuple[str, ...] = ()
    #: `[pool.NAME]` only: commands that run there, by name or `prefix*`.
    commands: tuple[str, ...] = ()
    #: Largest message of the protocol, so the largest payload and result.
    max_frame_bytes: Annotated[int, Meta(ge=1024, le=2**30)] = 16_777_216
    #: A session that is not used for this long is deleted, unless it was created with another TTL.
    session_ttl_s: Annotated[float, Meta(ge=0.001, le=315_360_000)] = 3600.0
    #: "hint": prefer the session's worker if it is free; "strict_queue": wait for it;
    #: "strict_fail": refuse the call if it is not free.
    affinity: Literal["hint", "strict_queue", "strict_fail"] = "hint"
    #: Sessions at most.
    max_sessions: Annotated[int, Meta(ge=1, le=100_000_000)] = 100_000
    #: One session's data plus 64 bytes for each name.
    max_session_bytes: Annotated[int, Meta(ge=1, le=2**30)] = 1_048_576
    #: All sessions' data.
    max_sessions_bytes: Annotated[int, Meta(ge=1, le=2**40)] = 268_435_456
    #: Globals, which all sessions share.
    max_globals_bytes: Annotated[int, Meta(ge=1, le=2**30)] = 16_777_216
    #: A command that killed this many children in a row is refused ...
    poison_limit: Annotated[int, Meta(ge=1, le=1_000_000)] = 3
    #: ... for this long.
    poison_pause_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 60.0
    #: After a hard cancel the command may take this long to end; then its child is killed.
    cancel_grace_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    #: The same after the call's deadline.
    kill_grace_s: Annotated[float, Meta(ge=0, le=3600)] = 2.0
    #: A stream whose reader takes nothing for this long ends, and its child is free again.
    unread_timeout_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 60.0
    #: A worker waits this long for its child before it says READY.
    child_start_timeout_s: Annotated[float, Meta(ge=0.001, le=3600)] = 2.0
    #: Limit for imports and @app.child_init of a child; above it the child is killed and replaced.
    init_timeout_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 60.0
    #: Seconds between two health checks of an idle child; one stopped by a signal is checked within
    #: a second.
    health_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 30.0
    #: Longest wait for the answer to a health check.
    health_timeout_s: Annotated[float, Meta(ge=0.05, le=3600)] = 5.0
    #: Calls after which a child is replaced; 0: no limit.
    max_calls: Annotated[int, Meta(ge=0, le=2**53)] = 0
    #: The same by age; each worker varies it by up to a tenth, so that not all restart at once.
    max_age_s: Annotated[float, Meta(ge=0, le=315_360_000)] = 0.0
    #: The same by the resident memory of the child itself.
    max_rss_bytes: Annotated[int, Meta(ge=0, le=2**50)] = 0
    #: Longest pause before a child is started again for the first time; it doubles with each start,
    #: and a random share is used.
    restart_first_s: Annotated[float, Meta(ge=0.001, le=3600)] = 0.1
    #: Longest pause before any start.
    restart_max_s: Annotated[float, Meta(ge=0.001, le=86_400)] = 10.0
    #: Commands served at POST /api/pool/{command}, by name or `prefix*`; "*": all. Empty: off.
    http: tuple[str, ...] = ()


#: The pool of the workers and commands that no [pool.NAME] names.
DEFAULT_POOL = "default"


def pool_of_worker(pools: Mapping[str, PoolConfig], worker: str) -> str:
    """The pool that names the instance, else "default"."""
    return next((name for name, pool in pools.items() if worker in pool.workers), DEFAULT_POOL)


def pool_of_command(pools: Mapping[str, PoolConfig], command: str) -> str:
    """The first pool that names the command, by name or `prefix*`; else "default"."""
    for name, pool in pools.items():
        for named in pool.commands:
            if named == command or (named.endswith("*") and command.startswith(named[:-1])):
                return name
    return DEFAULT_POOL
