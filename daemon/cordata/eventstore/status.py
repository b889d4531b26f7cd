"""What an operator sees of subscriptions."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cordata.core.delivery import read_failures
from cordata.eventstore.partition import PartitionState
from cordata.store import Row

#: blocked: an operator is awaited; unserved: no worker takes part; retrying: an event fails.
State = Literal["blocked", "unserved", "retrying", "behind", "current"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One partition. Times are microseconds since the epoch."""

    partition: int
    state: State
    position: int
    #: Events that are still to be handled.
    behind: int
    #: The living process that has it.
    owner: str | None
    attempts: int
    #: Position of the event that fails.
    failing: int | None
    next_at: int | None
    blocked_at: int | None
    #: Of the last attempt.
    error: str | None
    history: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStatus:
    """One subscription."""

    name: str
    category: str
    state: State
    #: Living processes that take part.
    workers: int
    #: Up to here everything is handled.
    position: int
    #: Up to here there is something that could be handled.
    head: int
    #: Events that are still to be handled.
    behind: int
    #: There are many, and `behind` is no exact number.
    estimated: bool
    blocked: int
    #: Events that were given up.
    dead: int
    #: Where it began, at first or after the last reset.
    origin: int
    created_at: int
    reset_at: int | None
    partitions: Sequence[PartitionStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadEvent:
    """An event that a subscription gave up."""

    position: int
    stream: str
    version: int
    type: str
    attempts: int
    created_at: int
    dead_at: int
    error: str | None
    #: JSON text.
    payload: str
    #: JSON text.
    headers: str
    history: Sequence[Mapping[str, Any]]


def extrapolation(left: Sequence[Row], after: int, head: int, *, cap: int) -> float:
    """By how much there is more than was counted: 1.0 when all of it was."""
    if sum(row["seen"] for row in left) < cap:
        return 1.0
    reached: int = max(row["reached"] for row in left)
    return (head - after) / (reached - after)


def status_of(
    one: PartitionState, behind: int, living: Container[str], *, served: bool, there: int
) -> PartitionStatus:
    """One partition with so many events before it; `served`: some process takes part.

    With none before it everything up to `there` is handled.
    """
    state: State = "behind" if behind else "current"
    if one.attempts:
        state = "retrying"
    if not served:
        state = "unserved"
    if one.blocked_at is not None:
        state = "blocked"
    history = read_failures(one.history)
    return PartitionStatus(
        partition=one.partition,
        state=state,
        position=one.position if behind else max(one.position, there),
        behind=behind,
        owner=one.owner if one.owner in living else None,
        attempts=one.attempts,
        failing=one.failing,
        next_at=one.next_at,
        blocked_at=one.blocked_at,
        error=history[-1]["error"] if history else None,
        history=history,
    )


def worst(found: Sequence[PartitionStatus]) -> State:
    """What a subscription as a whole is."""
    states: tuple[State, ...] = ("blocked", "unserved", "retrying", "behind", "current")
    return next((state for state in states if any(one.state == state for one in found)), "current")


def letter_of(row: Row) -> DeadEvent:
    """From its row."""
    history = read_failures(row["history"])
    plain = {name: row[name] for name in row.keys() if name != "history"}
    error = history[-1]["error"] if history else None
    return DeadEvent(**plain, error=error, history=history)
