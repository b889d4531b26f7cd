"""What `protocol.py` says of the versions is what their schemas say."""

from __future__ import annotations

import pytest
from tests.integration.alpinebits import material

from alpinehub.alpinebits.guest import ADDITIONAL, CUSTOMER
from alpinehub.alpinebits.protocol import PROTOCOLS, Protocol
from alpinehub.hotels import NewHotel, Unusable, check_hotel

each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=list(PROTOCOLS))


def fits(document: str, protocol: Protocol) -> bool:
    root = document[1:].split(maxsplit=1)[0]
    attributes = 'xmlns="http://www.opentravel.org/OTA/2003/05" Version="1"'
    text = document.replace(f"<{root} ", f"<{root} {attributes} ", 1)
    return material.problems(text.encode(), protocol.name) == []


def reservation(inside: str = "", attributes: str = "", status: str = "Requested") -> str:
    return (
        "<OTA_ResRetrieveRS ><Success/><ReservationsList><HotelReservation "
        f'CreateDateTime="2027-01-01T00:00:00Z" ResStatus="{status}" {attributes}>'
        f'<UniqueID Type="14" ID="1"/>{inside}</HotelReservation></ReservationsList>'
        "</OTA_ResRetrieveRS>"
    )


def info(inside: str) -> str:
    hotel = '<BasicPropertyInfo HotelCode="1"/>'
    return reservation(f"<ResGlobalInfo>{inside}{hotel}</ResGlobalInfo>")


@each_protocol
def test_statuses_are_those_of_the_schema(protocol: Protocol) -> None:
    names = ("HANDSHAKE", "FREEROOMS", "RATEPLANS", "INVENTORY", "NOTHING")
    known = {
        status
        for status in (f"ALPINEBITS_SEND_{name}" for name in names)
        if fits(
            "<OTA_HotelRatePlanNotifRS ><Success/><Warnings>"
            f'<Warning Type="11" Status="{status}">x</Warning></Warnings>'
            "</OTA_HotelRatePlanNotifRS>",
            protocol,
        )
    }
    assert known == protocol.statuses


@each_protocol
def test_attributes_of_a_reservation_are_those_of_the_schema(protocol: Protocol) -> None:
    assert fits(reservation(), protocol)
    assert fits(reservation(attributes='RoomStayReservation="false"'), protocol) is protocol.no_stay
    modified = 'LastModifyDateTime="2027-01-01T00:00:00Z"'
    assert fits(reservation(attributes=modified), protocol) is protocol.no_stay


@each_protocol
def test_comments_are_those_of_the_schema(protocol: Protocol) -> None:
    known = {
        name: fits(
            info(f'<Comments><Comment Name="{name}"><Text>x</Text></Comment></Comments>'), protocol
        )
        for name in (CUSTOMER, ADDITIONAL, "other")
    }
    assert known == {CUSTOMER: True, ADDITIONAL: protocol.additional, "other": False}


@each_protocol
def test_pets_are_told_as_the_schema_wants_them(protocol: Protocol) -> None:
    ways = {
        "name": '<SpecialRequest Name="PETS"/>',
        "code": '<SpecialRequest RequestCode="PETS" CodeContext="ALPINEBITS"/>',
    }
    known = {
        way: fits(info(f"<SpecialRequests>{request}</SpecialRequests>"), protocol)
        for way, request in ways.items()
    }
    assert known == {way: way == protocol.pets for way in ways}


@each_protocol
def test_code_that_a_hotel_may_have_is_one_of_the_schema(protocol: Protocol) -> None:
    read = (
        '<OTA_ReadRQ ><ReadRequests><HotelReadRequest HotelCode="{}"/></ReadRequests></OTA_ReadRQ>'
    )
    assert fits(read.format("c" * 16), protocol)
    check_hotel(NewHotel(code="c" * 16, name="x"))
    with pytest.raises(Unusable, match="1 to 16"):
        check_hotel(NewHotel(code="c" * 17, name="x"))


@each_protocol
def test_currencies_are_those_of_the_schema(protocol: Protocol) -> None:
    plan = (
        '<OTA_HotelRatePlanRS ><Success/><RatePlans HotelCode="1"><RatePlan CurrencyCode="{}"/>'
        "</RatePlans></OTA_HotelRatePlanRS>"
    )
    assert fits(plan.format("EUR"), protocol)
    any_of_them = protocol.currencies is None
    assert fits(plan.format("CHF"), protocol) is any_of_them


@each_protocol
def test_handshake_exists_where_there_are_no_housekeeping_actions(protocol: Protocol) -> None:
    ping = "<OTA_PingRQ ><EchoData>x</EchoData></OTA_PingRQ>"
    assert fits(ping, protocol) is not protocol.housekeeping
