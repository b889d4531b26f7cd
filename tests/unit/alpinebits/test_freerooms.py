"""What a FreeRooms message may not say, in both forms."""

from __future__ import annotations

from datetime import date

import pytest
from tests.unit.alpinebits.free_rooms import CLOSED, COMPLETE, DZ, LIMIT, ROOM, count, status

from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.reader import read_here
from alpinehub.alpinebits.rules.freerooms import AVAIL, COUNTS, FreeRoomsMessage
from alpinehub.alpinebits.rules.room_counts import Counts, FreeRooms, Key, Period

JAN_1 = date(2027, 1, 1).toordinal()


def counts(*entries: str, complete: bool = True, protocol: str = "2022-10") -> FreeRoomsMessage:
    document = (
        f'<OTA_HotelInvCountNotifRQ xmlns="{NAMESPACE}" Version="1">{COMPLETE if complete else ""}'
        f'<Inventories HotelCode="H1">{"".join(entries)}</Inventories></OTA_HotelInvCountNotifRQ>'
    )
    return read_here(document.encode(), PROTOCOLS[protocol], COUNTS)


def avail(*entries: str, complete: bool = True) -> FreeRoomsMessage:
    document = (
        f'<OTA_HotelAvailNotifRQ xmlns="{NAMESPACE}" Version="1">{COMPLETE if complete else ""}'
        f'<AvailStatusMessages HotelCode="H1">{"".join(entries)}</AvailStatusMessages>'
        "</OTA_HotelAvailNotifRQ>"
    )
    return read_here(document.encode(), PROTOCOLS["2018-10"], AVAIL)


def entry(attributes: str, inside: str = "", days: str = "2027-01-01 2027-01-10") -> str:
    start, end = days.split()
    told = f"<InvCounts>{inside}</InvCounts>" if inside else ""
    return (
        f'<Inventory><StatusApplicationControl Start="{start}" End="{end}" {attributes}/>{told}'
        "</Inventory>"
    )


REFUSED = {
    "end before start": (counts(entry(DZ, days="2027-01-02 2027-01-01")), 404),
    "year 10000": (counts(entry(DZ, days="2027-01-01 10000-01-01")), 404),
    "mixed": (counts(entry(DZ), entry(ROOM)), 450),
    "closings overlap": (
        counts(entry(CLOSED), entry(CLOSED, days="2027-01-10 2027-01-11")),
        404,
    ),
    "closing with counts": (counts(entry(CLOSED, count(2, 1))), 320),
    "closing last": (counts(entry(DZ), entry(CLOSED, days="2027-03-01 2027-03-02")), 450),
    "closing of a category": (counts(entry(f"{CLOSED} {DZ}")), 320),
    "reset as a delta": (counts("<Inventory/>", complete=False), 450),
    "two empty entries": (counts("<Inventory/>", "<Inventory/>"), 321),
    "no category": (counts(entry('InvCode="101"')), 321),
    "twice the same count": (counts(entry(DZ, count(2, 1) + count(2, 2))), 320),
    "too many rooms": (counts(entry(DZ, count(2, "9" * 20))), 320),
    "no limit": (avail(status("")), 321),
    "no type of limit": (avail(status('BookingLimit="1"')), 321),
    "two of one room": (avail(status(LIMIT.format(2), ROOM)), 320),
    "threshold above limit": (
        avail(status(LIMIT.format(1) + ' BookingThreshold="2"')),
        320,
    ),
    "limit too large": (avail(status(LIMIT.format("1" * 6))), 320),
    "no category in the older form": (avail(status(LIMIT.format(1), "")), 321),
    "reset as a delta in the older form": (avail("<AvailStatusMessage/>", complete=False), 450),
}


@pytest.mark.parametrize("name", REFUSED)
def test_message_is_an_error_when(name: str) -> None:
    told, code = REFUSED[name]
    assert {(note.kind, note.code) for note in told.findings} == {("error", code)}
    assert told.rooms == FreeRooms()


def test_counts_are_told_by_type_and_are_0_when_left_out() -> None:
    told = counts(
        entry(DZ, count(2, 3) + count(6, 2) + count(9, "01")),
        entry('InvTypeCode="EZ"', days="2027-01-01+01:00 2027-01-01Z"),
    )
    first = Period(JAN_1, JAN_1 + 9, Counts(3, 2, 1))
    assert told.findings == () and told.complete
    assert told.rooms.entries == {
        Key("DZ"): (first,),
        Key("EZ"): (Period(JAN_1, JAN_1),),
    }
    assert told.uses == {"complete_set", "categories", "out_of_order", "out_of_market"}


def test_what_the_hotel_must_offer_is_told() -> None:
    assert counts(entry(ROOM), complete=False).uses == {"deltas", "rooms"}
    assert counts(entry(CLOSED)).uses == {"complete_set", "closing_seasons"}
    assert counts(entry('InvTypeCode="DZ" AllInvCode="false"')).uses == {
        "complete_set",
        "categories",
    }
    assert counts("<Inventory/>").uses == {"complete_set"}


def test_threshold_is_what_is_free_but_not_bookable() -> None:
    told = avail(status(LIMIT.format(5) + ' BookingThreshold="2"'))
    assert told.thresholds == "all"
    assert told.rooms.entries == {Key("DZ"): (Period(JAN_1, JAN_1 + 9, Counts(3, 0, 2)),)}
    assert avail(status(LIMIT.format(5))).thresholds == "none"
    both = (status(LIMIT.format(5)), status(LIMIT.format(5) + ' BookingThreshold="0"'))
    assert avail(*both).thresholds == "some"
    assert avail("<AvailStatusMessage/>").thresholds == ""


def test_overlap_of_one_room_is_advice_only() -> None:
    both = entry(ROOM), entry(ROOM, days="2027-01-10 2027-01-20")
    assert [note.kind for note in counts(*both).findings] == ["advisory"]
    apart = entry(ROOM), entry(ROOM, days="2027-01-11 2027-01-20")
    assert counts(*apart).findings == ()
    others = entry(ROOM), entry('InvTypeCode="DZ" InvCode="102"')
    assert counts(*others).findings == ()


def test_many_problems_are_not_all_told() -> None:
    assert len(counts(*[entry('InvCode="1"')] * 50).findings) == 20
