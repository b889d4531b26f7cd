"""FreeRooms: how many rooms are free, in the two forms that AlpineBits has.

until 2018-10 ... OTA_HotelAvailNotifRQ: BookingLimit rooms, of which BookingThreshold are free but
                  not bookable
from 2020-10 .... OTA_HotelInvCountNotifRQ: counts by type, and closing seasons
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.outcome import (
    INVALID_DATES,
    INVALID_VALUE,
    MISSING,
    UNABLE,
    Finding,
)
from alpinehub.alpinebits.reader import INBOUND_BYTES, INBOUND_MARKUP, Reader
from alpinehub.alpinebits.rules.inbound_message import (
    InboundMessage,
    Problems,
    any_overlap,
    count,
    day,
)
from alpinehub.alpinebits.rules.room_counts import Counts, FreeRooms, Key, Period
from alpinehub.models import Feature

if TYPE_CHECKING:
    from lxml.etree import _Element

_CONTROL = tag("StatusApplicationControl")
_COUNTS = tag("InvCounts")
_UNIQUE_ID = tag("UniqueID")
_TRUE = ("true", "1")

#: CountType: the place in `Counts`, and what the hotel must offer for it.
_TYPES: Final[dict[str, tuple[int, Feature | None]]] = {
    "2": (0, None),
    "6": (1, "out_of_order"),
    "9": (2, "out_of_market"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeRoomsMessage(InboundMessage):
    """A FreeRooms message."""

    #: The message replaces everything that is stored.
    complete: bool = False
    #: In the order of the document; the periods of a room may overlap.
    rooms: FreeRooms = field(default_factory=FreeRooms)
    #: Which entries have a BookingThreshold.
    thresholds: Literal["", "none", "some", "all"] = ""


class _Message:
    """Reads one message; the two forms differ in where an entry has its counts."""

    def __init__(self, root: _Element) -> None:
        self.complete = root.find(_UNIQUE_ID) is not None
        self.list = root[-1]
        self.problems = Problems()
        self.uses: set[Feature] = {"complete_set" if self.complete else "deltas"}
        self.closings: list[Period] = []
        self.entries: dict[Key, list[Period]] = {}
        #: A closing season stands behind something else.
        self.has_late_closing = False
        #: A distinct room has a count above 1.
        self.has_room_twice = False

    def result(self, thresholds: Literal["", "none", "some", "all"] = "") -> FreeRoomsMessage:
        """The message, checked as a whole."""
        if not self.problems:
            self._check_together()
        findings = tuple(self.problems.findings) or tuple(self._remarks())
        rooms = FreeRooms()
        if not self.problems:
            entries = {key: tuple(periods) for key, periods in self.entries.items()}
            rooms = FreeRooms(tuple(self.closings), entries)
        return FreeRoomsMessage(
            hotel_code=self.list.get("HotelCode"),
            hotel_name=self.list.get("HotelName"),
            findings=findings,
            uses=frozenset(self.uses),
            complete=self.complete,
            rooms=rooms,
            thresholds=thresholds,
            room_types=frozenset(key.category for key in self.entries),
        )

    def is_reset(self) -> bool:
        """Whether it is one empty entry, which deletes everything: allowed in a complete set."""
        if len(self.list) != 1 or len(self.list[0]) or self.list[0].attrib:
            return False
        if not self.complete:
            self.problems.add(
                UNABLE, "a single empty entry resets everything, which needs a complete set"
            )
        return True

    def place(self, control: _Element | None, at: int) -> tuple[Key | None, Period] | None:
        """The key and the nights of an entry, without counts; no key: it is a closing season of the
        whole hotel. None: they are not given.
        """
        if control is None:
            self.problems.add(MISSING, f"entry {at}: StatusApplicationControl is missing")
            return None
        first, last = day(control.get("Start", "")), day(control.get("End", ""))
        if first is None or last is None or last < first:
            self.problems.add(INVALID_DATES, f"entry {at}: invalid combination of Start and End")
            return None
        category, room = control.get("InvTypeCode"), control.get("InvCode")
        nights = Period(first.toordinal(), last.toordinal())
        if control.get("AllInvCode", "").strip() in _TRUE:
            if category is not None or room is not None:
                text = f"entry {at}: AllInvCode stands beside InvTypeCode or InvCode"
                self.problems.add(INVALID_VALUE, text)
                return None
            self.uses.add("closing_seasons")
            return None, nights
        if category is None:
            self.problems.add(MISSING, f"entry {at}: InvTypeCode is missing")
            return None
        self.uses.add("categories" if room is None else "rooms")
        return Key(category, room or ""), nights

    def add(self, key: Key | None, period: Period) -> None:
        """Add an entry; without a key, a closing season."""
        if key is None:
            self.has_late_closing |= bool(self.entries)
            self.closings.append(period)
        else:
            self.entries.setdefault(key, []).append(period)

    def _check_together(self) -> None:
        """Check the rules that concern the whole list."""
        if len({bool(key.room) for key in self.entries}) == 2:
            self.problems.add(UNABLE, "room categories and distinct rooms are mixed")
        if self.has_late_closing:
            self.problems.add(UNABLE, "closing seasons must stand before everything else")
        if _any_overlap(self.closings):
            self.problems.add(INVALID_DATES, "closing seasons overlap")

    def _remarks(self) -> Iterator[Finding]:
        if any(map(_any_overlap, self.entries.values())):
            text = "periods of one room or category overlap: the last one was taken"
            yield Finding(kind="advisory", text=text)
        if self.has_room_twice:
            text = "Count of one room is greater than 1: InvCode names a single room"
            yield Finding(kind="advisory", text=text)


def _any_overlap(periods: Iterable[Period]) -> bool:
    return any_overlap((one.first, one.last) for one in periods)


def _read_counts(root: _Element) -> FreeRoomsMessage:
    message = _Message(root)
    if message.is_reset():
        return message.result()
    for at, inventory in enumerate(message.list, start=1):
        place = message.place(inventory.find(_CONTROL), at)
        counts = inventory.find(_COUNTS)
        if place is None:
            continue
        key, nights = place
        if key is None and counts is not None:
            message.problems.add(INVALID_VALUE, f"entry {at}: a closing season has InvCounts")
            continue
        message.add(key, nights._replace(counts=_counted(key, counts, at, message)))
    return message.result()


def _counted(key: Key | None, counts: _Element | None, at: int, message: _Message) -> Counts:
    """The counts of an entry; a missing one is 0."""
    numbers = [0, 0, 0]
    seen: set[int] = set()
    for one in counts if counts is not None else ():
        place, feature = _TYPES[one.get("CountType", "")]
        number = count(one.get("Count", ""))
        if place in seen:
            message.problems.add(INVALID_VALUE, f"entry {at}: a CountType is listed twice")
        if number is None:
            message.problems.add(INVALID_VALUE, f"entry {at}: Count is too large")
        if feature is not None:
            message.uses.add(feature)
        seen.add(place)
        numbers[place] = number or 0
    message.has_room_twice |= key is not None and bool(key.room) and max(numbers) > 1
    return Counts(*numbers)


def _read_avail(root: _Element) -> FreeRoomsMessage:
    message = _Message(root)
    if message.is_reset():
        return message.result()
    with_threshold = 0
    for at, status in enumerate(message.list, start=1):
        place = message.place(status.find(_CONTROL), at)
        if status.get("BookingThreshold") is not None:
            with_threshold += 1
        if place is None:
            continue
        key, nights = place
        if counts := _limited(status, key, at, message.problems):
            message.add(key, nights._replace(counts=counts))
    if with_threshold == len(message.list):
        return message.result("all")
    return message.result("some" if with_threshold else "none")


def _limited(status: _Element, key: Key | None, at: int, problems: Problems) -> Counts | None:
    """The counts from BookingLimit and BookingThreshold."""
    for name in ("BookingLimit", "BookingLimitMessageType"):
        if status.get(name) is None:
            problems.add(MISSING, f"entry {at}: {name} is missing")
            return None
    limit, threshold = (
        count(status.get(name, "0")) for name in ("BookingLimit", "BookingThreshold")
    )
    if limit is None or threshold is None:
        problems.add(INVALID_VALUE, f"entry {at}: BookingLimit is too large")
        return None
    if key is not None and key.room and limit > 1:
        problems.add(INVALID_VALUE, f"entry {at}: BookingLimit of one room is greater than 1")
    if threshold > limit:
        problems.add(INVALID_VALUE, f"entry {at}: BookingThreshold is greater than BookingLimit")
    return Counts(limit - threshold, 0, threshold)


AVAIL = Reader(
    root="OTA_HotelAvailNotifRQ",
    read=_read_avail,
    type=FreeRoomsMessage,
    max_bytes=INBOUND_BYTES,
    max_markup=INBOUND_MARKUP,
)
COUNTS = Reader(
    root="OTA_HotelInvCountNotifRQ",
    read=_read_counts,
    type=FreeRoomsMessage,
    max_bytes=INBOUND_BYTES,
    max_markup=INBOUND_MARKUP,
)
