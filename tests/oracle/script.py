"""Chapters: what guests, forms and hotel software send, made from a seed.

A step is a dict with `do`, the rest depends on it. What depends on an answer ("acknowledge what the
last poll gave") is told so; the player fills it in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

Step = dict[str, Any]

CHAPTERS = 40
STEPS = 250
#: (code, name, time zone, region, language)
HOTELS = (
    ("ROSE", "Hotel Rose & Söhne", "Europe/Rome", "IT", "de"),
    ("SUN", "Pensione <Sole>", "Europe/Vienna", "AT", "it"),
)
#: (login, hotels, version of AlpineBits)
CLIENTS = (
    ("pms-2017", ("ROSE",), "2017-10"),
    ("pms-2018", ("ROSE", "SUN"), "2018-10"),
    ("pms-2020", ("SUN",), "2020-10"),
    ("pms-2022", ("ROSE",), "2022-10"),
    ("pms-2024", ("ROSE", "SUN"), "2024-10"),
)
#: (hotel, name, kind)
SOURCES = (
    ("ROSE", "booking", "generic"),
    ("ROSE", "homepage", "wix"),
    ("ROSE", "ads", "google"),
    ("ROSE", "contact", "form"),
    ("SUN", "booking", "generic"),
    ("SUN", "contact", "form"),
)
NAMESPACE = "http://www.opentravel.org/OTA/2003/05"

_FIRST = ("Eva", "Jörg", "Zoë", "李", "Anna-Maria", "O'Neil", "<b>Al</b>", "مريم", "Łukasz", "E")
_LAST = ("Muster", "Rossi", "van der Berg", "Müller & Co", "D’Angelo", "王小明", "Novák", '"Q"')
_TEXTS = (
    "Ist das Zimmer frei?",
    "Zwei Zimmer nebeneinander, bitte.\r\nDanke & Gruß",
    "Abbiamo un cane (piccolo) <3",
    "😀 see you soon",
    "x" * 900,
)
_PHONES = ("+39 333 {n}", "0471 {n}", "0039 0471/{n}", "+43 (0)664 {n}", "+49-171-{n}")
_BAD: tuple[dict[str, Any], ...] = (
    {"arrival": "2027-02-30"},
    {"adults": 0},
    {"adults": "two"},
    {"status": "maybe"},
    {"email": "nobody"},
    {"hotel_code": "NONE"},
    {"children": [3, 44]},
    {"currency": "EURO", "total": 5},
    {"unknown_field": 1},
    {"departure": "2020-01-01"},
    {"external_id": "x" * 400},
)


class Chapter:
    """The steps of one chapter; `number` is its seed."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(20_261_123 + number)
        self._number = number
        self._today = date(2027, 1, 10) + timedelta(days=9 * number)
        self._sent: list[dict[str, Any]] = []

    def steps(self, count: int = STEPS) -> Iterator[Step]:
        """All of them, in order."""
        kinds: dict[Callable[[], Step], int] = {
            self._new: 24,
            self._again: 5,
            self._change: 8,
            self._cancel: 5,
            self._bad: 5,
            self._stranger: 2,
            self._lenient: 12,
            self._poll: 16,
            self._acknowledge: 12,
            self._tell: 6,
            self._ask: 4,
            self._junk: 3,
            self._later: 4,
        }
        makers, weights = list(kinds), list(kinds.values())
        for at in range(1, count + 1):
            if at % 125 == 0:
                yield self._next_day()
            else:
                yield self._random.choices(makers, weights)[0]()

    def _new(self) -> Step:
        pick = self._random
        number = len(self._sent)
        arrival = self._today + timedelta(days=pick.randrange(1, 300))
        guest = pick.randrange(40)
        payload: dict[str, Any] = {
            "hotel_code": pick.choice(("ROSE", "ROSE", "SUN")),
            "status": pick.choice(("request", "request", "reservation")),
            "external_id": f"b-{self._number}-{number}",
            "arrival": arrival.isoformat(),
            "departure": (arrival + timedelta(days=pick.randrange(1, 15))).isoformat(),
            "adults": pick.randrange(1, 5),
            "first_name": _FIRST[guest % len(_FIRST)],
            "last_name": _LAST[guest % len(_LAST)],
            "email": f"guest{guest}@example.com",
        }
        if pick.random() < 0.5:
            payload["children"] = [pick.randrange(0, 18) for _ in range(pick.randrange(0, 4))]
        if pick.random() < 0.6:
            payload["phone"] = pick.choice(_PHONES).format(n=1_000_000 + guest * 7_919)
        if pick.random() < 0.4:
            payload["message"] = pick.choice(_TEXTS)
        if pick.random() < 0.5:
            payload["language"] = pick.choice(("de", "it", "en", "fr", "cs"))
        if payload["status"] == "reservation":
            payload |= {"room_type": pick.choice(("DZ", "EZ", "suite <1>")), "rate_plan": "BAR"}
            payload |= {"total": pick.randrange(5_000, 500_000) / 100, "currency": "EUR"}
            payload["meal_plan"] = pick.choice(("breakfast", "half_board", "all_inclusive"))
        if pick.random() < 0.3:
            payload |= {"newsletter": pick.random() < 0.5, "consent": pick.random() < 0.5}
        if pick.random() < 0.2:
            payload |= {"gclid": f"g-{number}", "utm_source": "ads", "utm_campaign": "winter"}
        self._sent.append(payload)
        return self._generic(payload)

    def _generic(self, payload: dict[str, Any], **more: Any) -> Step:
        return {"do": "generic", "source": payload["hotel_code"], "json": payload, **more}

    def _older(self) -> dict[str, Any] | None:
        return self._random.choice(self._sent[-60:]) if self._sent else None

    def _again(self) -> Step:
        older = self._older()
        return self._generic(older) if older else self._new()

    def _change(self) -> Step:
        older = self._older()
        if older is None or older["status"] == "cancelled":
            return self._new()
        change = self._random.choice(("adults", "message", "departure", "phone", "status"))
        newer = dict(older)
        if change == "departure":
            stay = date.fromisoformat(older["departure"]) + timedelta(days=1)
            newer["departure"] = stay.isoformat()
        elif change == "status" and older["status"] == "request":
            newer |= {"status": "reservation", "room_type": "DZ", "rate_plan": "BAR"}
            newer |= {"total": 100.5, "currency": "EUR"}
        else:
            newer |= {"adults": 1 + older["adults"] % 6, "message": self._random.choice(_TEXTS)}
        self._sent[self._sent.index(older)] = newer
        return self._generic(newer)

    def _cancel(self) -> Step:
        older = self._older()
        if older is None:
            return self._new()
        self._sent.remove(older)
        return self._generic({**older, "status": "cancelled"})

    def _bad(self) -> Step:
        self._new()
        payload = self._sent.pop()
        wrong = self._random.choice(_BAD)
        step = self._generic({**payload, **wrong})
        return {**step, "source": payload["hotel_code"]}

    def _stranger(self) -> Step:
        older = self._older()
        return self._generic(older, secret="wrong") if older else self._new()

    def _lenient(self) -> Step:
        pick = self._random
        hotel, name, kind = pick.choice([one for one in SOURCES if one[2] != "generic"])
        guest = pick.randrange(40)
        arrival = self._today + timedelta(days=pick.randrange(1, 300))
        departure = arrival + timedelta(days=pick.randrange(1, 15))
        person = {
            "name": f"{_FIRST[guest % len(_FIRST)]} {_LAST[guest % len(_LAST)]}",
            "email": f"guest{guest}@example.com",
            "phone": f"+39 333 {1_000_000 + guest * 7_919}",
        }
        number = f"{kind}-{self._number}-{pick.randrange(10_000)}"
        if kind == "google":
            columns = {"FULL_NAME": person["name"], "EMAIL": person["email"], "CITY": "Bozen"}
            fields: dict[str, Any] = {
                "lead_id": number,
                "user_column_data": [
                    {"column_id": key, "column_name": key.title(), "string_value": value}
                    for key, value in columns.items()
                ],
                "form_id": 1,
                "campaign_id": 2,
                "gcl_id": f"gcl-{number}",
            }
        elif kind == "wix":
            fields = {
                "data": {
                    "formName": "Anfrage",
                    "submissionId": number,
                    "field:email_1": person["email"],
                    "submissions": [
                        {"label": "Anreise", "value": arrival.isoformat()},
                        {"label": "Abreise", "value": departure.isoformat()},
                        {"label": "Erwachsene", "value": str(pick.randrange(1, 5))},
                        {"label": "Nachricht", "value": pick.choice(_TEXTS)},
                    ],
                    "contact": {
                        "name": {"first": _FIRST[guest % len(_FIRST)], "last": "Wix"},
                        "email": person["email"],
                        "locale": "de",
                    },
                }
            }
        else:
            fields = {
                **person,
                "Anreisedatum": arrival.strftime("%d.%m.%Y"),
                "Abreisedatum": departure.strftime("%d.%m.%Y"),
                "Erwachsene": str(pick.randrange(1, 5)),
                "Nachricht": pick.choice(_TEXTS),
                "website_url": "",
            }
            if pick.random() < 0.1:
                del fields["Anreisedatum"]
        return {"do": "lenient", "kind": kind, "hotel": hotel, "name": name, "fields": fields}

    def _poll(self) -> Step:
        client, hotels, version = self._random.choice(CLIENTS)
        step = {"do": "poll", "client": client, "version": version}
        step["hotel"] = self._random.choice(hotels)
        if self._random.random() < 0.08:
            back = timedelta(days=self._random.randrange(0, 3))
            step["start"] = f"{(self._today - back).isoformat()}T00:00:00+00:00"
        if self._random.random() < 0.03:
            step["hotel"] = "NONE"
        return step

    def _acknowledge(self) -> Step:
        client, _, version = self._random.choice(CLIENTS)
        part = self._random.choice(("all", "all", "all", "half", "refuse one", "unknown"))
        return {"do": "acknowledge", "client": client, "version": version, "part": part}

    def _tell(self) -> Step:
        """Hotel software tells of its hotel."""
        pick = self._random
        client, hotels, version = pick.choice(CLIENTS[1:])
        hotel = pick.choice(hotels)
        first = self._today + timedelta(days=pick.randrange(0, 90))
        last = first + timedelta(days=pick.randrange(0, 20))
        kind = pick.choice(("rooms", "rooms", "rates", "inventory"))
        if kind == "rooms" and version < "2020":
            action = "OTA_HotelAvailNotif:FreeRooms"
            root, number = "OTA_HotelAvailNotifRQ", "1.002"
            inside = (
                '<UniqueID Type="16" ID="1" Instance="CompleteSet"/>'
                f'<AvailStatusMessages HotelCode="{hotel}">'
                f'<AvailStatusMessage BookingLimit="{pick.randrange(9)}"'
                ' BookingLimitMessageType="SetLimit">'
                f'<StatusApplicationControl Start="{first}" End="{last}" InvTypeCode="DZ"/>'
                "</AvailStatusMessage></AvailStatusMessages>"
            )
        elif kind == "rooms":
            action = "OTA_HotelInvCountNotif:FreeRooms"
            root, number = "OTA_HotelInvCountNotifRQ", "4"
            complete = '<UniqueID Type="16" ID="1" Instance="CompleteSet"/>'
            inside = (
                f"{complete if pick.random() < 0.5 else ''}"
                f'<Inventories HotelCode="{hotel}"><Inventory>'
                f'<StatusApplicationControl Start="{first}" End="{last}" InvTypeCode="DZ"/>'
                f'<InvCounts><InvCount CountType="2" Count="{pick.randrange(1, 9)}"/></InvCounts>'
                "</Inventory></Inventories>"
            )
        elif kind == "rates":
            action = "OTA_HotelRatePlanNotif:RatePlans"
            root, number = "OTA_HotelRatePlanNotifRQ", "1.000"
            inside = (
                f'<RatePlans HotelCode="{hotel}"><RatePlan RatePlanNotifType="New"'
                f' CurrencyCode="EUR" RatePlanCode="P{pick.randrange(4)}"><Rates>'
                '<Rate RateTimeUnit="Day" UnitMultiplier="1"><BaseByGuestAmts>'
                '<BaseByGuestAmt Type="7"/></BaseByGuestAmts>'
                '<MealsIncluded MealPlanIndicator="true" MealPlanCodes="12"/></Rate>'
                f'<Rate InvTypeCode="DZ" Start="{first}" End="{last}"><BaseByGuestAmts>'
                '<BaseByGuestAmt NumberOfGuests="2" AgeQualifyingCode="10"'
                f' AmountAfterTax="{pick.randrange(50, 200)}"/></BaseByGuestAmts></Rate></Rates>'
                '<Description Name="title"><Text TextFormat="PlainText" Language="en">Plan</Text>'
                "</Description></RatePlan></RatePlans>"
            )
        else:
            action = "OTA_HotelDescriptiveContentNotif:Inventory"
            root, number = "OTA_HotelDescriptiveContentNotifRQ", "8.000"
            inside = (
                f'<HotelDescriptiveContents><HotelDescriptiveContent HotelCode="{hotel}">'
                '<FacilityInfo><GuestRooms><GuestRoom Code="DZ" MaxOccupancy="2" MinOccupancy="1">'
                '<TypeRoom StandardOccupancy="2" RoomClassificationCode="42"/>'
                '<MultimediaDescriptions><MultimediaDescription InfoCode="25"><TextItems><TextItem>'
                '<Description TextFormat="PlainText" Language="en">'
                f"Double room {pick.randrange(9)}</Description></TextItem></TextItems>"
                "</MultimediaDescription></MultimediaDescriptions></GuestRoom></GuestRooms>"
                "</FacilityInfo></HotelDescriptiveContent></HotelDescriptiveContents>"
            )
        document = f'<{root} xmlns="{NAMESPACE}" Version="{number}">{inside}</{root}>'
        if pick.random() < 0.1:
            document = document.replace('Start="', 'Begin="', 1)
        return self._call(client, version, action, document)

    def _ask(self) -> Step:
        """Hotel software asks what the hub can do, or what is known of a hotel."""
        pick = self._random
        client, hotels, version = pick.choice(CLIENTS)
        hotel = pick.choice(hotels)
        kind = pick.choice(("shake", "inventory", "rates"))
        if kind == "shake" and version < "2018":
            return self._call(client, version, "getCapabilities", None)
        if kind == "shake":
            offer = '{"versions":[{"version":"%s","actions":[{"action":"action_OTA_Read"}]}]}'
            echo = (offer % version).replace('"', "&quot;")
            document = (
                f'<OTA_PingRQ xmlns="{NAMESPACE}" Version="8.000">'
                f"<EchoData>{echo}</EchoData></OTA_PingRQ>"
            )
            return self._call(client, version, "OTA_Ping:Handshaking", document)
        if kind == "inventory":
            document = (
                f'<OTA_HotelDescriptiveInfoRQ xmlns="{NAMESPACE}" Version="3.000">'
                f'<HotelDescriptiveInfos><HotelDescriptiveInfo HotelCode="{hotel}"/>'
                "</HotelDescriptiveInfos></OTA_HotelDescriptiveInfoRQ>"
            )
            return self._call(client, version, "OTA_HotelDescriptiveInfo:Inventory", document)
        document = (
            f'<OTA_HotelRatePlanRQ xmlns="{NAMESPACE}" Version="3.000"><RatePlans><RatePlan>'
            f'<DateRange Start="{self._today}" End="{self._today + timedelta(days=60)}"/>'
            f'<HotelRef HotelCode="{hotel}"/></RatePlan></RatePlans></OTA_HotelRatePlanRQ>'
        )
        return self._call(client, version, "OTA_HotelRatePlan:BaseRates", document)

    def _junk(self) -> Step:
        client, _, version = self._random.choice(CLIENTS)
        action, document, said = self._random.choice(
            (
                ("OTA_Read:GuestRequests", "<OTA_ReadRQ", version),
                ("OTA_Read:GuestRequests", "<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>", version),
                ("OTA_Read:Nothing", "<x/>", version),
                ("OTA_Read:GuestRequests", None, version),
                ("OTA_Read:GuestRequests", "<x/>", "1999-01"),
                ("OTA_Ping:Handshaking", "<OTA_PingRQ/>", version),
            )
        )
        return self._call(client, said, action, document)

    def _call(self, client: str, version: str, action: str, document: str | None) -> Step:
        step: Step = {"do": "call", "client": client, "version": version}
        return {**step, "action": action, "document": document}

    def _later(self) -> Step:
        return {"do": "later", "minutes": self._random.randrange(1, 120)}

    def _next_day(self) -> Step:
        """At nine on the next morning: the reports of the day before, and what is done daily."""
        self._today += timedelta(days=1)
        return {"do": "next day", "day": self._today.isoformat()}

    @property
    def begins(self) -> date:
        """The first day."""
        return date(2027, 1, 10) + timedelta(days=9 * self._number)
