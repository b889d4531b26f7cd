"""Events and dead letters as an operator sees them, and the filter of their lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cordata.errors import CordataError

T = TypeVar("T")

#: Called after each unit of long work with the number done so far, and the share of the whole (0 to
#: 1). An exception that it raises ends the work between two units.
Progress = Callable[[int, float], None]

#: Rows of one unit at most, so that it holds the write lock only briefly.
BATCH = 200
#: Pause between two such units, for the writes of others.
PAUSE_S = 0.005
#: Later than every time, above every position.
EVER = 2**63 - 1


class BadPosition(CordataError):
    """The text is not the `next` of a page."""

    code = "bad_position"


class UnknownGroup(CordataError):
    """The store has no such consumer group."""

    code = "unknown_group"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Matches what every given field is true of; without a field, all."""

    event_id: str | None = None
    type: str | None = None
    #: For events only: see `OutboxEvent.state`.
    state: str | None = None
    #: Events that this consumer group has a message of, or has handled; its dead letters.
    group: str | None = None
    #: Not before this time, in microseconds since the epoch. For an event the time when it was
    #: written counts, for a dead letter the time of its last failure.
    since: int | None = None
    #: Before this time (for a purge: handled before it).
    before: int | None = None
    #: For dead letters only: the type of the last error, such as `ValueError`.
    error: str | None = None

    def bounds(self) -> dict[str, int]:
        """`since` and `before` as parameters of a query."""
        return {
            "since": 0 if self.since is None else self.since,
            "before": EVER if self.before is None else self.before,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A page of a list, the newest first."""

    items: Sequence[T]
    #: `after` for the next page; None: this is the last one.
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay."""

    #: Events that were chosen.
    events: int = 0
    #: Messages that were added for consumer groups.
    messages: int = 0
    #: Messages that were not, since the group has handled the event, is still to handle it, or has
    #: it as a dead letter.
    handled: int = 0
    waiting: int = 0
    dead: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(
            events=self.events + other.events,
            messages=self.messages + other.messages,
            handled=self.handled + other.handled,
            waiting=self.waiting + other.waiting,
            dead=self.dead + other.dead,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEvent:
    """One event in the outbox; times are microseconds since the epoch."""

    #: In the order in which events were written.
    position: int
    event_id: str
    type: str
    priority: int
    #: pending: a group has not handled it yet; relayed: it is in Redis, and a group has not handled
    #: it yet; dead: a group gave it up, the others have handled it; done: all have handled it.
    state: str
    created_at: int
    #: When a pending event is due; None: now, or it is not pending.
    due_at: int | None
    #: When the last group so far handled it.
    handled_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeOutboxEvent(OutboxEvent):
    """An event with its payload, which may be personal data."""

    key: str | None
    #: JSON text.
    payload: str
    #: JSON text.
    headers: str
    #: Its state in each consumer group: group, state (ready, scheduled, claimed, dead, handled,
    #: relayed), attempts.
    groups: Sequence[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One event that one consumer group gave up; times are microseconds since the epoch."""

    #: Position of the event.
    position: int
    event_id: str
    group: str
    type: str
    attempts: int
    created_at: int
    dead_at: int
    #: Type of the last error; in the whole record also its text, which may quote the payload.
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeDeadLetter(DeadLetter):
    """A dead letter with its payload, which may be personal data, and all failed attempts."""

    key: str | None
    priority: int
    #: JSON text.
    payload: str
    #: JSON text.
    headers: str
    #: Failed attempts, the oldest first: attempt, at, owner, error.
    history: Sequence[Mapping[str, Any]] = field(default_factory=list)
