"""Short forms for what the tests of the event store do again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cordata.eventstore import EventStore, NewEvent, StoredEvent
from cordata.store import Store, Tx


def events(*types: str, **payload: Any) -> list[NewEvent]:
    """New events of these types with one payload."""
    return [NewEvent(type=type_, payload=payload) for type_ in types]


async def append(
    store: Store,
    stream: str,
    *types: str,
    expected: int | None = None,
    headers: Mapping[str, str] | None = None,
    **payload: Any,
) -> int:
    """Append in a unit of its own."""

    async def unit(tx: Tx) -> int:
        new = [NewEvent(type=one, payload=payload, headers=headers or {}) for one in types]
        return await EventStore(tx).append(stream, new, expected=expected)

    return await store.run(unit)


async def history(store: Store, stream: str) -> list[StoredEvent]:
    """All events of a short stream."""

    async def unit(tx: Tx) -> list[StoredEvent]:
        return list((await EventStore(tx).read(stream, limit=500)).events)

    return await store.read(unit)


async def types(store: Store, stream: str) -> list[str]:
    """The types of the events of a stream."""
    return [event.type for event in await history(store, stream)]
