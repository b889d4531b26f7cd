"""Records of events: new ones, stored ones, and pages of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from cordata.clock import from_us
from cordata.store import Row

_decode = msgspec.json.decode


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """One event to append."""

    #: What happened, for example `deposited`.
    type: str
    #: Anything that msgspec writes as a JSON object.
    payload: Mapping[str, Any] = field(default_factory=dict)
    #: Metadata, for example who caused the event; `request_id` is added.
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """One event of a stream; it never changes."""

    #: Orders all events of the store; numbers may be missing.
    position: int
    stream: str
    #: 1 for the first event of its stream, without gaps.
    version: int
    type: str
    payload: Mapping[str, Any]
    headers: Mapping[str, str]
    #: When the unit that appended it ran.
    created_at: datetime
    #: 1 when a subscription's handler gets it for the first time.
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Some events in order, and where to continue."""

    events: Sequence[StoredEvent]
    #: Pass it as `after` (`before` when reading backwards) for the next page. A version when a
    #: stream is read, else a position. Events of other categories count as read.
    next: int
    #: Whether the page is full, so that there may be more.
    more: bool


def stored(row: Row, *, attempt: int = 1) -> StoredEvent:
    """The event in a row."""
    headers = row["headers"]
    return StoredEvent(
        position=row["position"],
        stream=row["stream"],
        version=row["version"],
        type=row["type"],
        payload=_decode(row["payload"]),
        headers={} if headers == "{}" else _decode(headers),
        created_at=from_us(row["created_at"]),
        attempt=attempt,
    )
