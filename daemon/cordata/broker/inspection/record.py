"""Events, dead letters and groups as an operator sees them, and how they are narrowed down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cordata.errors import CordataError

T = TypeVar("T")

#: Called after each unit of long work: what was done so far, and the share of the whole, 0 to 1.
#: What it raises ends the work between two units.
Progress = Callable[[int, float], None]

#: Rows of one unit at most, so that the write lock is never held for long.
BATCH = 200
#: Between two such units, so that requests get their turn.
PAUSE_S = 0.005
#: Later than every moment, above every position.
EVER = 2**63 - 1


class BadPosition(CordataError):
    """Not a position that a page ended with."""

    code = "bad_position"


class UnknownGroup(CordataError):
    """No such consumer group."""

    code = "unknown_group"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Those of which every given field is true; without any field, all."""

    event_id: str | None = None
    type: str | None = None
    #: Of events only: see `OutboxEvent.state`.
    state: str | None = None
    #: Events that are in the hands of this consumer group, or that it has handled; its letters.
    group: str | None = None
    #: From this moment on, microseconds since the epoch. What counts is when an event was written,
    #: when a dead letter died.
    since: int | None = None
    #: Before this moment (for a purge: handled before it).
    before: int | None = None
    #: Of dead letters only: the kind of the last error, as `ValueError`.
    error: str | None = None

    def bounds(self) -> dict[str, int]:
        """`since` and `before` as parameters of a query."""
        return {
            "since": 0 if self.since is None else self.since,
            "before": EVER if self.before is None else self.before,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some of many, the newest first."""

    items: Sequence[T]
    #: Where the next page goes on; None: there is none.
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay."""

    #: Events that were chosen.
    events: int = 0
    #: Messages that consumer groups got.
    messages: int = 0
    #: Those they did not: the group has handled or claimed the event, or has it as a dead letter.
    left: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(
            events=self.events + other.events,
            messages=self.messages + other.messages,
            left=self.left + other.left,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEvent:
    """One event in the outbox; times are microseconds since the epoch."""

    #: In the order in which events were written.
    position: int
    event_id: str
    type: str
    priority: int
    #: pending: a group has not handled it yet; relayed: it is on its way to a group through
    #: Redis; dead: a group gave it up, the others have handled it; done: all have.
    state: str
    created_at: int
    #: When a pending one is due; None: now, or it is not pending.
    due_at: int | None
    #: When the last group so far handled it.
    handled_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeOutboxEvent(OutboxEvent):
    """With what an event carries, which may be personal data."""

    key: str | None
    #: JSON text.
    payload: str
    #: JSON text.
    headers: str
    #: What became of it in each consumer group: group, state (ready, scheduled, claimed, dead,
    #: handled, relayed), attempts.
    groups: Sequence[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One event that one consumer group gave up; times are microseconds since the epoch."""

    #: Position of the event.
    position: int
    event_id: str
    group: str
    type: str
    attempts: int
    created_at: int
    dead_at: int
    #: Kind of the last error. A whole letter has its text, which may quote the payload.
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeLetter(Letter):
    """With what the event carries, which may be personal data, and all that was tried."""

    key: str | None
    priority: int
    #: JSON text.
    payload: str
    #: JSON text.
    headers: str
    #: Failed attempts, the first first: attempt, at, owner, error.
    history: Sequence[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One consumer group; times are microseconds since the epoch."""

    group: str
    #: Type of its events; *: all.
    type: str
    #: Carries its events: store or redis.
    broker: str
    #: Its messages by state. With Redis, those of its stream are not counted.
    ready: int
    scheduled: int
    claimed: int
    dead: int
    registered_at: int
    #: When a process last had it.
    present_at: int
