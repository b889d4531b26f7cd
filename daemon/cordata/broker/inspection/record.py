"""Entries and dead letters as an operator sees them, and how he narrows them down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cordata.errors import CordataError

T = TypeVar("T")

#: Called with what was done so far, after each unit of long work.
Progress = Callable[[int], None]

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
    #: Of outbox entries only.
    state: str | None = None
    #: Of dead letters only.
    group: str | None = None
    #: Older than this moment, microseconds since the epoch. An entry's age counts from when it was
    #: written (for a purge, from when it was published), a dead letter's from when it died.
    before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some of many, the newest first."""

    items: Sequence[T]
    #: Where the next page goes on; None: there is none.
    next: str | None


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
    #: When a pending one is to be published; None: it was.
    due_at: int | None
    published_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeEntry(Entry):
    """With what an event carries, which may be personal data."""

    key: str | None
    #: JSON text.
    payload: str
    #: JSON text.
    headers: str
    #: What became of it in each consumer group: group, state (ready, claimed, dead, handled),
    #: attempts.
    groups: Sequence[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One event that one consumer group gave up; times are microseconds since the epoch."""

    #: Of the outbox entry.
    id: int
    event_id: str
    group: str
    type: str
    attempts: int
    created_at: int
    dead_at: int
    #: Of the last attempt: its kind. A whole letter has its text, which may quote the payload.
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeLetter(Letter):
    """With what the event carries, which may be personal data, and all that was tried."""

    key: str | None
    lane: str
    priority: int
    #: JSON text.
    payload: str
    #: JSON text.
    headers: str
    #: Failed attempts, the first first: attempt, at, owner, error.
    history: Sequence[Mapping[str, Any]] = field(default_factory=list)
