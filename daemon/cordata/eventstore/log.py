"""EventLog: all events in their common order, without missing one that commits late.

Positions are handed out when an event is written, but seen when its transaction commits, which may
be in another order: a reader that saw 7 and moved on would miss a 5 that commits later. Each look
tells the highest position handed out so far and, asked *after* that, which transactions in flight
have written events at all. A position at or below that mark belongs to one of these, or to one
that has ended before. So once all of them have ended, whatever is below the mark and not to be
seen will never be: it was rolled back.

    look: mark 7, in flight {a, b}      safe 0
    look: mark 9, in flight {b, c}      safe 0      of the first mark b is left
    look: mark 9, in flight {c}         safe 7      of the first mark none is left

Transactions that write no events hold nothing back, however long they run. On a store where one
writes at a time nothing is ever in flight, and each look is safe at once.
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
#: Between looks while transactions in flight hold the safe position back.
_FIRST_S, _LONGEST_S = 0.002, 0.1
#: Marks that wait at once: more would only make the steps finer.
_MARKS = 8
#: Held back for so long, it is logged by which transaction.
_TELL_S = 10.0


class SafePosition:
    """Up to where every event is there for good, as one reader knows it; it never goes back."""

    def __init__(self) -> None:
        self.safe = 0
        self._marks: deque[tuple[int, frozenset[str]]] = deque()

    @property
    def waiting_for(self) -> frozenset[str]:
        """The transactions that hold the safe position back."""
        return self._marks[0][1] if self._marks else frozenset()

    def look(self, position: int, in_flight: Collection[str]) -> int:
        """Take in what was seen. Returns the safe position, for reads that begin after this."""
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
    """Reads by category or as a whole; keep one per consumer, it knows how far is safe.

        log, position = EventLog(ctx.store), 0
        while True:
            page = await log.read("account", after=position)
            ...
            position = page.next
            if not page.more:
                await log.wait(60.0)

    On PostgreSQL transactions commit in another order than their events got positions. A read goes
    up to the position below which nothing is in flight, so what is read once stays complete. Only
    transactions that append hold it back, which `[store] transaction_timeout_s` bounds.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._safe_position = SafePosition()
        #: Since when the safe position is where it is, and whether the log said so.
        self._held_at, self._held_since, self._has_warned = -1, 0.0, False

    @property
    def held_back_by(self) -> frozenset[str]:
        """The transactions that the last look found in the way; empty: nothing is."""
        return self._safe_position.waiting_for

    async def look(self) -> int:
        """The position up to which every event can be read now. Never goes back, never waits."""
        row = await self._store.read(_mark)
        safe = self._safe_position.look(row["position"], json.loads(row["in_flight"]))
        self._watch(safe)
        return safe

    async def head(self, *, timeout_s: float = 30.0) -> int:
        """The position up to which every event can be read, all included that was committed when
        this was called. Raises: TransientError when transactions in flight outlast the time.
        """
        row = await self._store.read(_mark)
        wanted = int(row["position"])
        deadline, pause_s = clock.monotonic() + timeout_s, _FIRST_S
        while (safe := await self.look()) < wanted:
            if clock.monotonic() >= deadline:
                names = ", ".join(sorted(self.held_back_by))
                raise TransientError(f"events up to {wanted} wait for transaction {names}")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_S)
        return safe

    async def read(
        self, category: str | None = None, *, after: int = 0, limit: int = 100
    ) -> EventPage:
        """Events after a position, in order; of all categories when none is named.

        All that was committed before the call is there. Raises: PermanentError, TransientError as
        `head`, StoreUnavailable.
        """
        return await self.page(category, after=after, until=await self.head(), limit=limit)

    async def page(
        self, category: str | None, *, after: int, until: int, limit: int = 100
    ) -> EventPage:
        """Events in `after` < position <= `until`, which must be a position that `look` gave."""
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
        """Events from the newest to the oldest, for a look at what is there now: one that commits
        late may be missing between two that are shown.
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
        """Log once which transactions hold back for long."""
        now, held = clock.monotonic(), self.held_back_by
        if not held or safe != self._held_at:
            self._held_at, self._held_since, self._has_warned = safe, now, False
        elif not self._has_warned and now - self._held_since >= _TELL_S:
            self._has_warned = True
            log.warning(
                "events after position %d wait for transaction %s, which has appended something"
                " and is not committed since more than %g s",
                safe,
                ", ".join(sorted(held)),
                _TELL_S,
            )


async def _mark(tx: Tx) -> Row:
    row = await tx.fetch_one("event.mark")
    assert row is not None
    return row
