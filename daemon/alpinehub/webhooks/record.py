"""The answers of a form as a record: each read by what it means, each problem by its name."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from functools import partial
from typing import cast, get_args

import msgspec

from alpinehub.reservations import MealPlan, ReservationData, Status
from alpinehub.webhooks.days import read_day
from alpinehub.webhooks.field_names import plain
from alpinehub.webhooks.field_resolver import Asking
from alpinehub.webhooks.stay import customer_of, order_of, stay_of
from alpinehub.webhooks.submission import Sheet
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

_MAX_NAME, _MAX_CODE = 64, 8
#: With at most two decimals: `1.200` may be either.
_TOTAL, _CENT = re.compile("[0-9]{1,8}(?:[.,][0-9]{1,2})?"), Decimal("0.01")
_YEAR = re.compile("[0-9]{4}")
#: How the label of a field for a whole name begins where the surname comes first.
_SURNAME_FIRST = ("nachname", "cognome", "surname", "last name", "name und vorname", "nom et")


def record_of(asking: Asking, sheet: Sheet) -> ReservationData | None:
    """The record of a submission; None when `asking.problems` tells why there is none."""
    stay = stay_of(asking)
    adults, children = customer_of(asking)
    first_name, last_name = _names(asking)
    email, phone = _contact(asking)
    if not (first_name or last_name or email or phone) and not asking.problems:
        asking.problems.append("missing:name")
    prefix = asking.short("prefix", 16)
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
        language=asking.maybe_of("language", asking.language, read_language, ""),
        message=lines(asking.told("message")),
        newsletter=asking.maybe("newsletter", read_yes, None),
        consent=asking.maybe("consent", read_yes, None),
        pets=asking.maybe("pets", read_yes, None),
        prefix=prefix,
        title=asking.short("title", 16),
        gender=read_gender(asking.told("gender") or prefix),
        birth_date=asking.maybe("birth_date", lambda text: _birth(asking, text), None),
        address=asking.short("address", 255),
        city=asking.short("city", _MAX_NAME),
        postal_code=asking.short("postal_code", 16),
        country=asking.maybe("country", read_country, ""),
        state=asking.short("state", _MAX_NAME),
        gclid=line(sheet.gclid) or asking.short("gclid", 1024),
        fbclid=asking.short("fbclid", 1024),
        utm={name: line(value) for name, value in sheet.utm.items()},
    )
    data = _priced(asking, data)
    extra = asking.rest()
    if asking.adults_assumed and asking.fields.has_number_left():
        asking.fields.ambiguous.append("adults")
    asking.problems += [f"ambiguous:{target}" for target in asking.fields.ambiguous]
    if asking.problems:
        return None
    return msgspec.structs.replace(data, extra=extra)


def _names(asking: Asking) -> tuple[str, str]:
    """First and last name. One field for both is split where its last word begins; beside a field
    for the first name, `Name` is the last name.
    """
    first, last = asking.short("first_name", _MAX_NAME), asking.short("last_name", _MAX_NAME)
    if first and last:
        return first, last
    whole = line(asking.told("name"))
    if not whole or last:
        return first, last
    if first:
        if len(whole) > _MAX_NAME:
            asking.keep("name", whole)
        return first, whole[:_MAX_NAME].rstrip()
    words = whole.split(" ")
    if plain(asking.fields.titles.get("name", "")).startswith(_SURNAME_FIRST):
        words = words[1:] + words[:1]
    given, surname = " ".join(words[:-1]), words[-1]
    if len(given) > _MAX_NAME or len(surname) > _MAX_NAME:
        asking.keep("name", whole)
    return given[:_MAX_NAME].rstrip(), surname[:_MAX_NAME]


def _contact(asking: Asking) -> tuple[str, str]:
    """Address and number. One that cannot be read is kept for the hotel, unless it is all that
    there is: then nobody could answer.
    """
    found = {}
    unreadable = {}
    for target, read in (("email", read_email), ("phone", partial(_phone, asking))):
        text = line(asking.told(target))
        value = read(text) if text else None
        if text and value is None:
            unreadable[target] = text
            value = read(line(asking.fields.of_contact(target)))
        found[target] = value or ""
    if any(found.values()):
        for target, text in unreadable.items():
            asking.keep(target, text)
    else:
        asking.problems += [f"unreadable:{target}" for target in unreadable]
    return found["email"], found["phone"]


def _phone(asking: Asking, text: str) -> str | None:
    """A number; a text that says more than one number is kept."""
    phone = read_phone(text)
    if phone is None:
        return None
    if not phone.is_all:
        asking.keep("phone", text)
    return phone.number


def _birth(asking: Asking, text: str) -> date | None:
    if not _YEAR.search(text):
        return None  # nobody knows the century
    order = order_of(asking, {"birth_date": text})
    day = read_day(text, order, asking.zone) if order is not None else None
    return day if day is not None and 1900 <= day.year <= 2100 else None


def _priced(asking: Asking, data: ReservationData) -> ReservationData:
    """With room, plan and price, and as a reservation where an operator mapped it as one."""
    room = _room(asking)
    plan, meals = line(asking.told("rate_plan")), asking.told("meal_plan")
    if len(plan) > _MAX_NAME:
        asking.keep("rate_plan", plan)
        plan = ""
    if meals and meals not in get_args(MealPlan):
        asking.keep("meal_plan", meals)
        meals = ""
    total, currency = _total(asking)
    status = asking.told("status") or "request"
    if status not in ("request", "reservation"):
        asking.problems.append("unreadable:status")
    if status == "reservation":
        needed = {
            "arrival": data.arrival, "room_type": room, "rate_plan": plan, "total": total,
            "currency": currency,
        }  # fmt: skip
        asking.problems += [f"missing:{name}" for name, value in needed.items() if not value]
    return msgspec.structs.replace(
        data,
        status=cast(Status, status),
        room_type=room,
        rate_plan=plan,
        meal_plan=cast(MealPlan, meals) if meals else None,
        total=total if currency else None,
        currency=currency if total is not None else "",
    )


def _room(asking: Asking) -> str:
    """The hotel's code of a room. What guests call it is none: without a mapping it is kept."""
    mapping = asking.mapping
    if not any(
        "room_type" in known for known in (mapping.fields, mapping.values, mapping.defaults)
    ):
        return ""
    code = line(asking.told("room_type"))
    if len(code) <= _MAX_CODE:
        return code
    asking.keep("room_type", code)
    return ""


def _total(asking: Asking) -> tuple[Decimal | None, str]:
    text, currency = asking.told("total"), line(asking.told("currency")).upper()
    if currency and not (len(currency) == 3 and currency.isascii() and currency.isalpha()):
        asking.keep("currency", currency)
        currency = ""
    if not text:
        return None, currency
    if not _TOTAL.fullmatch(text):
        asking.problems.append("unreadable:total")
        return None, currency
    return Decimal(text.replace(",", ".")).quantize(_CENT), currency
