"""EventLog: all events in their common order, without missing one that commits late.

An event gets its position when it is written, but becomes visible when its transaction commits,
maybe in another order: a reader that saw 7 and moved on would miss a 5 that commits later. Each
look reads the mark, the highest position given so far, and *after* that the transactions in flight
that have written events. Each position up to the mark belongs to one of these, or to a transaction
that has ended. So once all of them have ended, a position up to the mark that is not visible was
rolled back.

    look: mark 7, in flight {a, b}      safe 0
    look: mark 9, in flight {b, c}      safe 0      b still blocks the mark 7
    look: mark 9, in flight {c}         safe 7      a and b have ended

Transactions that write no events delay nothing, however long they run. On a store with one writer
at a time nothing is ever in flight, and each mark is safe at once.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Collection

from cordata import clock
from cordata.core.eventstream import check_page
from cordata.errors import TransientError
from cordata.eventstore.record import EventPage, stored
from cordata.log import logger
from cordata.store import Row, Store, Tx

#: Notified by every append.
EVENT_TOPIC = "event"

log = logger("cordata.events")

_LAST = 2**63 - 1
#: First and longest pause between looks while transactions in flight hold the safe position back.
_FIRST_S, _LONGEST_S = 0.002, 0.1
#: Limit of the marks that wait: more would only make the steps smaller.
_MARKS = 8
#: A transaction that holds the safe position back for this long is logged.
_TELL_S = 10.0


class SafePosition:
    """The position up to which no event can appear later, as far as one reader knows."""

    def __init__(self) -> None:
        self.safe = 0
        self._marks: deque[tuple[int, frozenset[str]]] = deque()

    @property
    def waiting_for(self) -> frozenset[str]:
        """The transactions that hold the safe position back."""
        return self._marks[0][1] if self._marks else frozenset()

    def update(self, position: int, in_flight: Collection[str]) -> int:
        """Take in the mark and the transactions in flight, read together. Returns the safe
        position, for reads that begin later.
        """
        now = frozenset(in_flight)
        if not now:
            self._marks.clear()
            self.safe = max(self.safe, position)
            return self.safe
        self._marks = deque((mark, left & now) for mark, left in self._marks)
        while self._marks and not self._marks[0][1]:
            self.safe = max(self.safe, self._marks.popleft()[0])
        newest = self._marks[-1][0] if self._marks else self.safe
        if position > newest and len(self._marks) < _MARKS:
            self._marks.append((position, now))
        return self.safe


class EventLog:
    """Reads events of one category or of all. Keep one per consumer: it stores the safe position.

        log, position = EventLog(ctx.store), 0
        while True:
            page = await log.read("account", after=position)
            ...
            position = page.next
            if not page.more:
                await log.wait(60.0)

    On PostgreSQL transactions may commit in another order than their events got positions. A read
    ends at the position below which nothing is in flight, so no event appears later among those
    read. Only transactions that append hold it back, for `[store] transaction_timeout_s` at most.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._safe_position = SafePosition()
        #: The safe position, since when it has not moved, and whether a warning was logged.
        self._held_at, self._held_since, self._has_warned = -1, 0.0, False

    @property
    def held_back_by(self) -> frozenset[str]:
        """The transactions that hold the safe position back, as of the last look."""
        return self._safe_position.waiting_for

    async def safe_position(self) -> int:
        """The position up to which every event can be read now. Never decreases, never waits."""
        row = await self._store.read(_mark)
        safe = self._safe_position.update(row["position"], json.loads(row["in_flight"]))
        self._watch(safe)
        return safe

    async def head(self, *, timeout_s: float = 30.0) -> int:
        """The position up to which every event can be read, including all that were committed
        before the call. Raises: TransientError when transactions in flight outlast `timeout_s`.
        """
        row = await self._store.read(_mark)
        wanted = int(row["position"])
        deadline, pause_s = clock.monotonic() + timeout_s, _FIRST_S
        while (safe := await self.safe_position()) < wanted:
            if clock.monotonic() >= deadline:
                names = ", ".join(sorted(self.held_back_by))
                raise TransientError(f"events up to {wanted} wait for transaction {names}")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_S)
        return safe

    async def read(
        self, category: str | None = None, *, after: int = 0, limit: int = 100
    ) -> EventPage:
        """Events after a position, in order; of all categories when `category` is None.

        Includes all that were committed before the call. Raises: PermanentError for a wrong
        `limit`, TransientError as `head`, StoreUnavailable.
        """
        return await self.page(category, after=after, until=await self.head(), limit=limit)

    async def page(
        self, category: str | None, *, after: int, until: int, limit: int = 100
    ) -> EventPage:
        """Events with `after` < position <= `until`, which `safe_position` or `head` gave."""
        check_page(limit)

        async def unit(tx: Tx) -> list[Row]:
            bounds = {"after": after, "until": until, "limit": limit}
            if category is None:
                return await tx.fetch_all("event.of_all", **bounds)
            return await tx.fetch_all("event.of_category", category=category, **bounds)

        found = [stored(row) for row in await self._store.read(unit)]
        more = len(found) == limit
        end = found[-1].position if more else max(after, until)
        return EventPage(events=found, next=end, more=more)

    async def read_back(
        self, category: str | None = None, *, before: int | None = None, limit: int = 100
    ) -> EventPage:
        """Events from the newest to the oldest. One that commits late may be missing between two
        others: use it to show events, not to process them.
        """
        check_page(limit)
        start = _LAST if before is None else before

        async def unit(tx: Tx) -> list[Row]:
            if category is None:
                return await tx.fetch_all("event.of_all_back", before=start, limit=limit)
            return await tx.fetch_all(
                "event.of_category_back", category=category, before=start, limit=limit
            )

        found = [stored(row) for row in await self._store.read(unit)]
        end = found[-1].position if found else start
        return EventPage(events=found, next=end, more=len(found) == limit)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for an append: True, or False after the timeout. As `Store.wait`."""
        return await self._store.wait(EVENT_TOPIC, timeout_s)

    def _watch(self, safe: int) -> None:
        """Log once which transactions hold the safe position back for long."""
        now, held = clock.monotonic(), self.held_back_by
        if not held or safe != self._held_at:
            self._held_at, self._held_since, self._has_warned = safe, now, False
        elif not self._has_warned and now - self._held_since >= _TELL_S:
            self._has_warned = True
            log.warning(
                "events after position %d wait for transaction %s, which has appended events and"
                " has not been committed for more than %g s",
                safe,
                ", ".join(sorted(held)),
                _TELL_S,
            )


async def _mark(tx: Tx) -> Row:
    row = await tx.fetch_one("event.mark")
    assert row is not None
    return row
