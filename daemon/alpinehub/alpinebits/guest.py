"""Renders guest requests as XML of one protocol version. Pure.

    render ......... one HotelReservation: room_stays, guests, global_info
    response ....... the response around a list of them
    validate ....... checks rendered XML against the schema before it is sent

What a protocol version cannot carry is left out or cut if the hotel does not need it (campaign
ids); if the hotel does, the guest request is undeliverable, with a reason. The store has all of it.

A record keeps what ReservationData promises: that was checked before it was stored, and is not
checked here again. What is sent is valid in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from unicodedata import category

from msgspec import Struct

from alpinehub.alpinebits import document, grammar
from alpinehub.alpinebits.document import escape_attribute, escape_text
from alpinehub.alpinebits.outcome import opening
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.alpinebits.transport_error import TransportError
from alpinehub.models import Hotel
from alpinehub.reservations import MEAL_PLAN_CODES, ReservationData, ResStatus


class UndeliverableCode(StrEnum):
    """`delivery.undeliverable_code`: why a version of a guest request cannot be rendered in a
    protocol version. Stored: do not rename any.
    """

    #: No dates, which this protocol version does not allow.
    NO_STAY = "no_stay"
    #: The stored JSON is not a ReservationData.
    UNREADABLE = "unreadable"
    #: The rendered XML does not conform to the schema.
    SCHEMA = "schema"
    #: The renderer failed.
    RENDERER = "renderer"


class Undeliverable(Exception):
    """The record cannot be rendered in this protocol version; the text is for people."""

    def __init__(self, code: UndeliverableCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class StoredVersion(Struct, frozen=True, kw_only=True):
    """One version of a guest request, as it is stored."""

    #: UniqueID.
    id: str
    res_status: ResStatus
    data: ReservationData
    #: The source's id of the guest request, or "".
    external_id: str
    #: Name of the source: website, shop.
    source: str
    #: Microseconds since the epoch: of the first version, and of this one.
    created_at: int
    changed_at: int

    @property
    def unique_id_type(self) -> int:
        """Type of the UniqueID."""
        return 15 if self.res_status == "Cancelled" else 14


#: pets, adults, ages of children, province.
_WORDS = {
    "de": ("Haustiere: ja", "Erwachsene", "Alter der Kinder", "Provinz"),
    "it": ("Animali: sì", "Adulti", "Età dei bambini", "Provincia"),
    "fr": ("Animaux : oui", "Adultes", "Âge des enfants", "Province"),
    "en": ("Pets: yes", "Adults", "Ages of the children", "Province"),
}


def remarks(data: ReservationData, hotel: Hotel, protocol: Protocol) -> str:
    """What has no element of its own in the protocol version, as lines in the hotel's language."""
    pets, adults, ages, province = _WORDS.get(hotel.language, _WORDS["en"])
    lines = [data.extra]
    if data.pets and not protocol.pets:
        lines.append(pets)
    if data.arrival is None and data.adults > 0:
        lines.append(f"{adults}: {data.adults}")
    if data.arrival is None and data.children:
        lines.append(f"{ages}: {', '.join(map(str, data.children))}")
    if data.state:
        lines.append(f"{province}: {data.state}")
    return "\n".join(line for line in lines if line)


_MAX_NAME_CHARS = 64
#: In place of an unknown given name or surname: the schema requires both.
_NO_NAME = "-"
_VOICE = 1

_GENDERS = {"female": "Female", "male": "Male"}


def guests(data: ReservationData, hotel: Hotel) -> str:
    """ResGuests."""
    given, surname = split_name(data.first_name, data.last_name, data.email or data.phone)
    said = {
        "Gender": _GENDERS.get(data.gender, ""),
        "BirthDate": data.birth_date.isoformat() if data.birth_date else "",
        "Language": data.language or hotel.language,
    }
    attributes = "".join(f' {name}="{value}"' for name, value in said.items() if value)
    return (
        f"<ResGuests><ResGuest><Profiles><ProfileInfo><Profile><Customer{attributes}><PersonName>"
        f"{_element('NamePrefix', data.prefix)}"
        f"<GivenName>{escape_text(given)}</GivenName><Surname>{escape_text(surname)}</Surname>"
        f"{_element('NameTitle', data.title)}</PersonName>"
        f"{_telephone(data)}{_email(data)}{_address(data)}"
        "</Customer></Profile></ProfileInfo></Profiles></ResGuest></ResGuests>"
    )


def is_known(data: ReservationData) -> bool:
    """Whether the guest's name, e-mail address or telephone number is known."""
    return bool(data.first_name or data.last_name or data.email or data.phone)


def split_name(first: str, last: str, contact: str) -> tuple[str, str]:
    """Given name and surname, 1 to 64 characters each: the schema requires both.

    If one field has the whole name, its last word is the surname; if it is one word, the given
    name is "-". A guest without a name gets their contact as surname, so that the hotel can tell
    them apart.
    """
    first, last = _visible(first), _visible(last)
    if not (first and last):
        words = (first or last).split() or [contact or _NO_NAME]
        first, last = " ".join(words[:-1]) or _NO_NAME, words[-1]
    return first[:_MAX_NAME_CHARS], last[:_MAX_NAME_CHARS]


def _visible(name: str) -> str:
    """The name, stripped; "" if all its characters are invisible."""
    name = name.strip()
    return name if any(category(char)[0] not in "CMZ" for char in name) else ""


def _element(name: str, text: str) -> str:
    """An element with a text; "" if there is no text."""
    return f"<{name}>{escape_text(text)}</{name}>" if text else ""


def _telephone(data: ReservationData) -> str:
    if not data.phone:
        return ""
    return f'<Telephone PhoneTechType="{_VOICE}" PhoneNumber="{escape_attribute(data.phone)}"/>'


def _email(data: ReservationData) -> str:
    if not data.email:
        return ""
    remark = ""
    if data.newsletter is not None:
        remark = f' Remark="newsletter:{"yes" if data.newsletter else "no"}"'
    return f"<Email{remark}>{escape_text(data.email)}</Email>"


def _address(data: ReservationData) -> str:
    lines = (
        _element("AddressLine", data.address)
        + _element("CityName", data.city)
        + _element("PostalCode", data.postal_code)
    )
    if data.country:
        lines += f'<CountryName Code="{escape_attribute(data.country)}"/>'
    return f"<Address>{lines}</Address>" if lines else ""


_MAX_RES_ID_CHARS = 64
#: OTA unique id types of a HotelReservationID.
_RESERVATION, _INTERNET_BROKER = 14, 13


#: Names of comments.
CUSTOMER, ADDITIONAL = "customer comment", "additional info"
#: Attributes of a SpecialRequest for pets, by `Protocol.pets`.
_PETS = {"name": 'Name="PETS"', "code": 'RequestCode="PETS" CodeContext="ALPINEBITS"', "": ""}


def global_info(record: StoredVersion, hotel: Hotel, protocol: Protocol) -> str:
    """ResGlobalInfo."""
    code, name = escape_attribute(hotel.code), escape_attribute(hotel.name)
    return (
        f"<ResGlobalInfo>{_comments(record.data, hotel, protocol)}{_pets(record.data, protocol)}"
        f"{_ids(record)}"
        f'<BasicPropertyInfo HotelCode="{code}" HotelName="{name}"/></ResGlobalInfo>'
    )


def _comments(data: ReservationData, hotel: Hotel, protocol: Protocol) -> str:
    """Comments, one of each name. In a version without ADDITIONAL, its text is appended to the
    guest's message.
    """
    message, remark = data.message, remarks(data, hotel, protocol)
    if not protocol.additional:
        message, remark = "\n\n".join(filter(None, (message, remark))), ""
    written = "".join(
        f'<Comment Name="{name}"><Text>{escape_text(text)}</Text></Comment>'
        for name, text in ((CUSTOMER, message), (ADDITIONAL, remark))
        if text
    )
    return written and f"<Comments>{written}</Comments>"


def _pets(data: ReservationData, protocol: Protocol) -> str:
    if not (data.pets and protocol.pets):
        return ""
    return f"<SpecialRequests><SpecialRequest {_PETS[protocol.pets]}/></SpecialRequests>"


def _ids(record: StoredVersion) -> str:
    """The source's id, and the advertising campaign that the guest came from."""
    data = record.data
    click = data.gclid or data.fbclid
    utm = data.utm
    ids = _id(_RESERVATION, record.external_id, record.source, "")
    if click or utm:
        value = click or utm.get("campaign", "")
        ids += _id(_INTERNET_BROKER, value, utm.get("source", ""), utm.get("medium", ""))
    return f"<HotelReservationIDs>{ids}</HotelReservationIDs>" if ids else ""


def _id(kind: int, value: str, source: str, context: str) -> str:
    """A HotelReservationID; its three texts are cut to the schema's maximum."""
    names = ("ResID_Value", "ResID_Source", "ResID_SourceContext")
    values = {
        name: said[:_MAX_RES_ID_CHARS]
        for name, said in zip(names, (value, source, context), strict=True)
    }
    if not (values["ResID_Value"] or (kind == _INTERNET_BROKER and any(values.values()))):
        return ""
    attributes = "".join(
        f' {name}="{escape_attribute(said)}"' for name, said in values.items() if said
    )
    return f'<HotelReservationID ResID_Type="{kind}"{attributes}/>'


def room_stays(record: StoredVersion) -> str:
    """RoomStays: one stay."""
    data = record.data
    booked = record.res_status in ("Reserved", "Modify")
    return (
        f"<RoomStays><RoomStay>{_room_type(data)}{_rate_plan(data, booked)}{_guest_counts(data)}"
        f'<TimeSpan Start="{data.arrival}" End="{data.departure}"/>'
        f"{_total(data)}</RoomStay></RoomStays>"
    )


def _room_type(data: ReservationData) -> str:
    if not data.room_type:
        return ""
    code = escape_attribute(data.room_type)
    return f'<RoomTypes><RoomType RoomTypeCode="{code}"/></RoomTypes>'


def _rate_plan(data: ReservationData, booked: bool) -> str:
    """RatePlans. The schema requires a reservation's meal plan: if it is unknown, no meals."""
    meals = data.meal_plan or ("room_only" if booked else None)
    if not (data.rate_plan or meals):
        return ""
    named = f' RatePlanCode="{escape_attribute(data.rate_plan)}"' if data.rate_plan else ""
    if meals is None:
        return f"<RatePlans><RatePlan{named}/></RatePlans>"
    return (
        f'<RatePlans><RatePlan{named}><MealsIncluded MealPlanIndicator="true" '
        f'MealPlanCodes="{MEAL_PLAN_CODES[meals]}"/></RatePlan></RatePlans>'
    )


def _guest_counts(data: ReservationData) -> str:
    """One count of adults, without an age; children of one age are counted together."""
    ages = data.children
    children = "".join(
        f'<GuestCount Count="{ages.count(age)}" Age="{age}"/>'
        for age in sorted(set(ages), reverse=True)
    )
    return f'<GuestCounts><GuestCount Count="{data.adults}"/>{children}</GuestCounts>'


def _total(data: ReservationData) -> str:
    if data.total is None:
        return ""
    currency = escape_attribute(data.currency)
    return f'<Total AmountAfterTax="{data.total:f}" CurrencyCode="{currency}"/>'


#: Of a response with guest requests: what is before the first of them, and after the last.
RESPONSE_START = f"{opening('OTA_ResRetrieveRS')}<Success/><ReservationsList>".encode()
RESPONSE_END = b"</ReservationsList></OTA_ResRetrieveRS>"


def response(reservations: Iterable[bytes]) -> bytes:
    """The whole OTA_ResRetrieveRS around rendered reservations, which may be none."""
    return b"".join((RESPONSE_START, *reservations, RESPONSE_END))


def render(record: StoredVersion, hotel: Hotel, protocol: Protocol) -> bytes:
    """One HotelReservation. Raises: Undeliverable."""
    lead = _is_lead(record)
    if lead and not protocol.no_stay:
        text = "what has no stay (a newsletter, a question) exists only from version 2022-10 on"
        raise Undeliverable(UndeliverableCode.NO_STAY, text)
    start, body = _start(record, protocol, lead), _body(record, hotel, protocol, lead)
    return f"{start}{body}</HotelReservation>".encode()


def _is_lead(record: StoredVersion) -> bool:
    """Whether a request has nothing about a stay: a newsletter subscription, or a question."""
    data = record.data
    return record.res_status == "Requested" and data.arrival is None and data.departure is None


def _start(record: StoredVersion, protocol: Protocol, lead: bool) -> str:
    attributes = f'CreateDateTime="{_date_time(record.created_at)}"'
    if protocol.no_stay:
        if record.changed_at > record.created_at:
            attributes += f' LastModifyDateTime="{_date_time(record.changed_at)}"'
        if record.res_status != "Cancelled":
            attributes += f' RoomStayReservation="{"false" if lead else "true"}"'
    return (
        f'<HotelReservation {attributes} ResStatus="{record.res_status}">'
        f'<UniqueID Type="{record.unique_id_type}" ID="{record.id}"/>'
    )


def _body(record: StoredVersion, hotel: Hotel, protocol: Protocol, lead: bool) -> str:
    """Everything after the UniqueID."""
    data = record.data
    cancelled = record.res_status == "Cancelled"  # it may say no more than its id
    has_stay = data.arrival and data.departure and data.adults
    stays = "" if lead or (cancelled and not has_stay) else room_stays(record)
    person = "" if cancelled and not is_known(data) else guests(data, hotel)
    return stays + person + global_info(record, hotel, protocol)


def _date_time(us: int) -> str:
    """Microseconds since the epoch as xs:dateTime, whole seconds, UTC."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).isoformat()


#: Revision of the renderer. Increase it with each change of the XML: then all is validated again.
#: Validating a request takes 40 us, three times the time of rendering it: a poll that repeats
#: another one saves that.
REVISION = 3


def validated_in(protocol: Protocol) -> str:
    """`delivery.rendered` of a guest request that was validated in a protocol version."""
    return f"{protocol.name}/{REVISION}"


def validate(reservation: bytes, protocol: Protocol) -> None:
    """Check a rendered HotelReservation against the schema. Raises: Undeliverable."""
    try:
        problem = grammar.check(document.parse(response([reservation])), protocol)
    except TransportError as refusal:
        problem = refusal.text
    if problem is not None:
        raise Undeliverable(UndeliverableCode.SCHEMA, problem)
