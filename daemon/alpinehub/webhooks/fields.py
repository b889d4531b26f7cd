"""The fields of a form, and which answers what: by the mapping, else by key, label, contact.

    an explicit place ............ that one, and no other, as long as the form has it
    else the key of a field ...... `first_name_abae`, `arrivo`
    else its label ............... Anreise, Arrivo, Arrival
    else the CRM's contact ....... contact.email

Two fields for one answer that say different things are ambiguous: a person decides, not a rule.

`source.mapping` holds the mapping as JSON, `alpinehub inbox map` writes it:

    {"revision": 3,
     "fields": {"arrival": ["field:date_picker_a7c8"], "departure": ["label:Abreise"]},
     "values": {"room_type": {"Doppelzimmer": "DZ", "*": ""}},
     "defaults": {"adults": "2"}, "ignore": ["field:utm_*"],
     "date_order": "auto", "without_stay": "review"}

A place is `field:KEY`, `prefix:KEY` (without the suffix that changes with the form), `label:TEXT`,
or `path:contact.name.first`. The first of a target that holds something counts; a target without
places is looked up by the names of fields (field_names.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from collections.abc import Mapping as MappingOf
from datetime import date, tzinfo
from difflib import get_close_matches
from typing import Literal, TypeVar

import msgspec

from alpinehub.webhooks.days import Order
from alpinehub.webhooks.field_names import (
    DAY_KEYS,
    VAGUE,
    meant_by_key,
    meant_by_label,
    plain,
    stem,
)
from alpinehub.webhooks.submission import Answer
from alpinehub.webhooks.values import line, read_count

#: What a place can be mapped to. `name`, `dates`, `guests`, `nights`, `children_count` and
#: `children_or_ages` are read into others; what goes to `privacy` is sent to no hotel; `child_age`
#: is the default age of a child without one.
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

    #: Goes up by one with each change; the history has the one by which a request was mapped.
    revision: int = 0
    #: Places by target.
    fields: dict[str, tuple[str, ...]] = {}
    #: For a target what is meant by a text; `*` by every other.
    values: dict[str, dict[str, str]] = {}
    #: For a target what counts where a form says nothing; read like an answer.
    defaults: dict[str, str] = {}
    #: Fields that are not shown; a `*` at the end takes all that begin so.
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
            name_of = answer.label if kind == "label" else answer.key
            if name_of.casefold().startswith(name[:-1].casefold()):
                return True
        elif is_at(answer, place):
            return True
    return False


#: Several fields may each hold a part of these.
_SEVERAL = frozenset({"children", "message", "address"})
_CONTACT = {
    "contact.name.first": "first_name", "contact.name.last": "last_name",
    "contact.email": "email", "contact.phone": "phone", "contact.locale": "language",
    "contact.birthdate": "birth_date", "contact.address.addressLine": "address",
    "contact.address.city": "city", "contact.address.postalCode": "postal_code",
    "contact.address.country": "country", "contact.address.subdivision": "state",
}  # fmt: skip
#: A number of people that one form asks for.
_MOST_PEOPLE = 99
#: What else a number counts; as the names of fields begin, written as `field_names.plain` has them.
_ELSE = (
    "zimmer", "anzahl zimmer", "camer", "numero camere", "chambre", "room", "number of rooms",
    "apartment", "appart", "wohnung", "nacht", "nachte", "notti", "nuit", "night", "tag", "giorn",
    "jour", "day", "alter", "eta", "age", "budget", "preis", "prezzo", "prix", "price", "betrag",
    "jahr", "anno", "annee", "year", "monat", "mese", "mois", "month", "hund", "dog", "cane",
    "bett", "letti", "lits", "bed", "park", "garage", "auto", "car", "haus", "house", "stunde",
    "uhr", "ora", "heure", "hour", "time", "id", "step", "page", "post", "version", "token",
    "submit", "captcha", "quiz", "agb", "check", "box", "accept", "akzept", "gutschein", "voucher",
)  # fmt: skip


def _counts_else(name: str) -> bool:
    """Whether a number in a field of this name is none of people."""
    words = plain(name)
    return (
        words.startswith(_ELSE)
        or any(word.startswith(_ELSE) for word in words.split() if len(word) > 3)
        or words.endswith((" id", " nr"))
    )


def title(answer: Answer) -> str:
    """What people call a field."""
    return line(answer.label or stem(answer.key).replace("_", " "))


class Fields:
    """The fields of one submission, and which of them are answers to something."""

    def __init__(self, answers: Sequence[Answer], mapping: Mapping) -> None:
        self._answers = [a for a in answers if not is_ignored(a, mapping)]
        self._mapping = mapping
        self._taken: set[int] = set()
        #: Targets of which two fields say different things.
        self.ambiguous: list[str] = []
        #: Targets whose field was gone, and that another one with its prefix stands for.
        self.remapped: list[str] = []
        #: What the fields taken are called, by target.
        self.titles: dict[str, str] = {}
        #: Answers that an explicit place names: they answer nothing else.
        self._placed = {
            number
            for places in mapping.fields.values()
            for place in places
            for number, answer in enumerate(self._answers)
            if is_at(answer, place)
        }
        self._meant = [self._meaning(answer) for answer in self._answers]
        #: Fields that say something and have no place, by what their key asks for; of the others,
        #: by what their label does.
        self._by_key: dict[str, list[int]] = {}
        self._by_label: dict[str, list[int]] = {}
        for number, (by_key, by_label) in enumerate(self._meant):
            if number not in self._placed and self._answers[number].value.strip():
                found = self._by_key if by_key else self._by_label
                found.setdefault(by_key or by_label, []).append(number)

    def _meaning(self, answer: Answer) -> tuple[str, str]:
        """What its key asks for, and its label. A vague key counts without a foreign label."""
        if answer.contact:
            return "", ""
        by_label = meant_by_label(answer.label) if answer.label else ""
        by_key = meant_by_key(answer.key) if answer.key else ""
        if not by_key and not answer.label:
            vague = VAGUE.get(plain(stem(answer.key)), "")
            by_key = vague if vague != "adults" or self._is_single(answer) else ""
        return by_key, by_label

    def _is_single(self, answer: Answer) -> bool:
        """Whether no other field has a key of its prefix."""
        name = stem(answer.key)
        return sum(stem(other.key) == name for other in self._answers if not other.contact) == 1

    def take(self, target: str) -> str:
        """What the form answers to a target; "" for nothing."""
        if target in self._mapping.fields:
            numbers = self._mapped(target)
        else:
            numbers = self._named(target) or self._of_contact(target)
        numbers = [n for n in numbers if self._answers[n].value.strip()]
        values = dict.fromkeys(self._answers[n].value.strip() for n in numbers)
        if len(values) > 1 and target not in _SEVERAL:
            self.ambiguous.append(target)
            return ""
        self._taken.update(numbers)
        if numbers:
            self.titles[target] = title(self._answers[numbers[0]])
        return ("\n" if target == "message" else ", ").join(values)

    def _mapped(self, target: str) -> list[int]:
        """The first of its places that holds something. When the form has none of them, by name
        or by what is left of the key: it was edited, or is another one of the source's forms.
        """
        places = self._mapping.fields[target]
        there = False
        for place in places:
            found = [n for n, answer in enumerate(self._answers) if is_at(answer, place)]
            if any(self._answers[n].value.strip() for n in found):
                return found
            there = there or bool(found)
        if there:
            return []
        if named := self._named(target):
            self.remapped.append(target)
            return named
        stems = {stem(p.removeprefix("field:")) for p in places if p.startswith("field:")}
        others = [
            n
            for n, answer in enumerate(self._answers)
            if n not in self._placed | self._taken
            and bool(answer.key and answer.value.strip())
            and not answer.contact
            and stem(answer.key) in stems
        ]
        (self.remapped if len(others) == 1 else self.ambiguous if others else []).append(target)
        return others if len(others) == 1 else []

    def _named(self, target: str) -> list[int]:
        by_key = [n for n in self._by_key.get(target, ()) if n not in self._taken]
        both = [n for n in by_key if self._meant[n][1] == target]
        if by_key:
            return both if len(by_key) > 1 and len(both) == 1 else by_key
        return [n for n in self._by_label.get(target, ()) if n not in self._taken]

    def _of_contact(self, target: str) -> list[int]:
        return [
            n
            for n, answer in enumerate(self._answers)
            if answer.contact and _CONTACT.get(answer.key) == target
        ]

    def of_contact(self, target: str) -> str:
        """What the CRM has for a target, whatever the form says."""
        numbers = self._of_contact(target)
        return self._answers[numbers[0]].value.strip() if numbers else ""

    def other_day(self) -> str:
        """The only date field left whose name says nothing: the other end of a stay."""
        days = [
            n
            for n, answer in enumerate(self._answers)
            if n not in self._placed | self._taken
            and answer.value.strip()
            and not answer.label
            and plain(stem(answer.key)) in DAY_KEYS
        ]
        if len(days) != 1:
            return ""
        self._taken.update(days)
        return self._answers[days[0]].value.strip()

    def has_days(self) -> bool:
        """Whether date fields are left whose names say nothing."""
        return any(
            n not in self._placed | self._taken
            and bool(answer.value.strip())
            and plain(stem(answer.key)) in DAY_KEYS
            for n, answer in enumerate(self._answers)
        )

    def has_more_of(self, target: str) -> bool:
        """Whether something is said of children, say, by whatever name."""
        return any(
            n not in self._taken
            and bool(self._answers[n].value.strip())
            and any(name.startswith(target) for name in meant)
            for n, meant in enumerate(self._meant)
        )

    def has_number_left(self) -> bool:
        """Whether a number is left, in a field whose name may ask for people: `pax: 4`."""
        return any(
            n not in self._taken
            and not answer.contact
            and not any(self._meant[n])
            and not any(plain(name) and _counts_else(name) for name in (answer.key, answer.label))
            and 0 < (read_count(answer.value) or 0) <= _MOST_PEOPLE
            for n, answer in enumerate(self._answers)
        )

    def has_word(self, words: frozenset[str]) -> bool:
        """Whether the name of a field has one of the words (as `field_names.plain` writes them)."""
        return any(
            not answer.contact and not words.isdisjoint(plain(title(answer)).split())
            for answer in self._answers
        )

    def left(self) -> list[Answer]:
        """What answers nothing that was asked for; the CRM's contact aside."""
        return [
            answer
            for n, answer in enumerate(self._answers)
            if n not in self._taken and answer.value.strip() and not answer.contact
        ]


T = TypeVar("T")


class FieldResolver:
    """One submission, asked for one target after the other."""

    def __init__(
        self,
        fields: Fields,
        mapping: Mapping,
        zone: tzinfo,
        today: date | None = None,
        *,
        accept: bool = False,
    ) -> None:
        self.fields = fields
        self.mapping = mapping
        #: `missing:arrival`, `unreadable:adults`: why there is no record.
        self.problems: list[str] = []
        self._extra: list[str] = []
        #: The hotel's.
        self.zone = zone
        #: The day on which it came, at the hotel; None: not known.
        self.today = today
        #: An operator accepts a stay that is in the past, or very long.
        self.accept = accept
        #: The guest's language as the form or the CRM has it: `en-US`, `Deutsch`.
        self.language = self.text_of("language")
        #: The number of adults is a default: the form was not understood to ask for it.
        self.adults_assumed = False

    def said(self, target: str) -> str:
        """What the form says; "" for nothing."""
        text = self.fields.take(target)
        words = self.mapping.values.get(target)
        if text and words:
            known = {plain(word): meant for word, meant in words.items() if word != "*"}
            text = known.get(plain(text), words.get("*", text))
        return text.strip()

    def text_of(self, target: str) -> str:
        """What the form says, else what counts where it says nothing."""
        return self.said(target) or self.mapping.defaults.get(target, "").strip()

    def maybe(self, target: str, read: Callable[[str], T | None], otherwise: T) -> T:
        """What no reservation needs: kept as written where it cannot be read."""
        return self.maybe_of(target, self.text_of(target), read, otherwise)

    def maybe_of(self, target: str, text: str, read: Callable[[str], T | None], otherwise: T) -> T:
        """As `maybe`, of a text that was asked for before."""
        if not text:
            return otherwise
        value = read(text)
        if value is None:
            self.keep(target, text)
            return otherwise
        return value

    def short(self, target: str, most: int) -> str:
        """A line of so many characters; a longer one is kept whole beside it."""
        text = line(self.text_of(target))
        if len(text) <= most:
            return text
        self.keep(target, text)
        return text[:most].rstrip()

    def keep(self, target: str, text: str) -> None:
        """Have the hotel see it as it was written."""
        self._extra.append(f"{self.fields.titles.get(target) or target}: {line(text)}")

    def rest(self) -> str:
        """What was kept, and what nothing was asked for; a line each."""
        self.fields.take("privacy")
        left = [f"{title(answer) or '-'}: {line(answer.value)}" for answer in self.fields.left()]
        return "\n".join((*self._extra, *left))
