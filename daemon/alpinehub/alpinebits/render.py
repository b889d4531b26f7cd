"""A guest request as XML of one protocol version: a pure function, or the reason why it cannot be.

What a version cannot hold is left out or cut (campaign ids) where the hotel loses nothing by it;
where it would, the record is held and says why. Everything stays in full in the store.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from alpinehub.alpinebits.answer import opening
from alpinehub.alpinebits.markup import attribute, clean, text
from alpinehub.alpinebits.version import Version
from alpinehub.reservations import MEAL_PLAN_CODES, ReservationData, ResStatus

if TYPE_CHECKING:
    from alpinehub.directory import Hotel

_MAX_NAME_CHARS = 64
_MAX_RES_ID_CHARS = 64
_MAX_HOTEL_NAME_CHARS = 128
#: Stands for a name that was not told: both must be there.
_NO_NAME = "-"
#: OTA unique id types: what a HotelReservationID tells.
_RESERVATION, _INTERNET_BROKER = 14, 13
_VOICE = 1

_EMAIL = re.compile(r"[^\s@]+@\S+")
_LANGUAGE = re.compile(r"[a-z]{2}")
_NOT_DIGITS = re.compile(r"[^0-9]")


class Held(Exception):
    """The record cannot be rendered in this version; the argument says why, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One version of a guest request, as it lies in the store."""

    #: UniqueID.
    id: str
    res_status: ResStatus
    data: ReservationData
    #: The source's own id of it, or "".
    external_id: str
    #: Name of the source: website, shop.
    source: str
    #: Microseconds since the epoch: of the first version, and of this one.
    created_at: int
    changed_at: int


def response_start() -> bytes:
    """A list of guest requests up to the first of them."""
    return f"{opening('OTA_ResRetrieveRS')}<Success/><ReservationsList>".encode()


RESPONSE_END = b"</ReservationsList></OTA_ResRetrieveRS>"


def response(reservations: Iterable[bytes]) -> bytes:
    """The whole OTA_ResRetrieveRS around rendered reservations; none is an empty list."""
    return b"".join((response_start(), *reservations, RESPONSE_END))


def render(record: Record, hotel: Hotel, version: Version) -> bytes:
    """One HotelReservation. Raises: Held."""
    if version.max_hotel_code_chars and len(hotel.code) > version.max_hotel_code_chars:
        raise Held(f"the hotel code is longer than {version.max_hotel_code_chars} characters")
    newsletter = _is_newsletter(record)
    if newsletter and not version.newsletter:
        raise Held("a newsletter subscription without a stay exists only from version 2022-10")
    start, body = _start(record, version, newsletter), _body(record, hotel, newsletter)
    return f"{start}{body}</HotelReservation>".encode()


def _is_newsletter(record: Record) -> bool:
    """Whether the guest wants the newsletter and nothing else."""
    data = record.data
    stay = data.arrival or data.departure
    return bool(data.status == "request" and data.newsletter and not stay)


def _start(record: Record, version: Version, newsletter: bool) -> str:
    cancelled = record.res_status == "Cancelled"
    attributes = f'CreateDateTime="{_date_time(record.created_at)}"'
    if version.newsletter:
        if record.changed_at > record.created_at:
            attributes += f' LastModifyDateTime="{_date_time(record.changed_at)}"'
        if not cancelled:
            attributes += f' RoomStayReservation="{"false" if newsletter else "true"}"'
    return (
        f'<HotelReservation {attributes} ResStatus="{record.res_status}">'
        f'<UniqueID Type="{15 if cancelled else 14}" ID="{attribute(clean(record.id))}"/>'
    )


def _body(record: Record, hotel: Hotel, newsletter: bool) -> str:
    """Everything after the UniqueID."""
    data = record.data
    if record.res_status != "Cancelled":
        stays = "" if newsletter else _room_stays(record)
        return stays + _guests(data, hotel) + _global_info(record, hotel)
    try:
        stays = _room_stays(record) if data.arrival else ""
        guests = _guests(data, hotel) if _is_known(data) else ""
        return stays + guests + _global_info(record, hotel)
    except Held:
        return ""  # the UniqueID alone cancels; a cancellation is never held


def _is_known(data: ReservationData) -> bool:
    return bool(data.first_name or data.last_name or data.email or data.phone)


# The stay


def _room_stays(record: Record) -> str:
    data = record.data
    booked = record.res_status in ("Reserved", "Modify")
    if booked and not (data.room_type and data.total is not None):
        raise Held("a reservation needs a room type and a total")
    if not (data.arrival and data.departure):
        raise Held("there is no arrival and departure")
    if data.departure <= data.arrival:
        raise Held("the departure is not after the arrival")
    span = f'<TimeSpan Start="{data.arrival.isoformat()}" End="{data.departure.isoformat()}"/>'
    return (
        f"<RoomStays><RoomStay>{_room_type(data)}{_rate_plan(data, booked)}{_guest_counts(data)}"
        f"{span}{_total(data)}</RoomStay></RoomStays>"
    )


def _room_type(data: ReservationData) -> str:
    code = clean(data.room_type)
    if len(code) > 8:
        raise Held("the room type is longer than 8 characters")
    if not code:
        return ""
    return f'<RoomTypes><RoomType RoomTypeCode="{attribute(code)}"/></RoomTypes>'


def _rate_plan(data: ReservationData, booked: bool) -> str:
    """A reservation always tells its meals: where nothing was said, none were promised."""
    code = clean(data.rate_plan)
    if len(code) > 64:
        raise Held("the rate plan is longer than 64 characters")
    meals = data.meal_plan or ("room_only" if booked else None)
    if not (code or meals):
        return ""
    named = f' RatePlanCode="{attribute(code)}"' if code else ""
    if meals is None:
        return f"<RatePlans><RatePlan{named}/></RatePlans>"
    return (
        f'<RatePlans><RatePlan{named}><MealsIncluded MealPlanIndicator="true" '
        f'MealPlanCodes="{MEAL_PLAN_CODES[meals]}"/></RatePlan></RatePlans>'
    )


def _guest_counts(data: ReservationData) -> str:
    """One count of adults, without an age; children of one age are counted together."""
    if data.adults < 1:
        raise Held("there are no adults")
    if any(age < 0 for age in data.children):
        raise Held("a child has a negative age")
    children = "".join(
        f'<GuestCount Count="{count}" Age="{age}"/>'
        for age, count in sorted(Counter(data.children).items(), reverse=True)
    )
    return f'<GuestCounts><GuestCount Count="{data.adults}"/>{children}</GuestCounts>'


def _total(data: ReservationData) -> str:
    if data.total is None:
        return ""
    if not data.total.is_finite() or (data.total.is_signed() and data.total):
        raise Held("the total is not an amount of money")
    currency = clean(data.currency)
    if len(currency) != 3:
        raise Held("the currency of the total is not known")
    amount = format(abs(data.total), "f")
    return f'<Total AmountAfterTax="{amount}" CurrencyCode="{attribute(currency)}"/>'


# The guest


def _guests(data: ReservationData, hotel: Hotel) -> str:
    contact = clean(data.email) or clean(data.phone)
    given, surname = split_name(clean(data.first_name), clean(data.last_name), contact)
    language = data.language if _LANGUAGE.fullmatch(data.language) else hotel.language
    said = f' Language="{language}"' if _LANGUAGE.fullmatch(language) else ""
    return (
        f"<ResGuests><ResGuest><Profiles><ProfileInfo><Profile><Customer{said}><PersonName>"
        f"<GivenName>{text(given)}</GivenName><Surname>{text(surname)}</Surname></PersonName>"
        f"{_telephone(data)}{_email(data)}"
        "</Customer></Profile></ProfileInfo></Profiles></ResGuest></ResGuests>"
    )


def split_name(first: str, last: str, contact: str) -> tuple[str, str]:
    """Given name and surname, 1 to 64 characters each: the schema wants both.

    Where one field held the whole name, its last word is the surname; of one word alone the
    given name is "-". Who told no name is called by his contact, so that a hotelier sees whom
    he has before him.
    """
    first, last = first.strip(), last.strip()
    if not (first and last):
        words = (first or last).split() or [contact.strip() or _NO_NAME]
        first, last = " ".join(words[:-1]) or _NO_NAME, words[-1]
    return first[:_MAX_NAME_CHARS], last[:_MAX_NAME_CHARS]


def _telephone(data: ReservationData) -> str:
    number = data.phone.strip()
    digits = _NOT_DIGITS.sub("", number)
    if not digits:
        return ""
    plus = "+" if number.startswith("+") else ""
    return f'<Telephone PhoneTechType="{_VOICE}" PhoneNumber="{plus}{digits}"/>'


def _email(data: ReservationData) -> str:
    address = clean(data.email)
    if not address:
        return ""
    if not _EMAIL.fullmatch(address):
        raise Held("the e-mail address is not one")
    remark = ""
    if data.newsletter is not None:
        remark = f' Remark="newsletter:{"yes" if data.newsletter else "no"}"'
    return f"<Email{remark}>{text(address)}</Email>"


# Comment, ids, hotel


def _global_info(record: Record, hotel: Hotel) -> str:
    message = clean(record.data.message)
    comments = ""
    if message.strip():
        comments = (
            f'<Comments><Comment Name="customer comment"><Text>{text(message)}</Text>'
            "</Comment></Comments>"
        )
    name = clean(hotel.name)[:_MAX_HOTEL_NAME_CHARS]
    named = f' HotelName="{attribute(name)}"' if name else ""
    return (
        f"<ResGlobalInfo>{comments}{_ids(record)}"
        f'<BasicPropertyInfo HotelCode="{attribute(clean(hotel.code))}"{named}/></ResGlobalInfo>'
    )


def _ids(record: Record) -> str:
    """The source's own id, and what is known of the campaign that brought the guest."""
    data = record.data
    click = data.gclid or data.fbclid
    utm = data.utm
    ids = _id(_RESERVATION, record.external_id, record.source, "")
    if click or utm:
        value = click or utm.get("campaign", "")
        ids += _id(_INTERNET_BROKER, value, utm.get("source", ""), utm.get("medium", ""))
    return f"<HotelReservationIDs>{ids}</HotelReservationIDs>" if ids else ""


def _id(kind: int, value: str, source: str, context: str) -> str:
    """A HotelReservationID; its three texts are cut where the schema ends them."""
    names = ("ResID_Value", "ResID_Source", "ResID_SourceContext")
    told = {
        name: clean(said)[:_MAX_RES_ID_CHARS]
        for name, said in zip(names, (value, source, context), strict=True)
    }
    if not (told["ResID_Value"] or (kind == _INTERNET_BROKER and any(told.values()))):
        return ""
    attributes = "".join(f' {name}="{attribute(said)}"' for name, said in told.items() if said)
    return f'<HotelReservationID ResID_Type="{kind}"{attributes}/>'


def _date_time(us: int) -> str:
    """Microseconds since the epoch as xs:dateTime, whole seconds, UTC."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
