"""What is announced works: one message for each capability, in each version that announces it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.alpinebits.hotel_data import (
    BASIC,
    DAYS,
    INFO,
    YOGA,
    entry,
    plan,
    pull_content,
    pull_plans,
    push_content,
    push_events,
    push_plans,
    push_rooms,
    rate,
    report,
)
from tests.integration.alpinebits.hub import Hub, open_hub
from tests.unit.alpinebits.free_rooms import CLOSED, DZ, LIMIT, ROOM, count, status

from alpinehub.alpinebits.action import announce
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.models import Account

NOBODY = Account(id=1, name="u1", hotels=())
#: Driven by tests of their own: test_transport, test_handshake, test_delivery, tests/.../pms.
ELSEWHERE = (
    "action_getVersion",
    "action_getCapabilities",
    "action_OTA_Ping",
    "action_OTA_Read",
    "action_OTA_HotelResNotif",
)
ANNOUNCED = [
    (version, capability, support)
    for version, protocol in PROTOCOLS.items()
    for capability, supports in announce(NOBODY, protocol).items()
    if not capability.startswith(ELSEWHERE)
    for support in ("", *sorted(supports))
]

#: Entries of FreeRooms by what they use; "deltas" and "complete_set" are how they are sent.
ROOMS = {
    "": DZ,
    "rooms": ROOM,
    "categories": DZ,
    "deltas": DZ,
    "complete_set": DZ,
    "closing_seasons": CLOSED,
    "out_of_order": DZ,
    "out_of_market": DZ,
    "BookingThreshold": DZ,
}
COUNTS = {"out_of_order": count(6, 1), "out_of_market": count(9, 1), "closing_seasons": ""}


def rule(inside: str, of: str = "") -> str:
    return f"<BookingRules><BookingRule {of} {DAYS}>{inside}</BookingRule></BookingRules>"


def offers(attributes: str = "", inside: str = "", second: str = "") -> str:
    return (
        f"<Offers><Offer><OfferRules><OfferRule {attributes}>{inside}"
        '<Occupancy AgeQualifyingCode="10"/></OfferRule></OfferRules></Offer>'
        f"{second}</Offers>"
    )


def week(name: str) -> str:
    return rule(f'<DOW_Restrictions><{name}DaysOfWeek Mon="1" Tue="0"/></DOW_Restrictions>')


OF_ROOM = 'CodeContext="ROOMTYPE" Code="DZ"'
FREE_NIGHT = (
    '<Offer><Discount Percent="100" NightsRequired="7" NightsDiscounted="1"'
    ' DiscountPattern="0000001"/></Offer>'
)
FAMILY = (
    '<Offer><Discount Percent="100"/><Guests><Guest AgeQualifyingCode="8" MaxAge="6" MinCount="1"'
    ' FirstQualifyingPosition="1" LastQualifyingPosition="1"/></Guests></Offer>'
)
LENGTH = (
    '<LengthsOfStay><LengthOfStay Time="3" TimeUnit="Day" MinMaxMessageType="SetMinLOS"/>'
    "</LengthsOfStay>"
)
SUPPLEMENT = f'<Supplement InvType="EXTRA" InvCode="x" Amount="2" {DAYS}/>'
#: Of a rate plan by what it uses: what stands before its rates, and after them.
PLANS = {
    "ArrivalDOW": (week("Arrival"), ""),
    "DepartureDOW": (week("Departure"), ""),
    "RatePlan_BookingRule": (rule(""), ""),
    "RatePlan_RoomType_BookingRule": (rule("", OF_ROOM), ""),
    "RatePlan_mixed_BookingRule": (
        f"<BookingRules><BookingRule {DAYS}/><BookingRule {OF_ROOM} {DAYS}/></BookingRules>",
        "",
    ),
    "Supplements": ("", f"<Supplements>{SUPPLEMENT}</Supplements>"),
    "FreeNightsOffers": ("", offers(second=FREE_NIGHT)),
    "FamilyOffers": ("", offers(second=FAMILY)),
    "OfferRule_BookingOffset": ("", offers('MinAdvancedBookingOffset="P10D"')),
    "OfferRule_DOWLOS": ("", offers(inside=LENGTH)),
}


def rate_plan(support: str) -> str:
    kind = "Full" if support == "full" else "New"
    before, after = PLANS.get(support, ("", ""))
    whole = plan("A", rate(80), kind=kind)
    return whole.replace("<Rates>", f"{before}<Rates>").replace("</Rates>", f"</Rates>{after}")


async def drive(hub: Hub, version: str, capability: str, support: str) -> str:
    """The answer to a message that uses it."""
    used = support.partition("_accept_")[2]
    match capability.removeprefix("action_OTA_"):
        case "HotelAvailNotif":
            # In 2018-10 a threshold needs an agreement, which test_freerooms makes.
            agreed = used == "BookingThreshold" and version == "2017-10"
            more = ' BookingThreshold="0"' if agreed else ""
            told = status(LIMIT.format(1) + more, ROOMS[used])
            answer = await push_rooms(hub, told, complete=used != "deltas", version=version)
        case "HotelInvCountNotif":
            told = entry(ROOMS[used], COUNTS.get(used, count(2, 1)))
            answer = await push_rooms(hub, told, complete=used != "deltas", version=version)
        case "HotelDescriptiveContentNotif_Inventory":
            answer = await push_content(hub, "Inventory", BASIC, version)
        case "HotelDescriptiveContentNotif_Info":
            answer = await push_content(hub, "Info", INFO, version)
        case "HotelDescriptiveInfo_Inventory" | "HotelDescriptiveInfo_Info" as name:
            answer = await pull_content(hub, name.rpartition("_")[2], version)
        case "HotelRatePlanNotif_RatePlans":
            answer = await push_plans(hub, rate_plan(used), version=version)
            if used == "RatePlanJoin":
                joined = 'CurrencyCode="EUR" RatePlanID="M" RatePlanQualifier="{}"'
                both = [plan(code, rate(1), more=joined.format(at)) for at, code in enumerate("BC")]
                answer = await push_plans(hub, *both, version=version)
                told = (await pull_plans(hub, 'RatePlanID="M"', version=version)).text
                assert "Titel B" in told and "Titel C" in told and "Titel A" not in told
            if used == "overlay":
                over = plan("A", rate(90), kind="Overlay", more="")
                answer = await push_plans(hub, over, version=version)
        case "HotelRatePlan_BaseRates":
            await push_plans(hub, rate_plan(""), version=version)
            answer = await pull_plans(hub, version=version)
        case "HotelPostEventNotif_EventReports":
            answer = await push_events(hub, report("1", YOGA), version=version)
        case _:
            pytest.fail(f"nobody drives {capability}")
    return answer.text


@pytest.mark.parametrize(("version", "capability", "support"), ANNOUNCED)
async def test_what_is_announced_works(
    tmp_path: Path, version: str, capability: str, support: str
) -> None:
    used = support.partition("_accept_")[2]
    assert not used or used in ROOMS or used in PLANS or used in ("overlay", "full", "RatePlanJoin")
    async with open_hub(tmp_path) as hub:
        assert "<Success/>" in await drive(hub, version, capability, support)
