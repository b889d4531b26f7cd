"""An event as a handler sees it: it happened once, however often it is delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One message of a stream."""

    #: 32 hex digits; the same at every redelivery.
    id: str
    #: For example `reservation.received`.
    type: str
    #: Events of one key belong together; None: no key.
    key: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    #: 1 at the first delivery to the group.
    attempt: int = 1
    #: When the transaction that wrote it ran.
    created_at: datetime
