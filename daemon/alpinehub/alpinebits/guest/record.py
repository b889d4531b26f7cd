"""What is rendered, and why it may not be possible."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from alpinehub.reservations import ReservationData, ResStatus


class UndeliverableCode(StrEnum):
    """`delivery.undeliverable_code`: why a version cannot be written in a protocol. None is ever
    renamed.
    """

    #: No dates, and no way to say so in this protocol.
    NO_STAY = "no_stay"
    NO_ADULTS = "no_adults"
    DEPARTURE_BEFORE_ARRIVAL = "departure_before_arrival"
    #: The first and last day on which the stay may begin.
    WINDOW_INVALID = "window_invalid"
    ROOM_TYPE_MISSING = "room_type_missing"
    ROOM_TYPE_LONG = "room_type_long"
    RATE_PLAN_LONG = "rate_plan_long"
    TOTAL_MISSING = "total_missing"
    TOTAL_INVALID = "total_invalid"
    CURRENCY_UNKNOWN = "currency_unknown"
    EMAIL_INVALID = "email_invalid"
    HOTEL_CODE_LONG = "hotel_code_long"
    CHILD_AGE = "child_age"
    #: What is stored is not a record.
    UNREADABLE = "unreadable"
    #: What was rendered is not what the protocol allows.
    SCHEMA = "schema"
    #: The renderer failed.
    RENDERER = "renderer"


class Undeliverable(Exception):
    """The record cannot be rendered in this version; the text says why, for people."""

    def __init__(self, code: UndeliverableCode, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One version of a guest request, as it lies in the store."""

    #: UniqueID.
    id: str
    res_status: ResStatus
    data: ReservationData
    #: The source's own id of it, or "".
    external_id: str
    #: Name of the source: website, shop.
    source: str
    #: Microseconds since the epoch: of the first version, and of this one.
    created_at: int
    changed_at: int
