"""The generic payload as it may look: types, lengths, shapes. What it means is normalise.py's.

A good payload is decoded in one pass. msgspec stops at the first mistake, though, and a sender
wants to see all of them at once: a payload that fails is taken apart and each field decoded for
itself, by the same types, so that there is one set of rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from difflib import get_close_matches
from typing import Annotated, Any, NoReturn, get_args

import msgspec
from msgspec import Meta, Raw, ValidationError

from alpinehub.reservations import MealPlan, Status
from alpinehub.webhooks.http_error import MAX_PROBLEMS, HttpError, Problem, invalid

MAX_UTM = 20
_UTM = re.compile(r"utm_[a-z0-9_]{1,32}\Z")
_PATH = re.compile(r" - at `\$(?P<path>[^`]*)`\Z")

Name = Annotated[str, Meta(max_length=64)]
Address = Annotated[str, Meta(max_length=254)]
Token = Annotated[str, Meta(max_length=32)]
Parameter = Annotated[str, Meta(max_length=1024)]
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
    total: Decimal | None = None
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
_CHOICES: dict[str, tuple[str, ...]] = {
    "status": get_args(Status),
    "meal_plan": get_args(MealPlan),
}
_utm = msgspec.json.Decoder(Parameter | None).decode


class Parsed(msgspec.Struct):
    """A payload, and what is wrong with the fields that could not be read (None in `payload`)."""

    payload: Payload
    #: utm_ parameters that have no field of their own.
    utm: dict[str, str]
    problems: list[Problem]


def parse(body: bytes) -> Parsed:
    """Read a body. Raises: HttpError 400 when it is no JSON, 422 when it is no JSON object."""
    try:
        return Parsed(_decode(body), {}, [])
    except ValidationError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_json(error) from error
    try:
        return _parse_each(_take_apart(body))
    except ValidationError:
        return _not_an_object(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_json(error) from error


def _not_an_object(body: bytes) -> NoReturn:
    """Raises: HttpError 422; 400 when what is not an object is not even JSON."""
    try:
        msgspec.json.decode(body)
    except ValidationError:
        pass  # a number out of range
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_json(error) from error
    raise invalid([Problem("", "must be a JSON object")])


def _parse_each(raw: dict[str, Raw]) -> Parsed:
    """Decode each field for itself. Raises: DecodeError when one holds no JSON."""
    problems: list[Problem] = []
    good: dict[str, Any] = {}
    utm: dict[str, str] = {}
    for name, value in raw.items():
        decode = _field.get(name)
        try:
            if decode is not None:
                good[name] = decode(value)
            elif not _UTM.match(name):
                # Of a thousand unknown names nobody is told the nearest: each costs 50 us.
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
    """msgspec's sentence in our words: the path goes to the field, the quotes go."""
    match = _PATH.search(message)
    path = match["path"] if match else ""
    text = message[: match.start()] if match else message
    if text.startswith("Invalid enum value"):
        text = f"expected one of {', '.join(_CHOICES[name])}"
    elif "datetime" in text:
        text = "not a moment with its offset (2027-01-31T10:00:00+01:00)"
    elif "encoded date" in text:
        text = "not a date (YYYY-MM-DD)"
    text = text.replace(" | null", "").replace("`", "").replace("Expected", "expected")
    return Problem(f"{name}{path}", text)


def _bad_json(error: Exception) -> HttpError:
    if isinstance(error, RecursionError):
        message = "The body is nested too deeply."
    elif isinstance(error, UnicodeDecodeError):
        message = "The body is not UTF-8."
    else:
        message = f"The body is not JSON: {error}."
    return HttpError(400, "bad_json", message)
