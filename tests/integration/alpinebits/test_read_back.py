"""A guest request, rendered and read again as hotel software reads it."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from tests.integration.alpinebits import material
from tests.integration.alpinebits.test_render import HOTEL, REQUEST, RESERVATION, record

from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits.guest import render
from alpinehub.alpinebits.guest.read import Received, read
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.reservations import ReservationData, ResStatus

_FULL = "2024-10/GuestRequests-OTA_ResRetrieveRS-reservation.xml"


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
        phone=data.phone.replace(" ", ""),
        # What is not said in AlpineBits but by a word of its own.
        language=received.data.language,
        meal_plan=received.data.meal_plan,
    )
    assert received.data == plain
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
    version, _, name = _FULL.partition("/")
    root = etree.fromstring(material.message(version, name))
    [received] = [read(one) for one in root.iter(f"{{{NAMESPACE}}}HotelReservation")]
    data = received.data
    assert (data.arrival, data.departure) == (date(2022, 1, 1), date(2022, 1, 12))
    assert (data.adults, data.children, data.room_type) == (2, (9, 3), "bigsuite")
    assert (data.total, data.currency, data.meal_plan) == (Decimal(299), "EUR", "all_inclusive")
    assert (data.first_name, data.prefix, data.title, data.gender) == (
        "Otto",
        "Herr",
        "Dr",
        "male",
    )
    assert (data.city, data.country, data.newsletter) == ("Musterstadt", "DE", True)
    assert data.services == ("Parkplatz", "Schwimmbad", "Skipass")
    assert data.message.startswith("Sind Hunde erlaubt?")
    assert data.utm["campaign"] == "Slogan"
    assert "4444333322221111" not in repr(received)


@pytest.mark.parametrize("version", ["2017-10", "2020-10", "2024-10"])
def test_every_sample_is_read(version: str) -> None:
    material.need()
    count = 0
    for path in (material.FOLDER / "messages" / version).glob("*Res*RS-*.xml"):
        for one in etree.parse(path).iter(f"{{{NAMESPACE}}}HotelReservation"):
            count += bool(read(one).id)
    assert count >= 2


@settings(deadline=None, max_examples=200)
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
