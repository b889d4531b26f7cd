"""Search for operators: events that match filters, page by page, or as they are appended."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from cordata.clock import to_us
from cordata.core.eventstream import MAX_PAGE
from cordata.eventstore.log import EventLog
from cordata.eventstore.record import EventPage, StoredEvent
from cordata.eventstore.store import EventStore
from cordata.store import Store

#: Events are in the order of time, except for long transactions: their times may be out of order
#: by up to this.
_SLACK_US = 60_000_000
_WAIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """A filter: the events that match every given field; without any field, all."""

    stream: str | None = None
    category: str | None = None
    type: str | None = None
    #: Appended at this time or later, in microseconds since the epoch.
    since: int | None = None
    #: Appended before this time, in microseconds since the epoch.
    before: int | None = None

    def matches(self, event: StoredEvent) -> bool:
        """Whether an event of the right stream or category matches the other fields."""
        at = to_us(event.created_at)
        return (
            self.type in (None, event.type)
            and (self.since is None or at >= self.since)
            and (self.before is None or at < self.before)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage:
    """One page of results."""

    events: list[StoredEvent]
    #: `after` of the next page: a version for a stream, else a position. None: that was all.
    next: int | None


class Search:
    """The events of a store. A filter may match few of millions, but each single read is short."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._log = EventLog(store)

    async def page(
        self, wanted: EventFilter, *, after: int | None, limit: int, newest: bool = False
    ) -> SearchPage:
        """At most `limit` events after the last page, oldest first, or `newest` first."""
        found: list[StoredEvent] = []
        place = after if newest or after is not None else await self._begin(wanted)
        while True:
            page = await self._read(wanted, place, newest=newest)
            for number, event in enumerate(page.events):
                if wanted.matches(event):
                    found.append(event)
                    if len(found) == limit:
                        more = page.more or number + 1 < len(page.events)
                        last = event.version if wanted.stream else event.position
                        return SearchPage(events=found, next=last if more else None)
            if not page.more or self._past(wanted, page, newest=newest):
                return SearchPage(events=found, next=None)
            place = page.next

    async def at(self, position: int) -> StoredEvent | None:
        """The event at a position; None: there is none."""
        page = await self._log.page(None, after=position - 1, until=position, limit=1)
        return next(iter(page.events), None)

    async def tail(self, wanted: EventFilter, after: int) -> AsyncGenerator[StoredEvent, None]:
        """Every event that matches after `after`, then those that are appended; never ends."""
        while True:
            page = await self._read(wanted, after, newest=False)
            for event in page.events:
                if wanted.matches(event):
                    yield event
            after = page.next
            if not page.more:
                await self._log.wait(_WAIT_S)

    async def end(self, wanted: EventFilter) -> int:
        """The end of what is stored, as `after` for `tail`."""
        stream = wanted.stream
        if stream is not None:
            return await self._store.read(lambda tx: EventStore(tx).version(stream))
        return await self._log.head()

    async def _read(self, wanted: EventFilter, place: int | None, *, newest: bool) -> EventPage:
        stream = wanted.stream
        if stream is not None:
            if newest:
                return await self._store.read(
                    lambda tx: EventStore(tx).read_back(stream, before=place, limit=MAX_PAGE)
                )
            return await self._store.read(
                lambda tx: EventStore(tx).read(stream, after=place or 0, limit=MAX_PAGE)
            )
        if newest:
            return await self._log.read_back(wanted.category, before=place, limit=MAX_PAGE)
        return await self._log.read(wanted.category, after=place or 0, limit=MAX_PAGE)

    async def _begin(self, wanted: EventFilter) -> int:
        """A position before the first event since `wanted.since`, by binary search."""
        if wanted.since is None or wanted.stream is not None:
            return 0
        low, high = 0, await self._log.head()
        while high - low > MAX_PAGE:
            middle = (low + high) // 2
            page = await self._log.page(None, after=middle, until=high, limit=1)
            if page.events and to_us(page.events[0].created_at) < wanted.since - _SLACK_US:
                low = middle
            else:
                high = middle
        return low

    @staticmethod
    def _past(wanted: EventFilter, page: EventPage, *, newest: bool) -> bool:
        """Whether all further events are too old (`newest`) or too new."""
        if not page.events:
            return True
        at = to_us(page.events[-1].created_at)
        if newest:
            return wanted.since is not None and at < wanted.since - _SLACK_US
        return wanted.before is not None and at >= wanted.before + _SLACK_US
