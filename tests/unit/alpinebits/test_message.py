"""What the messages about guest requests say when they are read."""

from __future__ import annotations

import pytest

from alpinehub.alpinebits.actions.read import READ_REQUEST, ReadRequest
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.reader import read_here
from alpinehub.alpinebits.rules.acknowledgement import REPORT, Acknowledgement
from alpinehub.alpinebits.transport_error import TransportError


def read_rq(inner: str) -> bytes:
    return (
        '<OTA_ReadRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="1.001"><ReadRequests>'
        f"{inner}</ReadRequests></OTA_ReadRQ>"
    ).encode()


def test_read_request_says_hotel_and_start() -> None:
    document = read_rq(
        '<HotelReadRequest HotelCode="1" HotelName="&quot;Zur Post&quot;">'
        '<SelectionCriteria Start="2022-03-21T15:00:00+01:00"/></HotelReadRequest>'
    )
    assert read_here(document, PROTOCOLS["2024-10"], READ_REQUEST) == ReadRequest(
        hotel_code="1", hotel_name='"Zur Post"', start="2022-03-21T15:00:00+01:00"
    )


def test_read_request_needs_a_code_when_the_version_is_2024() -> None:
    document = read_rq('<HotelReadRequest HotelName="Zur Post"/>')
    assert read_here(document, PROTOCOLS["2022-10"], READ_REQUEST).hotel_code is None
    with pytest.raises(TransportError, match="HotelReadRequest/@HotelCode is missing"):
        read_here(document, PROTOCOLS["2024-10"], READ_REQUEST)


def report(warnings: str, *unique_ids: tuple[int, str]) -> bytes:
    ids = "".join(
        f'<HotelReservation><UniqueID Type="{kind}" ID="{unique}"/></HotelReservation>'
        for kind, unique in unique_ids
    )
    details = (
        f"<NotifDetails><HotelNotifReport><HotelReservations>{ids}</HotelReservations>"
        "</HotelNotifReport></NotifDetails>"
        if ids
        else ""
    )
    held = f"<Warnings>{warnings}</Warnings>" if warnings else ""
    return (
        '<OTA_NotifReportRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="1.000">'
        f"<Success/>{held}{details}</OTA_NotifReportRQ>"
    ).encode()


def test_acknowledgement_tells_accepted_from_refused() -> None:
    document = report(
        '<Warning Type="3" Code="450" RecordID="bad">Room  type\n unknown</Warning>'
        '<Warning Type="3" Code="450" RecordID="taken">but taken all the same</Warning>'
        '<Warning Type="11" Code="450" RecordID="advice">only advice</Warning>'
        '<Warning Type="3" Code="99" RecordID="other">another code</Warning>'
        '<Warning Type=" 03 " Code="0450" RecordID="odd"/>',
        (14, "taken"),
        (15, "gone"),
    )
    assert read_here(document, PROTOCOLS["2024-10"], REPORT) == Acknowledgement(
        accepted=(("14", "taken"), ("15", "gone")),
        rejected={"bad": "Room type unknown", "odd": ""},
    )


def test_acknowledgement_may_hold_nothing() -> None:
    assert read_here(report(""), PROTOCOLS["2020-10"], REPORT) == Acknowledgement(
        accepted=(), rejected={}
    )
