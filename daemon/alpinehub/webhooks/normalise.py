"""From a generic payload to a ReservationData: what its fields mean, what is missing or wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

import msgspec

from alpinehub.reservations import ReservationData, Status
from alpinehub.webhooks.days import YEARS
from alpinehub.webhooks.http_error import Problem, invalid
from alpinehub.webhooks.payload import Parsed, Payload
from alpinehub.webhooks.values import EMAIL, line, read_phone

_LANGUAGE = re.compile(r"[A-Za-z]{2}([-_][A-Za-z0-9]{2,8})*")
_CURRENCY = re.compile(r"[A-Za-z]{3}")
#: What XML 1.0 cannot carry; a lone surrogate never gets through the JSON decoder.
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_ILLEGAL_IN_LINE = re.compile("[\x00-\x1f\ufffe\uffff]")
#: Text of one line: all but the message.
_LINES = (
    "hotel_code", "external_id", "first_name", "last_name", "email", "phone", "language",
    "currency", "room_type", "rate_plan", "gclid", "fbclid", "utm_source", "utm_medium",
    "utm_campaign", "utm_term", "utm_content", "utm_id",
)  # fmt: skip
_WHO = ("first_name", "last_name", "email", "phone")
_MAX_TOTAL = Decimal("99999999.99")
_CENT = Decimal("0.01")

_STAY = ("arrival", "departure", "adults")
#: Fields that must be given, by status. A cancellation is known by its external_id.
_REQUIRED: dict[Status, tuple[str, ...]] = {
    "request": _STAY,
    "reservation": (*_STAY, "room_type", "rate_plan", "total", "currency"),
    "cancelled": ("external_id",),
}


class Submission(msgspec.Struct, frozen=True):
    """A payload that can be used."""

    hotel_code: str
    #: The source's own id of the reservation; None: it has none, so each post is a new one.
    external_id: str | None
    data: ReservationData
    #: What a cancellation lacks to stand alone; then it must be of something known.
    lacks: list[Problem]


def normalise(parsed: Parsed, *, plain: bool = False) -> Submission:
    """Check and normalise. `plain`: the body was seen to hold no escape and no noncharacter.

    Raises: HttpError 422 with every problem of the payload, those of `parsed` included.
    """
    payload, problems = parsed.payload, parsed.problems
    unreadable = {p.field.split("[", 1)[0] for p in problems}
    _trim(payload)
    if not plain:
        _check_characters(payload, parsed.utm, problems)
    _check_dates(payload, problems)
    extra = _check_contact(payload, problems)
    _check_total(payload, problems)
    status = payload.status
    required = _REQUIRED[status] if status else ()
    problems += _missing(payload, ("hotel_code", "status", *required), unreadable)
    if status != "cancelled":
        problems += _nameless(payload, unreadable)
    if problems or status is None:
        raise invalid(problems)
    lacks = [] if status != "cancelled" else _missing(payload, _STAY) + _nameless(payload)
    return Submission(
        payload.hotel_code or "",
        payload.external_id,
        _record(payload, parsed.utm, status, extra),
        lacks,
    )


def _trim(payload: Payload) -> None:
    """White space around a line says nothing, and an empty text is none at all."""
    for name in _LINES:
        value = getattr(payload, name)
        if value is not None:
            text = value.strip(" \t\r\n\u00a0")
            if not text or text is not value:
                setattr(payload, name, text or None)
    if payload.message:
        payload.message = payload.message.replace("\r\n", "\n").replace("\r", "\n").strip()


def _check_characters(payload: Payload, utm: dict[str, str], problems: list[Problem]) -> None:
    texts = [(name, getattr(payload, name)) for name in _LINES]
    texts += [(f"utm_{name}", value) for name, value in utm.items()]
    for name, value in texts:
        if value and (match := _ILLEGAL_IN_LINE.search(value)):
            problems.append(_illegal(name, match))
    if payload.message and (match := _ILLEGAL.search(payload.message)):
        problems.append(_illegal("message", match))


def _illegal(name: str, match: re.Match[str]) -> Problem:
    return Problem(name, f"holds the character U+{ord(match[0]):04X}, which is not allowed")


def _check_dates(payload: Payload, problems: list[Problem]) -> None:
    arrival, departure = payload.arrival, payload.departure
    for name, day in (("arrival", arrival), ("departure", departure)):
        if day is not None and day.year not in YEARS:
            problems.append(Problem(name, f"not in the years {YEARS[0]} to {YEARS[-1]}"))
    if arrival is not None and departure is not None and departure <= arrival:
        problems.append(Problem("departure", "must be after arrival"))


def _check_contact(payload: Payload, problems: list[Problem]) -> str:
    """What the hotel is to see as it was written: of a telephone more than one number, or none."""
    extra = ""
    reachable = payload.email is not None and EMAIL.fullmatch(payload.email) is not None
    if payload.email is not None and not reachable:
        problems.append(Problem("email", "not an e-mail address"))
    if payload.phone is not None:
        phone = read_phone(payload.phone)
        if phone is None and not reachable and payload.status != "cancelled":
            problems.append(Problem("phone", "not a telephone number"))
        if phone is None or not phone.is_all:
            extra = f"phone: {line(payload.phone)}"
        payload.phone = phone.number if phone is not None else None
    if payload.language is not None:
        if not _LANGUAGE.fullmatch(payload.language):
            problems.append(Problem("language", "not a language code (de, it, en, de-AT)"))
        payload.language = payload.language[:2].lower()
    return extra


def _check_total(payload: Payload, problems: list[Problem]) -> None:
    total = payload.total
    if payload.currency is not None:
        if not _CURRENCY.fullmatch(payload.currency):
            problems.append(Problem("currency", "not a currency code of three letters"))
        payload.currency = payload.currency.upper()
    if total is None:
        return
    if not total.is_finite() or not 0 <= total <= _MAX_TOTAL:
        problems.append(Problem("total", f"expected a number from 0 to {_MAX_TOTAL}"))
    elif total != (rounded := total.quantize(_CENT)):
        problems.append(Problem("total", "has more than two decimal places"))
    else:
        payload.total = abs(rounded)  # -0.00 is 0.00
    if payload.currency is None and payload.status != "reservation":
        problems.append(Problem("currency", "required with total"))


def _missing(
    payload: Payload, names: Iterable[str], unreadable: set[str] | None = None
) -> list[Problem]:
    """A problem for each field that was not given; one that could not be read has one already."""
    return [
        Problem(name, "required")
        for name in names
        if getattr(payload, name) is None and not (unreadable and name in unreadable)
    ]


def _nameless(payload: Payload, unreadable: set[str] | None = None) -> list[Problem]:
    if any(getattr(payload, name) is not None for name in _WHO):
        return []
    if unreadable and not unreadable.isdisjoint(_WHO):
        return []
    return [Problem("last_name", "required: a name, an e-mail address or a telephone number")]


def _record(payload: Payload, utm: dict[str, str], status: Status, extra: str) -> ReservationData:
    for name in ("source", "medium", "campaign", "term", "content", "id"):
        if (value := getattr(payload, f"utm_{name}")) is not None:
            utm[name] = value
    return ReservationData(
        status=status,
        arrival=payload.arrival,
        departure=payload.departure,
        adults=payload.adults or 0,
        children=payload.children or (),
        first_name=payload.first_name or "",
        last_name=payload.last_name or "",
        email=payload.email or "",
        phone=payload.phone or "",
        language=payload.language or "",
        message=payload.message or "",
        total=payload.total,
        currency=payload.currency or "",
        room_type=payload.room_type or "",
        rate_plan=payload.rate_plan or "",
        meal_plan=payload.meal_plan,
        newsletter=payload.newsletter,
        consent=payload.consent,
        utm=utm,
        gclid=payload.gclid or "",
        fbclid=payload.fbclid or "",
        extra=extra,
    )
