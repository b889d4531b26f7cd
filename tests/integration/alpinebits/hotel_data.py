"""What hotel software tells a hub of its hotel H1, and asks for: the messages, sent and checked."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import httpx
from tests.integration.alpinebits import material
from tests.integration.alpinebits.hub import NAMESPACE, Hub
from tests.unit.alpinebits.free_rooms import COMPLETE

PUSH_CONTENT, PULL_CONTENT = "OTA_HotelDescriptiveContentNotif:", "OTA_HotelDescriptiveInfo:"
BASIC = (
    '<FacilityInfo><GuestRooms><GuestRoom Code="DZ" MinOccupancy="1" MaxOccupancy="3"'
    ' MaxChildOccupancy="2"><TypeRoom StandardOccupancy="2" RoomClassificationCode="42"/>'
    '<MultimediaDescriptions><MultimediaDescription InfoCode="25"><TextItems><TextItem>'
    '<Description TextFormat="PlainText" Language="de">Doppel &amp; mehr ä</Description></TextItem>'
    "</TextItems></MultimediaDescription></MultimediaDescriptions></GuestRoom>"
    '<GuestRoom Code="DZ"><TypeRoom RoomID="101"/></GuestRoom></GuestRooms></FacilityInfo>'
)
INFO = '<HotelInfo><Position Latitude="46.1" Longitude="12.2"/></HotelInfo>'


def content_rq(inside: str, hotel: str = "H1") -> str:
    return (
        f'<OTA_HotelDescriptiveContentNotifRQ xmlns="{NAMESPACE}" Version="8.000">'
        f'<HotelDescriptiveContents><HotelDescriptiveContent HotelCode="{hotel}">{inside}'
        "</HotelDescriptiveContent></HotelDescriptiveContents>"
        "</OTA_HotelDescriptiveContentNotifRQ>"
    )


def info_rq(hotel: str = "H1") -> str:
    return (
        f'<OTA_HotelDescriptiveInfoRQ xmlns="{NAMESPACE}" Version="3.000"><HotelDescriptiveInfos>'
        f'<HotelDescriptiveInfo HotelCode="{hotel}"/></HotelDescriptiveInfos>'
        "</OTA_HotelDescriptiveInfoRQ>"
    )


async def push_content(
    hub: Hub, kind: str, inside: str, version: str = "2024-10"
) -> httpx.Response:
    return await hub.post("u1", PUSH_CONTENT + kind, content_rq(inside), version)


async def _accepted(hub: Hub, action: str, document: str, version: str) -> httpx.Response:
    """The answer to u1, which is valid, and 200."""
    answer = await hub.post("u1", action, document, version)
    assert answer.status_code == 200, answer.text
    assert material.problems(answer.content, version) == []
    return answer


async def pull_content(
    hub: Hub, kind: str, version: str = "2024-10", hotel: str = "H1"
) -> httpx.Response:
    return await _accepted(hub, PULL_CONTENT + kind, info_rq(hotel), version)


DAYS = 'Start="2027-01-01" End="2027-01-31"'
TEXT = '<Text TextFormat="PlainText" Language="de">{}</Text>'


def rate(amount: int, days: str = DAYS, room: str = "DZ") -> str:
    code = f'InvTypeCode="{room}"' if room else ""
    return (
        f"<Rate {code} {days}><BaseByGuestAmts>"
        f'<BaseByGuestAmt NumberOfGuests="2" AgeQualifyingCode="10" AmountAfterTax="{amount}"/>'
        "</BaseByGuestAmts></Rate>"
    )


def plan(code: str, *rates: str, kind: str = "New", more: str = 'CurrencyCode="EUR"') -> str:
    told = f"<Rates>{''.join(rates)}</Rates>" if rates else ""
    title = "" if kind == "Remove" else TEXT.format(f"Titel {code}")
    text = f'<Description Name="title">{title}</Description>' if title else ""
    return (
        f'<RatePlan RatePlanNotifType="{kind}" RatePlanCode="{code}" {more}>{told}{text}</RatePlan>'
    )


async def push_plans(
    hub: Hub, *plans: str, complete: bool = False, version: str = "2024-10"
) -> httpx.Response:
    document = (
        f'<OTA_HotelRatePlanNotifRQ xmlns="{NAMESPACE}" Version="1.000">'
        f'{COMPLETE if complete else ""}<RatePlans HotelCode="H1">{"".join(plans)}</RatePlans>'
        "</OTA_HotelRatePlanNotifRQ>"
    )
    return await _accepted(hub, "OTA_HotelRatePlanNotif:RatePlans", document, version)


async def pull_plans(
    hub: Hub, *codes: str, days: str | None = None, version: str = "2024-10", hotel: str = "H1"
) -> httpx.Response:
    dates = f"<DateRange {days}/>" if days is not None else ""
    some = "".join(f"<RatePlanCandidate {code}/>" for code in codes)
    candidates = f"<RatePlanCandidates>{some}</RatePlanCandidates>" if codes else ""
    document = (
        f'<OTA_HotelRatePlanRQ xmlns="{NAMESPACE}" Version="3.000"><RatePlans><RatePlan>{dates}'
        f'{candidates}<HotelRef HotelCode="{hotel}"/></RatePlan></RatePlans></OTA_HotelRatePlanRQ>'
    )
    return await _accepted(hub, "OTA_HotelRatePlan:BaseRates", document, version)


def today() -> date:
    """A test in which it must not change uses the fixture `one_day`."""
    return datetime.now(UTC).date()


def entry(attributes: str, inside: str = "", first: int = 0, last: int = 9) -> str:
    """Of nights counted from today."""
    start, end = today() + timedelta(first), today() + timedelta(last)
    told = f"<InvCounts>{inside}</InvCounts>" if inside else ""
    return (
        f'<Inventory><StatusApplicationControl Start="{start}" End="{end}" {attributes}/>{told}'
        "</Inventory>"
    )


async def push_rooms(
    hub: Hub,
    *entries: str,
    complete: bool = False,
    version: str = "2024-10",
    hotel: str = "H1",
    user: str = "u1",
) -> httpx.Response:
    root, list_, action = (
        ("OTA_HotelAvailNotifRQ", "AvailStatusMessages", "OTA_HotelAvailNotif:FreeRooms")
        if version < "2020"
        else ("OTA_HotelInvCountNotifRQ", "Inventories", "OTA_HotelInvCountNotif:FreeRooms")
    )
    document = (
        f'<{root} xmlns="{NAMESPACE}" Version="1.000">{COMPLETE if complete else ""}'
        f'<{list_} HotelCode="{hotel}">{"".join(entries)}</{list_}></{root}>'
    )
    answer = await hub.post(user, action, document, version)
    if answer.status_code == 200:
        assert material.problems(answer.content, version) == []
    return answer


YOGA = (
    '<GeneralEventInfo Type="1"><Dates>'
    '<Date Start="2027-05-01T10:00:00" End="2027-05-01T11:00:00"/>'
    '</Dates><Comments><Comment Name="Title"><Text Language="en">Yoga</Text></Comment></Comments>'
    "</GeneralEventInfo>"
)


def report(event: str, info: str, hotel: str = "H1", context: str = "X") -> str:
    return (
        f'<EventReport><EventSites><EventSite HotelCode="{hotel}">'
        f'<Event_ID ID="{event}" ID_Context="{context}" Type="18"/></EventSite></EventSites>'
        f"{info}</EventReport>"
    )


async def push_events(hub: Hub, *reports: str, version: str = "2024-10") -> httpx.Response:
    document = (
        f'<OTA_HotelPostEventNotifRQ xmlns="{NAMESPACE}" Version="5.000"><EventReports>'
        f"{''.join(reports)}</EventReports></OTA_HotelPostEventNotifRQ>"
    )
    return await _accepted(hub, "OTA_HotelPostEventNotif:EventReports", document, version)
