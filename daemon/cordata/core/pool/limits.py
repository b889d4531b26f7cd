"""What bounds a pool, and which pool a worker or a command belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

#: The pool of workers and commands that no other one names.
DEFAULT = "default"
#: A deadline is never further away: poll(2) and epoll_wait(2) take milliseconds of 31 bits.
LONGEST_S = 2e6


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """One pool: `[pool]`, or `[pool.NAME]` on top of it, with the keys of the configuration."""

    name: str = DEFAULT
    max_waiting: int = 10_000
    max_waiting_bytes: int = 268_435_456
    queue_timeout_s: float = 0.0
    call_timeout_s: float = 60.0
    fair: bool = False
    retries: int = 3
    workers: frozenset[str] = frozenset()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for all pools of a manager."""

    poison_limit: int = 3
    poison_pause_s: float = 60.0
    cancel_grace_s: float = 5.0
    kill_grace_s: float = 2.0
    #: A stream whose reader takes nothing for so long ends.
    unread_timeout_s: float = 60.0
    #: Whether a client that is alone gets children on loan.
    lend: bool = True
    #: How long a dead child's worker may take to say how it died, before the caller is answered.
    exit_report_s: float = 1.0


class Failure(NamedTuple):
    """An `error` frame to be: its code, its text, its data."""

    code: str
    text: str
    data: Mapping[str, object] = {}


def pool_of_worker(pools: Sequence[PoolLimits], worker: str) -> str:
    """The pool that names the instance, else "default"."""
    return next((pool.name for pool in pools if worker in pool.workers), DEFAULT)


def pool_of_command(pools: Sequence[PoolLimits], command: str) -> str:
    """The first pool that names the command, by name or `prefix*`; else "default"."""
    for pool in pools:
        for named in pool.commands:
            if named == command or (named.endswith("*") and command.startswith(named[:-1])):
                return pool.name
    return DEFAULT
