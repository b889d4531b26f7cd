"""POST /api/webhook/generic: the hub's strict JSON format, for programmed senders.

    parse      types, lengths, shapes; decoded in one pass, or field by field to find every mistake
    normalise  checks the fields; makes a ReservationData
    post       authenticates the source, finds the hotel; intake.py stores

The order of the checks decides what a sender learns: without a valid secret the answer is always
401; then come the format (415, 413, 400), the hotel (404) and the fields (422).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from difflib import get_close_matches
from functools import partial
from hashlib import blake2b
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta, Raw, ValidationError

from alpinehub import counts
from alpinehub.asgi import Reply
from alpinehub.directory import directory_of
from alpinehub.intake import (
    NormalisedSubmission,
    SubmissionOrder,
    UnknownReservation,
    store_submission,
)
from alpinehub.models import Source
from alpinehub.reservations import MealPlan, ReservationData, Status
from alpinehub.webhooks import authentication
from alpinehub.webhooks.days import YEARS
from alpinehub.webhooks.endpoint import (
    MAX_PROBLEMS,
    Problem,
    WebhookError,
    WebhookRequest,
    invalid,
    kept_headers,
    require_json,
)
from alpinehub.webhooks.values import EMAIL, ILLEGAL, LANGUAGE_CODE, line, read_phone
from cordata import KeyReused, StoreUnavailable, request_id

MAX_UTM = 20
_UTM = re.compile(r"utm_[a-z0-9_]{1,32}\Z")
_PATH = re.compile(r" - at `\$(?P<path>[^`]*)`\Z")

Name = Annotated[str, Meta(max_length=64)]
Address = Annotated[str, Meta(max_length=254)]
Token = Annotated[str, Meta(max_length=32)]
Parameter = Annotated[str, Meta(max_length=1024)]
#: By itself Decimal reads digits of any script, and 1_0.
Amount = int | float | Annotated[str, Meta(pattern=r"\A-?[0-9]+(\.[0-9]+)?\Z")]
Children = Annotated[tuple[Annotated[int, Meta(ge=0, le=17)], ...], Meta(max_length=30)]


class Payload(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The JSON object of POST /api/webhook/generic. null is the same as leaving a field out."""

    hotel_code: Annotated[str, Meta(max_length=16)] | None = None
    status: Status | None = None
    external_id: Annotated[str, Meta(max_length=128)] | None = None
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    sent_at: Annotated[datetime, Meta(tz=True)] | None = None
    arrival: date | None = None
    departure: date | None = None
    adults: Annotated[int, Meta(ge=1, le=99)] | None = None
    children: Children | None = None
    first_name: Name | None = None
    last_name: Name | None = None
    email: Address | None = None
    phone: Address | None = None
    language: Token | None = None
    message: Annotated[str, Meta(max_length=10_000)] | None = None
    total: Amount | None = None
    currency: Token | None = None
    room_type: Annotated[str, Meta(max_length=8)] | None = None
    rate_plan: Name | None = None
    meal_plan: MealPlan | None = None
    newsletter: bool | None = None
    consent: bool | None = None
    gclid: Parameter | None = None
    fbclid: Parameter | None = None
    utm_source: Parameter | None = None
    utm_medium: Parameter | None = None
    utm_campaign: Parameter | None = None
    utm_term: Parameter | None = None
    utm_content: Parameter | None = None
    utm_id: Parameter | None = None


_decode = msgspec.json.Decoder(Payload).decode
_take_apart = msgspec.json.Decoder(dict[str, Raw]).decode
_field: dict[str, Callable[[Raw], Any]] = {
    f.name: msgspec.json.Decoder(f.type).decode for f in msgspec.structs.fields(Payload)
}
_CHOICES = {"status": get_args(Status), "meal_plan": get_args(MealPlan)}
_utm = msgspec.json.Decoder(Parameter | None).decode


#: What msgspec raises for text that is not JSON; ValidationError, a DecodeError, comes before it.
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Parsed(msgspec.Struct):
    """A payload, and the problems of the fields that could not be read (None in `payload`)."""

    payload: Payload
    #: utm_ parameters that have no field of their own.
    utm: dict[str, str]
    problems: list[Problem]


def parse(body: bytes) -> Parsed:
    """Parse a body. Raises: WebhookError 400 if it is not JSON, 422 if it is not a JSON object."""
    try:
        with suppress(ValidationError):
            return Parsed(_decode(body), {}, [])
        with suppress(ValidationError):
            return _parse_each(_take_apart(body))
        # What follows the place at which it is no object may be no JSON; a number may be too large.
        with suppress(ValidationError):
            msgspec.json.decode(body)
    except _NOT_JSON as error:
        raise _bad_json(error) from error
    raise invalid([Problem("", "must be a JSON object")])


def _parse_each(raw: dict[str, Raw]) -> Parsed:
    """Decode each field by itself. Raises: DecodeError if one is not JSON."""
    problems: list[Problem] = []
    good: dict[str, Any] = {}
    utm: dict[str, str] = {}
    for name, value in raw.items():
        decode = _field.get(name)
        try:
            if decode is not None:
                good[name] = decode(value)
            elif not _UTM.match(name):
                # The search for the nearest name takes 50 us: not for a thousand unknown names.
                problem = _unknown(name) if len(problems) < MAX_PROBLEMS else "unknown field"
                problems.append(Problem(name[:64], problem))
            elif len(utm) >= MAX_UTM:
                problems.append(Problem(name, f"more than {MAX_UTM} utm_ parameters"))
            elif (text := _utm(value)) is not None:
                utm[name[4:]] = text
        except ValidationError as error:
            problems.append(_explain(name, str(error)))
    return Parsed(Payload(**good), utm, problems)


def _unknown(name: str) -> str:
    near = get_close_matches(name[:64], _field, n=1)
    return f"unknown field; did you mean {near[0]}?" if near else "unknown field"


def _explain(name: str, message: str) -> Problem:
    """A problem from msgspec's message: its path is added to the field, quotes are removed."""
    match = _PATH.search(message)
    path = match["path"] if match else ""
    text = message[: match.start()] if match else message
    if text.startswith("Invalid enum value"):
        text = f"expected one of {', '.join(_CHOICES[name])}"
    elif "datetime" in text:
        text = "not a moment with its offset (2027-01-31T10:00:00+01:00)"
    elif "encoded date" in text:
        text = "not a date (YYYY-MM-DD)"
    elif name == "total":
        text = "expected a number (1450.50)"
    text = text.replace(" | null", "").replace("`", "").replace("Expected", "expected")
    return Problem(f"{name}{path}", text)


def _bad_json(error: Exception) -> WebhookError:
    if isinstance(error, RecursionError):
        message = "The body is nested too deeply."
    elif isinstance(error, UnicodeDecodeError):
        message = "The body is not UTF-8."
    else:
        message = f"The body is not JSON: {error}."
    return WebhookError(400, "bad_json", message)


_CURRENCY = re.compile(r"[A-Za-z]{3}")
_ILLEGAL_IN_LINE = re.compile("[\x00-\x1f\ufffe\uffff]")
#: Fields with text of one line: all but the message.
_LINES = (
    "hotel_code", "external_id", "first_name", "last_name", "email", "phone", "language",
    "currency", "room_type", "rate_plan", "gclid", "fbclid", "utm_source", "utm_medium",
    "utm_campaign", "utm_term", "utm_content", "utm_id",
)  # fmt: skip
_WHO = ("first_name", "last_name", "email", "phone")
#: Fields that a ReservationData has, too, but for those with another type there.
_COPIED = tuple(
    name
    for name in Payload.__struct_fields__
    if name not in ("status", "total") and name in ReservationData.__struct_fields__
)
_MAX_TOTAL = Decimal("99999999.99")
_CENT = Decimal("0.01")

_STAY = ("arrival", "departure", "adults")
#: Required fields by status. A cancellation is identified by its external_id.
_REQUIRED: dict[Status, tuple[str, ...]] = {
    "request": _STAY,
    "reservation": (*_STAY, "room_type", "rate_plan", "total", "currency"),
    "cancelled": ("external_id",),
}


class CheckedPayload(msgspec.Struct, frozen=True):
    """A valid payload."""

    #: The source's id of the reservation; None: each post is a new reservation.
    external_id: str | None
    data: ReservationData
    #: Fields missing in a cancellation; with any, it must be of a known reservation.
    lacks: list[Problem]


def normalise(parsed: Parsed) -> CheckedPayload:
    """Check and normalise.

    Raises: WebhookError 422 with every problem of the payload, those of `parsed` included.
    """
    payload, problems = parsed.payload, parsed.problems
    unreadable = {p.field.split("[", 1)[0] for p in problems}
    _trim(payload)
    _check_characters(payload, parsed.utm, problems)
    _check_dates(payload, problems)
    extra = _check_contact(payload, problems)
    total = _check_total(payload, problems)
    status = payload.status
    required = _REQUIRED[status] if status else ()
    problems += _missing(payload, ("hotel_code", "status", *required), unreadable)
    if status != "cancelled":
        problems += _nameless(payload, unreadable)
    if problems or status is None:
        raise invalid(problems)
    lacks = [] if status != "cancelled" else _missing(payload, _STAY) + _nameless(payload)
    data = _record(payload, parsed.utm, status, total, extra)
    return CheckedPayload(payload.external_id, data, lacks)


def _trim(payload: Payload) -> None:
    """Remove white space around lines; an empty text becomes None."""
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
    if payload.message and (match := ILLEGAL.search(payload.message)):
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
    """Check address, number and language. Returns the telephone field as written, for `extra`, if
    it has more than one number or none.
    """
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
        if not LANGUAGE_CODE.fullmatch(payload.language):
            problems.append(Problem("language", "not a language code (de, it, en, de-AT)"))
        payload.language = payload.language[:2].lower()
    return extra


def _check_total(payload: Payload, problems: list[Problem]) -> Decimal | None:
    """Check price and currency. Returns the price, with two decimal places."""
    if payload.currency is not None:
        if not _CURRENCY.fullmatch(payload.currency):
            problems.append(Problem("currency", "not a currency code of three letters"))
        payload.currency = payload.currency.upper()
    if payload.total is None:
        return None
    if payload.currency is None and payload.status != "reservation":
        problems.append(Problem("currency", "required with total"))
    total = Decimal(str(payload.total))  # of a float the shortest digits, as it was written
    if not 0 <= total <= _MAX_TOTAL:
        problems.append(Problem("total", f"expected a number from 0 to {_MAX_TOTAL}"))
    elif total != (rounded := total.quantize(_CENT)):
        problems.append(Problem("total", "has more than two decimal places"))
    else:
        return abs(rounded)  # -0.00 is 0.00
    return None


def _missing(
    payload: Payload, names: Iterable[str], unreadable: Collection[str] = ()
) -> list[Problem]:
    """A problem for each field that is missing, except unreadable ones, which have one already."""
    return [
        Problem(name, "required")
        for name in names
        if getattr(payload, name) is None and name not in unreadable
    ]


def _nameless(payload: Payload, unreadable: Collection[str] = ()) -> list[Problem]:
    if any(getattr(payload, name) is not None or name in unreadable for name in _WHO):
        return []
    return [Problem("last_name", "required: a name, an e-mail address or a telephone number")]


def _record(
    payload: Payload, utm: dict[str, str], status: Status, total: Decimal | None, extra: str
) -> ReservationData:
    for name in ("source", "medium", "campaign", "term", "content", "id"):
        if (value := getattr(payload, f"utm_{name}")) is not None:
            utm[name] = value
    given = {name: value for name in _COPIED if (value := getattr(payload, name)) is not None}
    return ReservationData(status=status, utm=utm, total=total, extra=extra, **given)


KIND = "generic"
_KEY = re.compile(rb"[\x21-\x7e]{1,200}")


async def post(request: WebhookRequest) -> Reply:
    """Store one submission. Raises: WebhookError, StoreUnavailable."""
    snapshot = await directory_of(request.ctx).snapshot()
    headers = request.headers
    secret = headers.get(b"x-webhook-secret")
    signature = headers.get(b"x-signature-256")
    sources: Sequence[Source] = ()
    if secret is not None:
        sources = authentication.by_secret(request.ctx, snapshot, KIND, secret)
    if not sources and (secret is not None or signature is None):
        raise authentication.unauthorized()
    require_json(headers)
    body = await request.body()
    if signature is not None:
        if secret is None:
            sources = authentication.candidates(
                snapshot, KIND, request.query, body, lambda: _hotel_code(body)
            )
        sources = authentication.by_signature(request.ctx, sources, signature, body)
    try:
        return await _store(request, sources, body)
    except WebhookError:
        await _count_refused(request, sources)
        raise


async def _count_refused(request: WebhookRequest, sources: Sequence[Source]) -> None:
    """Count the error for the hotel's report, if the secret belongs to one hotel only."""
    hotels = {source.hotel.id for source in sources}
    if len(hotels) != 1:
        return
    with suppress(StoreUnavailable):  # the refusal is the answer
        await request.ctx.store.run(partial(counts.add, hotel_id=hotels.pop(), kind="error"))


def _hotel_code(body: bytes) -> str:
    """The hotel_code of a body that is not authenticated yet; "" if it has none."""
    try:
        return (parse(body).payload.hotel_code or "").strip()
    except WebhookError:
        return ""


async def _store(request: WebhookRequest, sources: Sequence[Source], body: bytes) -> Reply:
    parsed = parse(body)
    key = _idempotency_key(request.headers)
    source = _source_of_hotel(sources, parsed.payload.hotel_code)
    checked, now_us = normalise(parsed), request.ctx.now_us()
    submission = NormalisedSubmission(
        source_id=source.id,
        hotel=source.hotel,
        data=checked.data,
        external_id=checked.external_id,
        order=_order(parsed.payload, now_us),
        may_create=not checked.lacks,
        body=body,
        headers=kept_headers(request.headers),
        request_id=request_id.get(),
        idempotency_key=key,
        body_hash=blake2b(body, digest_size=16).hexdigest() if key else "",
    )
    try:
        result = await store_submission(request.ctx.store, submission, now_us=now_us)
    except KeyReused:
        message = "This Idempotency-Key was used with another body before."
        raise WebhookError(422, "idempotency_key_reused", message) from None
    except UnknownReservation:
        unknown = Problem("external_id", "not known; a cancellation of it must be complete")
        raise invalid([unknown, *checked.lacks]) from None
    return Reply(200, b'{"id":"%s"}' % result.reservation_id.encode())


def _order(payload: Payload, now_us: int) -> SubmissionOrder:
    sent_at = None
    if payload.sent_at is not None:  # a fast clock must not outrank later changes
        sent_at = min(round(payload.sent_at.timestamp() * 1_000_000), now_us)
    return SubmissionOrder(sequence=payload.sequence, sent_at=sent_at)


def _source_of_hotel(sources: Sequence[Source], hotel_code: str | None) -> Source:
    """The source whose hotel the payload names. Raises: WebhookError 404.

    A payload without a usable hotel_code is rejected with all its other problems, later.
    """
    if hotel_code is None or not (code := hotel_code.strip()):
        return sources[0]
    for source in sources:
        if source.hotel.code == code:
            return source
    raise WebhookError(404, "unknown_hotel", "This source has no hotel of that hotel_code.")


def _idempotency_key(headers: dict[bytes, bytes]) -> str | None:
    key = headers.get(b"idempotency-key")
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        raise invalid([Problem("Idempotency-Key", "expected 1 to 200 visible ASCII characters")])
    return key.decode()
