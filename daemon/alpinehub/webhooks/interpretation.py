"""From a submission of a lenient source to a reservation: total, pure, and without a guess.

Any bytes are one of three things: Mapped (a record that every check allows), Unmapped (with a name
for each thing that is missing, unreadable or ambiguous), Ignored (a test, or a robot's work). What
a form asks beyond that, and what cannot be read though no reservation needs it, goes to `extra`,
so that the hotel sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from alpinehub.models import Hotel
from alpinehub.reservations import ReservationData
from alpinehub.webhooks import form, google, wix
from alpinehub.webhooks.field_resolver import Asking
from alpinehub.webhooks.fields import Fields
from alpinehub.webhooks.form_signature import Shape, shape_of
from alpinehub.webhooks.mapping import Mapping
from alpinehub.webhooks.record import record_of
from alpinehub.webhooks.submission import Sheet, Unreadable
from alpinehub.webhooks.values import line


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What a source sent, as the inbox holds it."""

    kind: str
    body: bytes
    content_type: str
    honeypot: str
    #: Microseconds since the epoch; None: not known, so that no stay is in the past.
    received_at: int | None = None


@dataclass(frozen=True, slots=True)
class Mapped:
    """A submission that became a record."""

    data: ReservationData
    #: The sender's own id; None: it has none.
    external_id: str | None
    shape: Shape
    #: Targets whose mapped field was gone, and that another one stands for.
    remapped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unmapped:
    """A submission that a person has to look at."""

    #: `missing:arrival`, `ambiguous:adults`, `not_json`: names only, nothing that a guest wrote.
    problems: tuple[str, ...]
    external_id: str | None = None
    #: None: it could not even be taken apart.
    shape: Shape | None = None


@dataclass(frozen=True, slots=True)
class Ignored:
    """A submission that no hotel is to see."""

    outcome: Literal["test", "spam"]


def interpret(received: Received, mapping: Mapping, hotel: Hotel) -> Mapped | Unmapped | Ignored:
    """What a submission is."""
    try:
        sheet = take_apart(received)
    except Unreadable as error:
        return Unmapped((error.code,))
    if sheet.set_aside:
        return Ignored(sheet.set_aside)
    shape = shape_of(sheet)
    zone = zone_of(hotel)
    asking = Asking(Fields(sheet.answers, mapping), mapping, zone, _today(received, zone))
    external_id = sheet.external_id or line(asking.said("external_id"))[:128] or None
    data = record_of(asking, sheet)
    if data is None:
        return Unmapped(tuple(dict.fromkeys(asking.problems)), external_id, shape)
    return Mapped(data, external_id, shape, tuple(asking.fields.remapped))


def take_apart(received: Received) -> Sheet:
    """The fields of a submission. Raises: Unreadable."""
    if received.kind == "wix":
        return wix.read(received.body)
    if received.kind == "google":
        return google.read(received.body)
    return form.read(received.body, received.content_type, received.honeypot)


def _today(received: Received, zone: tzinfo) -> date | None:
    if received.received_at is None:
        return None
    return datetime.fromtimestamp(received.received_at // 1_000_000, zone).date()


def zone_of(hotel: Hotel) -> tzinfo:
    """The hotel's own time: which day a moment is."""
    try:
        return ZoneInfo(hotel.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC
