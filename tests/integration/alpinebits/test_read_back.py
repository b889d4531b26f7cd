"""A guest request, rendered and read again as hotel software reads it."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from tests.examples import examples
from tests.integration.alpinebits import material
from tests.integration.alpinebits.test_render import HOTEL, REQUEST, RESERVATION, record

from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits.guest import render
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits_client.guest import Received, Span, read
from alpinehub.reservations import ReservationData, ResStatus

_FULL = "messages/2024-10/GuestRequests-OTA_ResRetrieveRS-reservation.xml"


def read_back(data: ReservationData, status: ResStatus, version: str) -> Received:
    known = record(data, status, external_id="form-7")
    xml = render(known, HOTEL, PROTOCOLS[version]).decode()
    space = f'<HotelReservation xmlns="{NAMESPACE}" '
    return read(etree.fromstring(xml.replace("<HotelReservation ", space, 1)))


@pytest.mark.parametrize("version", PROTOCOLS)
@pytest.mark.parametrize(
    ("data", "status"), [(REQUEST, "Requested"), (RESERVATION, "Reserved"), (RESERVATION, "Modify")]
)
def test_rendered_request_is_read_back_as_it_was(
    version: str, data: ReservationData, status: ResStatus
) -> None:
    received = read_back(data, status, version)
    plain = msgspec.structs.replace(
        data,
        children=tuple(sorted(data.children, reverse=True)),
        # What is not said in AlpineBits but by a word of its own.
        language=received.data.language,
        meal_plan=received.data.meal_plan,
    )
    assert msgspec.to_builtins(received.data) == msgspec.to_builtins(plain)
    assert (received.type, received.res_status) == ("14", status)
    assert (received.hotel_code, received.external_id, received.source) == (
        "DEMO",
        "form-7",
        "website",
    )


@pytest.mark.parametrize("version", PROTOCOLS)
def test_cancellation_is_read_back_by_its_id(version: str) -> None:
    received = read_back(ReservationData(status="cancelled"), "Cancelled", version)
    assert (received.type, received.id) == ("15", record().id)
    assert received.data.status == "cancelled"


def test_sample_of_a_reservation_is_read_in_full_and_without_its_card() -> None:
    root = etree.fromstring(material.own(_FULL))
    [received] = [read(one) for one in root.iter(f"{{{NAMESPACE}}}HotelReservation")]
    data = received.data
    assert (data.arrival, data.departure) == (date(2027, 2, 6), date(2027, 2, 13))
    assert (data.adults, data.children, data.room_type) == (2, (8, 5), "Zirbe")
    assert (data.total, data.currency, data.meal_plan) == (Decimal("1284.5"), "CHF", "half_board")
    assert (data.first_name, data.prefix, data.title, data.gender) == (
        "Eva",
        "Signora",
        "Dott.ssa",
        "female",
    )
    assert (data.city, data.country, data.newsletter) == ("Bozen", "IT", False)
    assert data.services == ("Garage", "Sauna")
    assert data.message.startswith("Arriviamo tardi.")
    assert data.utm["campaign"] == "Primavera"
    assert "4111111111111111" not in repr(received)


def test_window_and_alternatives_are_read_though_the_hub_sends_none() -> None:
    root = etree.fromstring(
        f'<HotelReservation xmlns="{NAMESPACE}"><RoomStays><RoomStay>'
        '<RoomTypes><RoomType RoomClassificationCode="5" RoomType="8"/></RoomTypes>'
        '<TimeSpan Duration="P7N"><StartDateWindow EarliestDate="2027-02-01"'
        ' LatestDate="2027-02-05"/></TimeSpan></RoomStay>'
        '<RoomStay><TimeSpan Start="2027-03-01" End="2027-03-08"/></RoomStay>'
        "</RoomStays></HotelReservation>"
    )
    data = read(root).data
    assert (data.arrival, data.departure) == (date(2027, 2, 1), None)
    assert (data.arrival_latest, data.nights) == (date(2027, 2, 5), 7)
    assert data.alternatives == (Span(date(2027, 3, 1), date(2027, 3, 8)),)
    assert (data.room_class, data.room_kind) == (5, 8)


@pytest.mark.parametrize("version", ["2017-10", "2020-10", "2024-10"])
def test_every_sample_is_read(version: str) -> None:
    count = 0
    for path in material.samples(f"messages/{version}/*Res*RS-*.xml"):
        for one in etree.parse(path).iter(f"{{{NAMESPACE}}}HotelReservation"):
            count += bool(read(one).id)
    assert count >= 2


@settings(deadline=None, max_examples=examples(200))
@given(
    st.dictionaries(
        st.sampled_from(
            ["Count", "Age", "AmountAfterTax", "Start", "End", "Duration", "EarliestDate", "Type"]
        ),
        st.text(max_size=12).filter(str.isprintable) | st.sampled_from(["-1", "NaN", "1e9", "²"]),
    )
)
def test_reading_raises_nothing_whatever_the_values_are(values: dict[str, str]) -> None:
    root = etree.Element(f"{{{NAMESPACE}}}HotelReservation")
    for name in ("UniqueID", "RoomStay", "GuestCount", "TimeSpan", "StartDateWindow", "Total"):
        parent = root if name in ("UniqueID", "RoomStay") else root[1]
        etree.SubElement(parent, f"{{{NAMESPACE}}}{name}", values)
    assert read(root).data.adults <= 99
