"""Reads a HotelReservation of any protocol version into a record, as hotel software does.

It never raises: what violates the protocol is left out, so that any list can be shown. The grammar
tells whether it is valid. Payment cards are not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from alpinehub.alpinebits.document import descendant, descendants
from alpinehub.reservations import MEAL_PLAN_CODES, ReservationData, Status

if TYPE_CHECKING:
    from lxml.etree import _Element

_STATUS: Final[dict[str, Status]] = {
    "Requested": "request",
    "Reserved": "reservation",
    "Modify": "reservation",
    "Cancelled": "cancelled",
}
_GENDERS: Final[dict[str, Literal["female", "male"]]] = {"Female": "female", "Male": "male"}
_MEALS: Final = {str(code): meal for meal, code in MEAL_PLAN_CODES.items()}
#: Stands for a name that is not known.
_NO_NAME = "-"
#: Of ResID_Type: the id at the source, and the campaign.
_RESERVATION, _INTERNET_BROKER = "14", "13"
#: Guests of one age that are read at most: their ages become a list in memory.
_MAX_OF_ONE_AGE = 99


class Span(Struct, frozen=True):
    """A stay: the first night, and the morning the guest leaves."""

    arrival: date
    departure: date


class ReceivedData(ReservationData, frozen=True, kw_only=True, omit_defaults=True):
    """What a guest request says, with what the hub reads but does not send."""

    #: Other stays that would do as well.
    alternatives: tuple[Span, ...] = ()
    #: The last day on which the stay may begin: `nights` from `arrival` or later, no departure.
    arrival_latest: date | None = None
    nights: int = 0
    #: What is included, a line each.
    services: tuple[str, ...] = ()
    #: OTA code of the room's class (Guest Room Info); 0: not given.
    room_class: int = 0
    #: AlpineBits RoomType; 0: not given.
    room_kind: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A guest request as it arrived at hotel software."""

    #: UniqueID: 14, or 15 for a cancellation.
    type: str
    id: str
    #: ResStatus and the two moments as they were written, "" where they are missing.
    res_status: str
    created: str
    changed: str
    hotel_code: str
    hotel_name: str
    #: At the source, and the source's name.
    external_id: str
    source: str
    data: ReceivedData


def read(reservation: _Element) -> Received:
    """What a HotelReservation says."""
    unique = descendant(reservation, "UniqueID")
    property_info = descendant(reservation, "BasicPropertyInfo")
    known = {
        one.get("ResID_Type", ""): one for one in descendants(reservation, "HotelReservationID")
    }
    said = reservation.get("ResStatus", "")
    status = _STATUS.get(said, "request")
    fields = {
        **_stay(reservation),
        **_person(descendant(reservation, "Customer")),
        **_answers(reservation),
        **_campaign(known.get(_INTERNET_BROKER)),
    }
    return Received(
        type=_get(unique, "Type"),
        id=_get(unique, "ID"),
        res_status=said,
        created=reservation.get("CreateDateTime", ""),
        changed=reservation.get("LastModifyDateTime", ""),
        hotel_code=_get(property_info, "HotelCode"),
        hotel_name=_get(property_info, "HotelName"),
        external_id=_get(known.get(_RESERVATION), "ResID_Value"),
        source=_get(known.get(_RESERVATION), "ResID_Source"),
        data=ReceivedData(status=status, **fields),
    )


def _stay(reservation: _Element) -> dict[str, Any]:
    """The first RoomStay; further ones are alternatives, where they say from when to when."""
    stays = list(descendants(reservation, "RoomStay"))
    if not stays:
        return {}
    first, *others = stays
    room, plan = descendant(first, "RoomType"), descendant(first, "RatePlan")
    total = descendant(first, "Total")
    amount = _decimal(_get(total, "AmountAfterTax"))
    spans = [_span(other) for other in others]
    return {
        **_when(first),
        **_guests(first),
        "alternatives": tuple(span for span in spans if span is not None),
        "room_type": _get(room, "RoomTypeCode"),
        "room_class": _number(_get(room, "RoomClassificationCode")) or 0,
        "room_kind": _number(_get(room, "RoomType")) or 0,
        "rate_plan": _get(plan, "RatePlanCode"),
        "meal_plan": _MEALS.get(_get(descendant(first, "MealsIncluded"), "MealPlanCodes")),
        "total": amount,
        "currency": _get(total, "CurrencyCode") if amount is not None else "",
    }


def _when(stay: _Element) -> dict[str, Any]:
    """Arrival and departure, or a number of nights and the window in which they begin."""
    span, window = descendant(stay, "TimeSpan"), descendant(stay, "StartDateWindow")
    arrival, departure = _day(_get(span, "Start")), _day(_get(span, "End"))
    if window is None:
        return {"arrival": arrival, "departure": departure}
    nights = _number(_get(span, "Duration").removeprefix("P").removesuffix("N"))
    return {
        "arrival": _day(_get(window, "EarliestDate")),
        "arrival_latest": _day(_get(window, "LatestDate")),
        "nights": nights or 0,
    }


def _span(stay: _Element) -> Span | None:
    span = descendant(stay, "TimeSpan")
    arrival, departure = _day(_get(span, "Start")), _day(_get(span, "End"))
    return Span(arrival=arrival, departure=departure) if arrival and departure else None


def _guests(stay: _Element) -> dict[str, Any]:
    adults = 0
    children: list[int] = []
    for one in descendants(stay, "GuestCount"):
        count = min(_number(one.get("Count", "")) or 0, _MAX_OF_ONE_AGE)
        age = _number(one.get("Age", ""))
        if age is None:
            adults += count
        else:
            children += [age] * count
    return {"adults": adults, "children": tuple(sorted(children, reverse=True))}


def _person(customer: _Element | None) -> dict[str, Any]:
    if customer is None:
        return {}
    given, surname = _text(customer, "GivenName"), _text(customer, "Surname")
    email = descendant(customer, "Email")
    remark = _get(email, "Remark")
    return {
        "prefix": _text(customer, "NamePrefix"),
        "title": _text(customer, "NameTitle"),
        "first_name": "" if given == _NO_NAME else given,
        "last_name": "" if surname == _NO_NAME else surname,
        "email": _text(customer, "Email"),
        "newsletter": remark == "newsletter:yes" if remark else None,
        "phone": _get(descendant(customer, "Telephone"), "PhoneNumber"),
        "language": customer.get("Language", ""),
        "gender": _GENDERS.get(customer.get("Gender", ""), ""),
        "birth_date": _day(customer.get("BirthDate", "")),
        "address": _text(customer, "AddressLine"),
        "city": _text(customer, "CityName"),
        "postal_code": _text(customer, "PostalCode"),
        "country": _get(descendant(customer, "CountryName"), "Code"),
    }


def _answers(reservation: _Element) -> dict[str, Any]:
    """What the guest wrote and chose."""
    comments = {one.get("Name", ""): one for one in descendants(reservation, "Comment")}
    included = comments.get("included services")
    items = descendants(included, "ListItem") if included is not None else ()
    pets = {"PETS"} & {
        value
        for one in descendants(reservation, "SpecialRequest")
        for value in (one.get("Name"), one.get("RequestCode"))
    }
    return {
        "message": _words(comments.get("customer comment")),
        "extra": _words(comments.get("additional info")),
        "services": tuple(one.text.strip() for one in items if one.text),
        "pets": True if pets else None,
    }


def _campaign(known: _Element | None) -> dict[str, Any]:
    """The campaign. ResID_Value may also be a click id; it is read as the campaign's name."""
    names = (
        ("campaign", "ResID_Value"),
        ("source", "ResID_Source"),
        ("medium", "ResID_SourceContext"),
    )
    utm = {name: value for name, place in names if (value := _get(known, place))}
    return {"utm": utm} if utm else {}


def _get(element: _Element | None, name: str) -> str:
    return "" if element is None else element.get(name, "")


def _text(element: _Element, name: str) -> str:
    found = descendant(element, name)
    return (found.text or "").strip() if found is not None else ""


def _words(comment: _Element | None) -> str:
    return _text(comment, "Text") if comment is not None else ""


def _day(value: str) -> date | None:
    try:
        return date.fromisoformat(value.strip()[:10])
    except ValueError:
        return None


def _number(value: str) -> int | None:
    digits = value.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None


def _decimal(value: str) -> Decimal | None:
    try:
        amount = Decimal(value.strip())
    except InvalidOperation:
        return None
    return amount if amount.is_finite() else None
