"""How many rooms are free, night by night, as periods that do not overlap.

A complete set replaces everything; a delta is laid over the stored periods. If several periods
include the same night, the last one applies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

import msgspec


class Counts(NamedTuple):
    """Rooms of one kind in one night; all 0: fully booked."""

    bookable: int = 0
    out_of_order: int = 0
    out_of_market: int = 0


class Period(NamedTuple):
    """Nights from the first to the last, both of them included, as ordinals of `date`."""

    first: int
    last: int
    counts: Counts = Counts()


class Key(NamedTuple):
    """A room, or a category when `room` is ""."""

    category: str
    room: str = ""


@dataclass(frozen=True, slots=True)
class FreeRooms:
    """The free rooms of a hotel. In a closing season nothing is free, whatever the entries say."""

    closings: tuple[Period, ...] = ()
    entries: dict[Key, tuple[Period, ...]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of periods, closing seasons included."""
        return len(self.closings) + sum(map(len, self.entries.values()))

    @property
    def distinct(self) -> bool | None:
        """Whether it holds distinct rooms, not categories; None: neither."""
        return any(key.room for key in self.entries) if self.entries else None


def lay(layers: Sequence[Period]) -> tuple[Period, ...]:
    """The periods in order, cut so that each night is in only one: the last that includes it.
    Adjacent periods with the same counts become one.
    """
    order = sorted(range(len(layers)), key=lambda at: layers[at].first)
    edges = sorted({one.first for one in layers} | {one.last + 1 for one in layers})
    laid: list[Period] = []
    open_: list[int] = []  # negative places in `layers`: the last one is on top
    begun = 0
    for first, after in pairwise(edges):
        while begun < len(order) and layers[order[begun]].first <= first:
            heappush(open_, -order[begun])
            begun += 1
        while open_ and layers[-open_[0]].last < first:
            heappop(open_)
        if open_:
            _append(laid, Period(first, after - 1, layers[-open_[0]].counts))
    return tuple(laid)


def _append(laid: list[Period], period: Period) -> None:
    if laid and laid[-1].last + 1 == period.first and laid[-1].counts == period.counts:
        period = Period(laid.pop().first, period.last, period.counts)
    laid.append(period)


def apply_complete_set(message: FreeRooms) -> FreeRooms:
    """The free rooms after a complete set, which replaces all of what was stored."""
    entries = {key: lay(periods) for key, periods in message.entries.items()}
    return FreeRooms(lay(message.closings), entries)


def apply_delta(stored: FreeRooms, delta: FreeRooms) -> FreeRooms:
    """The free rooms after a delta, whose periods are laid over the stored ones."""
    entries = dict(stored.entries)
    for key, periods in delta.entries.items():
        entries[key] = lay((*entries.get(key, ()), *periods))
    return FreeRooms(lay((*stored.closings, *delta.closings)), entries)


def is_free_while_closed(rooms: FreeRooms, closings: Sequence[Period]) -> bool:
    """Whether rooms are free in a closing season. The seasons are in order and do not overlap."""
    starts = [one.first for one in closings]
    if not starts:
        return False
    for one in (period for periods in rooms.entries.values() for period in periods):
        at = bisect_right(starts, one.last) - 1
        if one.counts.bookable and at >= 0 and closings[at].last >= one.first:
            return True
    return False


def cut(rooms: FreeRooms, *, first: int = 0, last: int = date.max.toordinal()) -> FreeRooms:
    """Without the periods that ended before the first night, and without the nights after the last.

    A period that includes the first night keeps the nights before it.
    """

    def left(periods: Iterable[Period]) -> tuple[Period, ...]:
        return tuple(
            one if one.last <= last else one._replace(last=last)
            for one in periods
            if one.last >= first and one.first <= last
        )

    entries = {key: some for key, periods in rooms.entries.items() if (some := left(periods))}
    return FreeRooms(left(rooms.closings), entries)


class _Stored(msgspec.Struct, frozen=True):
    """The JSON that is stored. Days are ISO 8601; an entry is [category, room, periods]."""

    closings: list[tuple[date, date]]
    entries: list[tuple[str, str, list[tuple[date, date, int, int, int]]]]


def encode(rooms: FreeRooms) -> bytes:
    """As JSON."""
    day = date.fromordinal
    return msgspec.json.encode(
        _Stored(
            [(day(one.first), day(one.last)) for one in rooms.closings],
            [
                (*key, [(day(one.first), day(one.last), *one.counts) for one in periods])
                for key, periods in sorted(rooms.entries.items())
            ],
        )
    )


def decode(data: bytes) -> FreeRooms:
    """What `encode` wrote."""
    stored = msgspec.json.decode(data, type=_Stored)
    return FreeRooms(
        tuple(Period(first.toordinal(), last.toordinal()) for first, last in stored.closings),
        {
            Key(category, room): tuple(
                Period(first.toordinal(), last.toordinal(), Counts(*counts))
                for first, last, *counts in periods
            )
            for category, room, periods in stored.entries
        },
    )
