"""Interprets a submission as a guest request: pure, for any bytes, without guesses.

The result is one of three: Mapped (a record that passes every check), Unmapped (with a name for
each field that is missing, unreadable or ambiguous), Ignored (a test, or filled in by a robot).
Answers that have no target, and optional ones that cannot be read, go to `extra`, so that the hotel
sees them.
"""

from __future__ import annotations

import re
from datetime import date, datetime, tzinfo
from decimal import Decimal
from functools import cached_property, partial
from hashlib import blake2b
from typing import Literal, cast, get_args

import msgspec
from msgspec import Struct

from alpinehub.models import Hotel
from alpinehub.reservations import MealPlan, ReservationData, Status
from alpinehub.webhooks import form, google, wix
from alpinehub.webhooks.days import read_day
from alpinehub.webhooks.field_names import plain
from alpinehub.webhooks.fields import FieldMapping, FieldResolver, of_source
from alpinehub.webhooks.problems import MAPPING_UNREADABLE
from alpinehub.webhooks.stay import guests_of, order_of, stay_of
from alpinehub.webhooks.submission import FormShape, Submission, Unreadable, shape_of
from alpinehub.webhooks.values import (
    line,
    lines,
    read_country,
    read_email,
    read_gender,
    read_language,
    read_phone,
    read_yes,
)

_MAX_NAME, _MAX_CODE, _MAX_ID = 64, 8, 128
#: At most two decimals: `1.200` may be 1200 or 1.2.
_TOTAL, _CENT = re.compile("[0-9]{1,8}(?:[.,][0-9]{1,2})?"), Decimal("0.01")
_YEAR = re.compile("[0-9]{4}")
#: Beginnings of the label of a field for the whole name with the surname first.
_SURNAME_FIRST = ("nachname", "cognome", "surname", "last name", "name und vorname", "nom et")


def reservation_data_of(resolver: FieldResolver, submission: Submission) -> ReservationData | None:
    """The data of a submission; None: `resolver.problems` has the reasons."""
    # The order matters: a field that one target has taken is not offered to the next.
    stay = stay_of(resolver)
    adults, children = guests_of(resolver, has_stay=stay is not None)
    first_name, last_name = _names(resolver)
    email, phone = _contact(resolver)
    if not (first_name or last_name or email or phone) and not resolver.problems:
        resolver.problems.append("missing:name")
    prefix = resolver.short("prefix", 16)
    data = ReservationData(
        status="request",
        arrival=stay and stay[0],
        departure=stay and stay[1],
        adults=adults,
        children=children,
        first_name=first_name,
        last_name=last_name,
        email=email,
        phone=phone,
        language=resolver.maybe_of("language", resolver.language, read_language, ""),
        message=lines(resolver.take_text("message")),
        newsletter=resolver.maybe("newsletter", read_yes, None),
        consent=resolver.maybe("consent", read_yes, None),
        pets=resolver.maybe("pets", read_yes, None),
        prefix=prefix,
        title=resolver.short("title", 16),
        gender=read_gender(resolver.take_text("gender") or prefix),
        birth_date=resolver.maybe("birth_date", lambda text: _birth(resolver, text), None),
        address=resolver.short("address", 255),
        city=resolver.short("city", _MAX_NAME),
        postal_code=resolver.short("postal_code", 16),
        country=resolver.maybe("country", read_country, ""),
        state=resolver.short("state", _MAX_NAME),
        gclid=line(submission.gclid) or resolver.short("gclid", 1024),
        fbclid=resolver.short("fbclid", 1024),
        utm={name: line(value) for name, value in submission.utm.items()},
    )
    data = _priced(resolver, data)
    extra = resolver.rest()
    if resolver.adults_assumed and resolver.has_number_left():
        resolver.ambiguous.append("adults")
    resolver.problems += [f"ambiguous:{target}" for target in resolver.ambiguous]
    if resolver.problems:
        return None
    return msgspec.structs.replace(data, extra=extra)


def _names(resolver: FieldResolver) -> tuple[str, str]:
    """First and last name. One field for both is split before its last word; if there is a field
    for the first name, too, `Name` is the last name.
    """
    first, last = resolver.short("first_name", _MAX_NAME), resolver.short("last_name", _MAX_NAME)
    if first and last:
        return first, last
    whole = line(resolver.take_text("name"))
    if not whole or last:
        return first, last
    if first:
        if len(whole) > _MAX_NAME:
            resolver.keep("name", whole)
        return first, whole[:_MAX_NAME].rstrip()
    words = whole.split(" ")
    if plain(resolver.titles.get("name", "")).startswith(_SURNAME_FIRST):
        words = words[1:] + words[:1]
    given, surname = " ".join(words[:-1]), words[-1]
    if len(given) > _MAX_NAME or len(surname) > _MAX_NAME:
        resolver.keep("name", whole)
    return given[:_MAX_NAME].rstrip(), surname[:_MAX_NAME]


def _contact(resolver: FieldResolver) -> tuple[str, str]:
    """E-mail address and telephone number. If one cannot be read, it goes to `extra`; if neither
    can, it is a problem, because the hotel could not answer.
    """
    found = {}
    unreadable = {}
    for target, read in (("email", read_email), ("phone", partial(_phone, resolver))):
        text = line(resolver.take_text(target))
        value = read(text) if text else None
        if text and value is None:
            unreadable[target] = text
            value = read(line(resolver.of_contact(target)))
        found[target] = value or ""
    if any(found.values()):
        for target, text in unreadable.items():
            resolver.keep(target, text)
    else:
        resolver.problems += [f"unreadable:{target}" for target in unreadable]
    return found["email"], found["phone"]


def _phone(resolver: FieldResolver, text: str) -> str | None:
    """A telephone number; a text with more than the number goes to `extra`, too."""
    phone = read_phone(text)
    if phone is None:
        return None
    if not phone.is_all:
        resolver.keep("phone", text)
    return phone.number


def _birth(resolver: FieldResolver, text: str) -> date | None:
    if not _YEAR.search(text):
        return None  # the century is not known
    order = order_of(resolver, {"birth_date": text})
    day = read_day(text, order, resolver.zone) if order is not None else None
    return day if day is not None and 1900 <= day.year <= 2100 else None


def _priced(resolver: FieldResolver, data: ReservationData) -> ReservationData:
    """Add room, plan and price; the status is reservation if an operator mapped it so."""
    room = _room(resolver)
    plan, meals = line(resolver.take_text("rate_plan")), resolver.take_text("meal_plan")
    if len(plan) > _MAX_NAME:
        resolver.keep("rate_plan", plan)
        plan = ""
    if meals and meals not in get_args(MealPlan):
        resolver.keep("meal_plan", meals)
        meals = ""
    total, currency = _total(resolver)
    status = resolver.take_text("status") or "request"
    if status not in ("request", "reservation"):
        resolver.problems.append("unreadable:status")
    if status == "reservation":
        needed = {
            "arrival": data.arrival, "room_type": room, "rate_plan": plan, "total": total,
            "currency": currency,
        }  # fmt: skip
        resolver.problems += [f"missing:{name}" for name, value in needed.items() if not value]
    return msgspec.structs.replace(
        data,
        status=cast(Status, status),
        room_type=room,
        rate_plan=plan,
        meal_plan=cast(MealPlan, meals) if meals else None,
        total=total if currency else None,
        currency=currency if total is not None else "",
    )


def _room(resolver: FieldResolver) -> str:
    """The hotel's code of a room; "" without a mapping: what guests call a room is not its code."""
    mapping = resolver.mapping
    if not any(
        "room_type" in known for known in (mapping.fields, mapping.values, mapping.defaults)
    ):
        return ""
    code = line(resolver.take_text("room_type"))
    if len(code) <= _MAX_CODE:
        return code
    resolver.keep("room_type", code)
    return ""


def _total(resolver: FieldResolver) -> tuple[Decimal | None, str]:
    text, currency = resolver.take_text("total"), line(resolver.take_text("currency")).upper()
    if currency and not (len(currency) == 3 and currency.isascii() and currency.isalpha()):
        resolver.keep("currency", currency)
        currency = ""
    if not text:
        return None, currency
    if not _TOTAL.fullmatch(text):
        resolver.problems.append("unreadable:total")
        return None, currency
    return Decimal(text.replace(",", ".")).quantize(_CENT), currency


class Received(Struct, frozen=True, kw_only=True, dict=True):
    """A submission as the inbox stores it."""

    kind: str
    body: bytes
    content_type: str
    honeypot: str
    #: Microseconds since the epoch; None: not known, so that no stay is in the past.
    received_at: int | None = None

    @cached_property
    def submission(self) -> Submission:
        """Its fields, parsed once. Raises: Unreadable."""
        if self.kind == "wix":
            return wix.read(self.body)
        if self.kind == "google":
            return google.read(self.body)
        return form.read(self.body, self.content_type, self.honeypot)


class Mapped(Struct, frozen=True):
    """A submission that became a record."""

    data: ReservationData
    #: The sender's own id; None: it has none.
    external_id: str | None
    shape: FormShape
    #: Targets whose mapped field was missing and was replaced by another field.
    remapped: tuple[str, ...]

    def history_detail(self, mapping: FieldMapping) -> dict[str, object]:
        """How it was mapped, for the history of its request."""
        remapped = {"remapped": self.remapped} if self.remapped else {}
        return {"mapping": mapping.revision, **remapped}


class Unmapped(Struct, frozen=True):
    """A submission that a person has to review."""

    #: `missing:arrival`, `ambiguous:adults`, `not_json`: names only, nothing that a guest wrote.
    problems: tuple[str, ...]
    external_id: str | None = None
    #: None: the body could not be read.
    shape: FormShape | None = None


class Ignored(Struct, frozen=True):
    """A submission that is not sent to the hotel."""

    outcome: Literal["test", "spam"]


def interpret(
    received: Received, mapping: FieldMapping, hotel: Hotel, *, accept: bool = False
) -> Mapped | Unmapped | Ignored:
    """Interpret a submission. `accept`: a stay in the past, or a very long one, is no problem."""
    try:
        submission = received.submission
    except Unreadable as error:
        return Unmapped((error.code,))
    if submission.ignored:
        return Ignored(submission.ignored)
    shape = shape_of(submission)
    zone = hotel.zone
    resolver = FieldResolver(
        submission.answers, mapping, zone, _today(received, zone), accept=accept
    )
    external_id = submission.external_id or _own_id(resolver.take_value("external_id"))
    data = reservation_data_of(resolver, submission)
    if data is None:
        return Unmapped(tuple(dict.fromkeys(resolver.problems)), external_id, shape)
    return Mapped(data, external_id, shape, tuple(resolver.remapped))


def interpret_by(
    stored: str | None, received: Received, hotel: Hotel, *, accept: bool = False
) -> tuple[Mapped | Unmapped | Ignored, FieldMapping]:
    """Interpret a submission by the mapping of its source, as it is stored; returns both."""
    try:
        mapping = of_source(received.kind, stored)
    except msgspec.DecodeError:
        return Unmapped((MAPPING_UNREADABLE,)), FieldMapping()
    return interpret(received, mapping, hotel, accept=accept), mapping


def _own_id(text: str) -> str | None:
    """The id in a field of a form; of a long one a hash, since two may begin alike. Its 24 digits
    are those of the ids that intake.py makes: an erasure removes them.
    """
    text = line(text)
    if len(text) > _MAX_ID:
        text = blake2b(text.encode(), digest_size=12).hexdigest()
    return text or None


def _today(received: Received, zone: tzinfo) -> date | None:
    if received.received_at is None:
        return None
    return datetime.fromtimestamp(received.received_at // 1_000_000, zone).date()
