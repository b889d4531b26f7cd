"""The normalised reservation: made from every source, and the base of every output."""

from __future__ import annotations

import secrets
from datetime import date
from decimal import Decimal
from hashlib import blake2b
from typing import Literal

import msgspec

Status = Literal["request", "reservation", "cancelled"]
#: AlpineBits ResStatus of a version.
ResStatus = Literal["Requested", "Reserved", "Modify", "Cancelled"]
#: Meals in the price, and their AlpineBits MealPlanCodes.
MealPlan = Literal["all_inclusive", "breakfast", "full_board", "half_board", "room_only"]
MEAL_PLAN_CODES: dict[MealPlan, int] = {
    "all_inclusive": 1,
    "breakfast": 3,
    "full_board": 10,
    "half_board": 12,
    "room_only": 14,
}


class ReservationData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One version of a guest request, reservation or cancellation, as `reservation_version.data`.

    All text is trimmed and holds only characters that XML 1.0 can carry; "" means not given.
    Everything else in it is verbatim (markup, quotes, right-to-left, combining characters): each
    output escapes for itself. A field is added with a default; none changes its meaning.

    What its status promises (checked before it is stored):
    request: a stay and adults (or no stay, if the guest asks without dates), and at least one of
        first_name, last_name, email, phone;
    reservation: arrival, departure and the same, and room_type, rate_plan, total, currency;
    cancelled: nothing but the status (a cancellation of something known may say no more; the
    fields of the version before it are carried over then).
    """

    status: Status
    #: The first night. Arrival and departure are given together or not at all.
    arrival: date | None = None
    #: The morning the guest leaves, after `arrival`.
    departure: date | None = None
    #: At least 1 with a stay; 0: not given.
    adults: int = 0
    #: Age in whole years of each child, 0 to 17.
    children: tuple[int, ...] = ()
    #: At most 64 characters. One may be "" (a form with one field for both), or even both.
    first_name: str = ""
    last_name: str = ""
    #: As written; has one @ and no white space.
    email: str = ""
    #: `\\+?[0-9]{4,15}`; without + it is a number of the guest's country or the hotel's region.
    phone: str = ""
    #: ISO 639-1 in lower case; "": not given; the hotel's is used.
    language: str = ""
    #: What the guest wrote; lines end in "\n".
    message: str = ""
    #: Price of the whole stay, two decimal places at most.
    total: Decimal | None = None
    #: ISO 4217 in upper case, given with total.
    currency: str = ""
    #: The hotel's own code, at most 8 characters (AlpineBits InvTypeCode).
    room_type: str = ""
    #: The hotel's own code, at most 64 characters.
    rate_plan: str = ""
    #: None: not given. AlpineBits wants one with each reservation: room_only promises the least.
    meal_plan: MealPlan | None = None
    #: None: not asked, which is not a no.
    newsletter: bool | None = None
    #: Campaign parameters without their utm_ prefix: source, medium, campaign, term, content, ...
    utm: dict[str, str] = {}
    #: Click ids of Google and Meta.
    gclid: str = ""
    fbclid: str = ""
    #: Herr, Dott.ssa: at most 16 characters each.
    prefix: str = ""
    title: str = ""
    gender: Literal["", "female", "male"] = ""
    birth_date: date | None = None
    #: Street and number: at most 255 characters; city 64, postal code 16.
    address: str = ""
    city: str = ""
    postal_code: str = ""
    #: ISO 3166, two upper-case letters.
    country: str = ""
    #: Province, canton, federal state: as written.
    state: str = ""
    #: None: not given.
    pets: bool | None = None
    #: Answers of a form that no field takes, a line each: "Label: value".
    extra: str = ""
    #: Whether the guest may be advertised to, which is not the newsletter. None: not asked.
    consent: bool | None = None


def unique_id_type(status: Status) -> int:
    """AlpineBits UniqueID Type: 15 for a cancellation, 14 for everything else."""
    return 15 if status == "cancelled" else 14


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(ReservationData)


def encode(data: ReservationData) -> bytes:
    """The JSON of `reservation_version.data`; equal records give equal bytes."""
    return _encoder.encode(data)


def decode(text: str | bytes) -> ReservationData:
    """The record of `reservation_version.data`. Raises: msgspec.DecodeError when it is not one."""
    return _decoder.decode(text)


def content_hash(encoded: bytes) -> bytes:
    """16 bytes that differ for two contents; of `encode(data)`."""
    return blake2b(encoded, digest_size=16).digest()


def new_id(now_us: int) -> str:
    """A reservation id: 32 hex digits (AlpineBits allows no more), 80 of its 128 bits random.

    It begins with `now_us` in milliseconds, so new rows go to the end of each index.
    """
    return f"{now_us // 1000:012x}{secrets.token_hex(10)}"


def next_res_status(status: Status, before: Status | None) -> ResStatus:
    """The ResStatus of a version that follows one of status `before` (None: it is the first).

    Only a change of what is already reserved is a Modify; a request that becomes a reservation,
    and one that comes back after a cancellation, is Reserved.
    """
    if status == "cancelled":
        return "Cancelled"
    if status == "request":
        return "Requested"
    return "Modify" if before == "reservation" else "Reserved"
