"""What is known of subscriptions, their partitions, and the processes that share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to one partition; it ends when the partition gets a newer term."""

    subscription: str
    partition: int
    owner: str
    term: int

    def key(self) -> dict[str, object]:
        """As parameters of every statement that needs the right."""
        return {
            "subscription": self.subscription,
            "partition": self.partition,
            "owner": self.owner,
            "term": self.term,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far one partition is. Times are microseconds since the epoch."""

    subscription: str
    partition: int
    #: All its events up to here are handled.
    position: int
    term: int
    owner: str | None
    #: The position of the event that failed last.
    failing: int | None
    #: Failed attempts at that one.
    attempts: int
    #: When the next attempt is due.
    next_at: int | None
    history: str | None
    #: Since when it waits for an operator.
    blocked_at: int | None

    @property
    def claim(self) -> Claim:
        """The right that the row speaks of."""
        return Claim(
            subscription=self.subscription,
            partition=self.partition,
            owner=self.owner or "",
            term=self.term,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process that takes part."""

    owner: str
    #: Names of the subscriptions that it serves.
    subscriptions: frozenset[str]
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All that is known at one moment."""

    #: When it was read, the store's time in microseconds.
    at: int
    #: Name of each subscription asked for -> number of its partitions.
    partitions: Mapping[str, int]
    standings: Sequence[Standing]
    workers: Sequence[Worker]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was stored of a subscription when a process began with it."""

    category: str
    partitions: int
