"""Entries and dead letters as an operator sees them, and how he narrows them down."""

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
#: Later than every moment, above every id.
EVER = 2**63 - 1


class BadPosition(CordataError):
    """Not a position that a page ended with."""

    code = "bad_position"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Those of which every given field is true; without any field, all."""

    event_id: str | None = None
    type: str | None = None
    lane: str | None = None
    #: Of outbox entries only.
    state: str | None = None
    #: Entries that are in the hands of this consumer group, or that it has handled; its letters.
    group: str | None = None
    #: From this moment on, microseconds since the epoch. What counts is when an entry was written,
    #: when a dead letter died.
    since: int | None = None
    #: Before this moment (for a purge: published before it).
    before: int | None = None
    #: The kind of the last error, as `ValueError`: of the relay, for a dead letter of the handler.
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
    """What publishing again did."""

    #: Published entries that were chosen.
    entries: int = 0
    #: Messages that consumer groups got.
    messages: int = 0
    #: Those they did not: the group has handled the event, has it in hand or as a dead letter.
    left: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(
            entries=self.entries + other.entries,
            messages=self.messages + other.messages,
            left=self.left + other.left,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event in the outbox; times are microseconds since the epoch."""

    id: int
    event_id: str
    type: str
    lane: str
    priority: int
    state: str
    created_at: int
    #: When one that waits is to be published; None: it does not wait.
    due_at: int | None
    published_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeEntry(Entry):
    """With what an event carries, which may be personal data."""

    key: str | None
    #: Of the relay, that failed.
    attempts: int
    #: Of the relay's last failed attempt.
    last_error: str | None
    #: JSON text.
    payload: str
    #: JSON text.
    headers: str
    #: What became of it in each consumer group: group, state (waiting, ready, claimed, dead,
    #: handled; with Redis in stream: it waits there or is in somebody's hands), attempts.
    groups: Sequence[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One event that one consumer group gave up; times are microseconds since the epoch."""

    #: Of the outbox entry.
    id: int
    event_id: str
    group: str
    type: str
    lane: str
    attempts: int
    created_at: int
    dead_at: int
    #: Of the last attempt: its kind. A whole letter has its text, which may quote the payload.
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
