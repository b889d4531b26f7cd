"""What hotel software sends is what the protocol wants, in each version."""

from __future__ import annotations

import pytest

from alpinehub.alpinebits import grammar
from alpinehub.alpinebits.action import ACTIONS
from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits.handshake_json import decode
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits_client import message
from alpinehub.alpinebits_client.message import HotelName, Period
from alpinehub.alpinebits_client.offer import action_of, offer

HOTEL = HotelName(code="EDELW", name='Zum "Löwen" & <Co>\u202e')
ROOMS = (
    Period(start="2027-01-01", end="2027-01-31", room_type="DZ", free=3),
    Period(start="2027-02-01", end="2027-02-02", room_type="DZ", room="101"),
)


@pytest.mark.parametrize("version", PROTOCOLS)
def test_every_message_is_valid(version: str) -> None:
    protocol = PROTOCOLS[version]
    sent = [
        ("OTA_ReadRQ", message.read_requests(HOTEL)),
        ("OTA_ReadRQ", message.read_requests(HOTEL, since="2026-02-01T00:00:00+01:00")),
        ("OTA_NotifReportRQ", message.notif_report([("14", "a"), ("15", "b")], {"c": "<nein>"})),
        ("OTA_NotifReportRQ", message.notif_report([], {"c": "x"})),
    ]
    if not protocol.housekeeping:
        sent.append(("OTA_PingRQ", message.ping(offer())))
    for periods, complete in ((ROOMS, False), (ROOMS, True), ((), True)):
        action, document = message.free_rooms(protocol, HOTEL, periods, complete=complete)
        sent.append((f"{action.partition(':')[0]}RQ", document))
    for root, document in sent:
        assert grammar.parse(document, protocol, root).tag == f"{{{NAMESPACE}}}{root}"


def test_free_rooms_are_limits_until_2018_and_counts_later() -> None:
    season = Period(start="2027-04-01", end="2027-05-01")
    room = Period(
        start="2027-01-01",
        end="2027-01-31",
        room_type="DZ",
        free=3,
        out_of_order=2,
        out_of_market=1,
    )
    action, old = message.free_rooms(PROTOCOLS["2018-10"], HOTEL, [room], complete=False)
    assert action == "OTA_HotelAvailNotif:FreeRooms" and b'BookingLimit="3"' in old
    action, new = message.free_rooms(PROTOCOLS["2024-10"], HOTEL, [season, room], complete=True)
    assert action == "OTA_HotelInvCountNotif:FreeRooms" and b'Instance="CompleteSet"' in new
    assert b'End="2027-05-01" AllInvCode="true"/></Inventory>' in new
    for told in (b'CountType="2" Count="3"', b'CountType="6" Count="2"', b'CountType="9"'):
        assert told in new


def test_offer_is_the_same_when_it_is_read() -> None:
    common = decode(offer())
    assert list(common) == ["2018-10", "2020-10", "2022-10", "2024-10"]
    assert "action_OTA_Ping" in common["2022-10"] and "action_OTA_Ping" not in common["2024-10"]
    assert common["2024-10"]["action_OTA_Read"] == ("OTA_Read_accept_RoomRates",)
    assert "action_OTA_HotelAvailNotif" not in common["2020-10"]
    assert decode("{}") == {}


def test_threshold_is_not_offered_by_who_never_says_it() -> None:
    assert "BookingThreshold" not in offer()


def test_all_that_the_hub_can_is_offered_and_its_action_found() -> None:
    common = decode(offer())
    for action in ACTIONS:
        years = [one for one in PROTOCOLS.values() if not one.housekeeping]
        for protocol in (one for one in years if action.is_announced_in(one)):
            assert action.capability in common[protocol.name], action.capability
            known = set(action.supports_in(protocol))
            # What one has to say with each push, once it is agreed upon; ours does not.
            known -= {"OTA_HotelAvailNotif_accept_BookingThreshold"}
            assert known <= set(common[protocol.name][action.capability])
            assert action_of(action.capability) == action.name
