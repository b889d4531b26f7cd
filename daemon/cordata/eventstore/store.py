"""EventStore: append to streams and read them, within a unit of work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from cordata import log, trace
from cordata.core.eventstream import (
    MAX_EVENTS,
    bucket_of,
    category_of,
    check_event,
    check_page,
    check_stream,
)
from cordata.errors import PermanentError, WrongExpectedVersion
from cordata.eventstore.log import EVENT_TOPIC
from cordata.eventstore.record import EventPage, NewEvent, StoredEvent, stored
from cordata.store import Tx

_encode = msgspec.json.Encoder(decimal_format="string").encode
_LAST = 2**63 - 1
#: Events that `read_all` fetches at once: the largest page.
_CHUNK = 500


class EventStore:
    """The streams, within one unit of work.

        async def deposit(tx: Tx) -> int:
            streams = EventStore(tx)
            version = 0
            async for event in streams.read_all("account-7"):
                version = event.version
                ...decide on event...
            event = NewEvent(type="deposited", payload={"amount": 5})
            return await streams.append("account-7", [event], expected=version)

    The events commit together with everything else that the unit writes. To read many streams in
    their common order, subscribe to their category, or use EventLog. `append` publishes nothing:
    for other systems or `@app.on`, call `tx.publish()`, too.
    """

    __slots__ = ("_tx",)

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    async def append(self, stream: str, events: Sequence[NewEvent], *, expected: int | None) -> int:
        """Append 1 to 1000 events to a stream. Returns the version of the last one.

        `expected` is the version of the stream's last event as the caller knows it; 0: there is no
        such stream yet; None: any version. An append waits for the commit of an earlier one to the
        same stream. Raises: WrongExpectedVersion, then nothing is written; PermanentError when a
        name is malformed or an event too large; TypeError when msgspec cannot write a payload.
        """
        rows = self._rows(stream, events)
        version = await self._grow(stream, len(rows), expected)
        for number, row in enumerate(rows, version - len(rows) + 1):
            await self._tx.write("event.add", **row, version=number)
        self._tx.notify(EVENT_TOPIC)
        return version

    async def read(self, stream: str, *, after: int = 0, limit: int = 100) -> EventPage:
        """One page of a stream: at most `limit` (1 to 500) events from version `after` + 1 on.

        `more` says whether there may be another page, after version `next`: that of the last event
        of this page, or `after` when there is none. `read_all` reads all pages. Raises:
        PermanentError for a wrong `limit`.
        """
        check_page(limit)
        rows = await self._tx.fetch_all("event.of_stream", stream=stream, after=after, limit=limit)
        found = [stored(row) for row in rows]
        end = found[-1].version if found else after
        return EventPage(events=found, next=end, more=len(found) == limit)

    async def read_all(self, stream: str, *, after: int = 0) -> AsyncIterator[StoredEvent]:
        """All events of a stream in order, from version `after` + 1 on.

        They are fetched page by page, so a long stream is never in memory as a whole.
        """
        while True:
            page = await self.read(stream, after=after, limit=_CHUNK)
            for event in page.events:
                yield event
            if not page.more:
                return
            after = page.next

    async def read_back(
        self, stream: str, *, before: int | None = None, limit: int = 100
    ) -> EventPage:
        """As `read`, from the newest event (or version `before` - 1) to the oldest."""
        check_page(limit)
        start = _LAST if before is None else before
        rows = await self._tx.fetch_all(
            "event.of_stream_back", stream=stream, before=start, limit=limit
        )
        found = [stored(row) for row in rows]
        end = found[-1].version if found else start
        return EventPage(events=found, next=end, more=len(found) == limit)

    async def version(self, stream: str) -> int:
        """The version of a stream's last event; 0: there is no such stream."""
        row = await self._tx.fetch_one("event.version", stream=stream)
        return 0 if row is None else int(row["version"])

    def _rows(self, stream: str, events: Sequence[NewEvent]) -> list[dict[str, object]]:
        check_stream(stream)
        if not 1 <= len(events) <= MAX_EVENTS:
            raise PermanentError(
                f"{len(events)} events in one append; 1 to {MAX_EVENTS} are allowed"
            )
        shared = {
            "stream": stream,
            "category": category_of(stream),
            "bucket": bucket_of(stream),
            "created_at": self._tx.now_us,
        }
        request_id = log.request_id.get()
        caused_by = {"request_id": request_id, trace.HEADER: trace.carried(request_id)}
        caused_by = {name: value for name, value in caused_by.items() if value}
        rows = []
        for event in events:
            heads = {**caused_by, **event.headers}
            payload, headers = _encode(event.payload), _encode(heads)
            check_event(event.type, len(payload), len(headers))
            if not payload.startswith(b"{"):
                raise PermanentError(f"the payload of {event.type!r} is not a JSON object")
            texts = {"payload": payload.decode(), "headers": headers.decode()}
            rows.append({**shared, "type": event.type, **texts})
        return rows

    async def _grow(self, stream: str, count: int, expected: int | None) -> int:
        """Make the stream `count` longer and lock its row until the commit; its new version."""
        tx = self._tx
        if expected is None:
            row = await tx.fetch_one("event.extend", stream=stream, count=count)
            assert row is not None
            return int(row["version"])
        # Read first, so that an append with a wrong version fails before it has written anything.
        actual = await self.version(stream)
        if actual == expected:
            if expected == 0:
                changed = await tx.execute("event.open", stream=stream, count=count)
            else:
                changed = await tx.execute(
                    "event.advance", stream=stream, count=count, expected=expected
                )
            if changed:
                return expected + count
            actual = await self.version(stream)
        raise WrongExpectedVersion(stream, expected=expected, actual=actual)
