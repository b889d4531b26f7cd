"""How the fields of a source's form become a reservation, where their names do not say it.

`source.mapping` holds it as JSON, `alpinehub inbox map` writes it:

    {"revision": 3,
     "fields": {"arrival": ["field:date_picker_a7c8"], "departure": ["label:Abreise"]},
     "values": {"room_type": {"Doppelzimmer": "DZ", "*": ""}},
     "defaults": {"adults": "2"}, "ignore": ["field:utm_*"],
     "date_order": "auto", "without_stay": "review"}

A place is `field:KEY`, `prefix:KEY` (without the suffix that changes with the form), `label:TEXT`,
or `path:contact.name.first`. The first of a target that holds something counts; a target without
places is looked up by the names of fields (words.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingOf
from difflib import get_close_matches
from typing import Literal

import msgspec

from alpinehub.webhooks.days import Order
from alpinehub.webhooks.field_names import plain, stem
from alpinehub.webhooks.submission import Answer

#: What a place can be mapped to. `name`, `dates`, `guests`, `nights`, `children_count` and
#: `children_or_ages` are read into others; what goes to `privacy` is told to no hotel; `child_age`
#: is the age of a child of which none is told, as a default.
TARGETS = (
    "arrival", "departure", "dates", "nights", "adults", "children", "children_or_ages",
    "children_count", "child_age", "guests", "name", "first_name", "last_name", "prefix", "title",
    "gender",
    "birth_date", "email", "phone", "language", "message", "address", "city", "postal_code",
    "country", "state", "pets", "newsletter", "consent", "privacy", "room_type", "rate_plan",
    "meal_plan", "total", "currency", "status", "external_id", "gclid", "fbclid",
)  # fmt: skip
_PLACE = re.compile(r"(field|prefix|label|path):(.{1,200})", re.DOTALL)
_MOST = 100


class Mapping(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The mapping of one source."""

    #: Goes up by one with each change; the trail tells by which one a request was mapped.
    revision: int = 0
    #: Places by target.
    fields: dict[str, tuple[str, ...]] = {}
    #: For a target what is meant by a text; `*` by every other.
    values: dict[str, dict[str, str]] = {}
    #: For a target what counts where a form says nothing; read like an answer.
    defaults: dict[str, str] = {}
    #: Places that nobody is to see; a `*` at the end takes all that begin so.
    ignore: tuple[str, ...] = ()
    #: How 1/2/2027 is meant; auto: as the guest's language and the form say, else it is reviewed.
    date_order: Literal["auto"] | Order = "auto"
    #: Who asks without dates: to the review list, or a request without a stay (AlpineBits knows
    #: it from 2022-10 on; for older hotel software it is held).
    without_stay: Literal["review", "lead"] = "review"


#: The mapping of a source that has none.
OF_KIND: MappingOf[str, Mapping] = {
    "wix": Mapping(defaults={"adults": "2"}),
    "form": Mapping(defaults={"adults": "2"}),
    "google": Mapping(defaults={"adults": "2"}, without_stay="lead"),
}
_decode = msgspec.json.Decoder(Mapping).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode(mapping: Mapping) -> str:
    """The JSON of `source.mapping`."""
    return _encode(mapping).decode()


def decode(text: str | bytes) -> Mapping:
    """The mapping in a JSON text. Raises: msgspec.DecodeError with a sentence."""
    return _decode(text)


def of_source(kind: str, text: str | None) -> Mapping:
    """The mapping of a source as it is stored. Raises: msgspec.DecodeError."""
    return OF_KIND.get(kind, Mapping()) if text is None else _decode(text)


def problems_of(mapping: Mapping) -> list[str]:
    """What is wrong with a mapping, a sentence each."""
    found = []
    for what in ("fields", "values", "defaults"):
        for target in getattr(mapping, what):
            if target not in TARGETS:
                near = get_close_matches(target, TARGETS, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                found.append(f"there is no target {target!r}{hint}")
    places = [place for many in mapping.fields.values() for place in many]
    if len(places) > _MOST or sum(map(len, mapping.values.values())) > 10 * _MOST:
        found.append("it is too large")
    found += [
        f"{place!r} is no place: field:KEY, prefix:KEY, label:TEXT or path:contact.NAME"
        for place in (*places, *mapping.ignore)
        if not _PLACE.fullmatch(place)
    ]
    return found


def is_at(answer: Answer, place: str) -> bool:
    """Whether an answer is the one that a place names."""
    kind, _, name = place.partition(":")
    if kind == "field":
        return not answer.contact and bool(answer.key) and answer.key == name
    if kind == "prefix":
        return not answer.contact and bool(answer.key) and stem(answer.key) == stem(name)
    if kind == "label":
        return bool(answer.label) and plain(answer.label) == plain(name)
    return answer.contact and answer.key == name


def is_ignored(answer: Answer, mapping: Mapping) -> bool:
    """Whether an operator said that nobody is to see it."""
    for place in mapping.ignore:
        kind, _, name = place.partition(":")
        if place.endswith("*"):
            told = answer.label if kind == "label" else answer.key
            if told.casefold().startswith(name[:-1].casefold()):
                return True
        elif is_at(answer, place):
            return True
    return False
