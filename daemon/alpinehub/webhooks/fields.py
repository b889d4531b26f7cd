"""The fields of a form, and the target of each: by the mapping, else by key, label, contact.

    an explicit place ............ that one, and no other, as long as the form has it
    else the key of a field ...... `first_name_abae`, `arrivo`
    else its label ............... Anreise, Arrivo, Arrival
    else the CRM's contact ....... contact.email

Two fields for one target with different values are ambiguous: a person decides, not a rule.

`source.mapping` holds the mapping as JSON, `alpinehub inbox map` writes it:

    {"revision": 3,
     "fields": {"arrival": ["field:date_picker_a7c8"], "departure": ["label:Abreise"]},
     "values": {"room_type": {"Doppelzimmer": "DZ", "*": ""}},
     "defaults": {"adults": "2"}, "ignore": ["field:utm_*"],
     "date_order": "auto", "without_stay": "review"}

A place is `field:KEY`, `prefix:KEY` (without the suffix that changes with the form), `label:TEXT`,
or `path:contact.name.first`. Of the places of a target the first with a value counts; a target
without places is looked up by the names of fields (field_names.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, tzinfo
from difflib import get_close_matches
from typing import Literal, TypeVar

import msgspec

from alpinehub.webhooks.days import DateOrder
from alpinehub.webhooks.field_names import (
    DAY_KEYS,
    VAGUE,
    plain,
    stem,
    target_of_key,
    target_of_label,
)
from alpinehub.webhooks.submission import FormField
from alpinehub.webhooks.values import line, read_count

#: Targets of a mapping. `name`, `dates`, `guests`, `nights`, `children_count` and
#: `children_or_ages` are converted to others; `privacy` is not sent to the hotel; `child_age` is
#: the default age of a child without one.
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


class FieldMapping(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The mapping of one source."""

    #: Increased by one with each change; the history of a request has the revision that mapped it.
    revision: int = 0
    #: Places by target.
    fields: dict[str, tuple[str, ...]] = {}
    #: Target -> text -> meaning; the text `*` stands for all others.
    values: dict[str, dict[str, str]] = {}
    #: Target -> value if the form has none; parsed like an answer.
    defaults: dict[str, str] = {}
    #: Places that are not shown; with a `*` at the end, all that begin so.
    ignore: tuple[str, ...] = ()
    #: How to read 1/2/2027; auto: by the guest's language and the form, if unclear to review.
    date_order: Literal["auto"] | DateOrder = "auto"
    #: Submissions without dates: to the review list, or a request without a stay (in AlpineBits
    #: since 2022-10; undeliverable to older hotel software).
    without_stay: Literal["review", "lead"] = "review"


#: The default mapping of each kind of source.
OF_KIND: Mapping[str, FieldMapping] = {
    "wix": FieldMapping(defaults={"adults": "2"}),
    "form": FieldMapping(defaults={"adults": "2"}),
    "google": FieldMapping(defaults={"adults": "2"}, without_stay="lead"),
}
#: The mapping in a JSON text. Raises: msgspec.DecodeError.
decode = msgspec.json.Decoder(FieldMapping).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode(mapping: FieldMapping) -> str:
    """The JSON of `source.mapping`."""
    return _encode(mapping).decode()


def of_source(kind: str, text: str | None) -> FieldMapping:
    """The mapping of a source as it is stored. Raises: msgspec.DecodeError."""
    return OF_KIND.get(kind, FieldMapping()) if text is None else decode(text)


def problems_of(mapping: FieldMapping) -> list[str]:
    """The mistakes in a mapping, a sentence each."""
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
        f"{place!r} is not a place: field:KEY, prefix:KEY, label:TEXT or path:contact.NAME"
        for place in (*places, *mapping.ignore)
        if not _PLACE.fullmatch(place)
    ]
    return found


def is_at(answer: FormField, place: str) -> bool:
    """Whether an answer is the one that a place names."""
    kind, _, name = place.partition(":")
    if kind == "field":
        return not answer.contact and bool(answer.key) and answer.key == name
    if kind == "prefix":
        return not answer.contact and bool(answer.key) and stem(answer.key) == stem(name)
    if kind == "label":
        return bool(answer.label) and plain(answer.label) == plain(name)
    return answer.contact and answer.key == name


def is_ignored(answer: FormField, mapping: FieldMapping) -> bool:
    """Whether the mapping ignores an answer."""
    for place in mapping.ignore:
        kind, _, name = place.partition(":")
        if place.endswith("*"):
            name_of = answer.label if kind == "label" else answer.key
            if name_of.casefold().startswith(name[:-1].casefold()):
                return True
        elif is_at(answer, place):
            return True
    return False


#: Targets whose value may be spread over several fields.
_SEVERAL = frozenset({"children", "message", "address"})
_CONTACT = {
    "contact.name.first": "first_name", "contact.name.last": "last_name",
    "contact.email": "email", "contact.phone": "phone", "contact.locale": "language",
    "contact.birthdate": "birth_date", "contact.address.addressLine": "address",
    "contact.address.city": "city", "contact.address.postalCode": "postal_code",
    "contact.address.country": "country", "contact.address.subdivision": "state",
}  # fmt: skip
#: Largest number that may be a number of people.
_MOST_PEOPLE = 99
#: Beginnings of names of fields whose number is not of people, as `field_names.plain` writes them.
_NOT_PEOPLE = (
    "zimmer", "anzahl zimmer", "camer", "numero camere", "chambre", "room", "number of rooms",
    "apartment", "appart", "wohnung", "nacht", "nachte", "notti", "nuit", "night", "tag", "giorn",
    "jour", "day", "alter", "eta", "age", "budget", "preis", "prezzo", "prix", "price", "betrag",
    "jahr", "anno", "annee", "year", "monat", "mese", "mois", "month", "hund", "dog", "cane",
    "bett", "letti", "lits", "bed", "park", "garage", "auto", "car", "haus", "house", "stunde",
    "uhr", "ora", "heure", "hour", "time", "id", "step", "page", "post", "version", "token",
    "submit", "captcha", "quiz", "agb", "check", "box", "accept", "akzept", "gutschein", "voucher",
)  # fmt: skip


def _counts_else(name: str) -> bool:
    """Whether a number in a field of this name is not a number of people."""
    words = plain(name)
    return (
        words.startswith(_NOT_PEOPLE)
        or any(word.startswith(_NOT_PEOPLE) for word in words.split() if len(word) > 3)
        or words.endswith((" id", " nr"))
    )


def title(answer: FormField) -> str:
    """The label of a field, else its key as words."""
    return line(answer.label or stem(answer.key).replace("_", " "))


T = TypeVar("T")


class FieldResolver:
    """Reads the targets of one submission from its fields; collects problems and extra text."""

    def __init__(
        self,
        answers: Sequence[FormField],
        mapping: FieldMapping,
        zone: tzinfo,
        today: date | None = None,
        *,
        accept: bool = False,
    ) -> None:
        self.mapping = mapping
        #: The hotel's time zone.
        self.zone = zone
        #: The hotel's local day on which it arrived; None: not known.
        self.today = today
        #: An operator accepts a stay that is in the past, or very long.
        self.accept = accept
        #: Reasons why there is no record: `missing:arrival`, `unreadable:adults`.
        self.problems: list[str] = []
        self._extra: list[str] = []
        self._answers = [a for a in answers if not is_ignored(a, mapping)]
        self._taken: set[int] = set()
        #: Targets for which two fields have different values.
        self.ambiguous: list[str] = []
        #: Targets whose mapped field was missing and was replaced by another with its prefix.
        self.remapped: list[str] = []
        #: Target -> title of its field.
        self.titles: dict[str, str] = {}
        #: Answers that an explicit place names: not used for other targets.
        self._placed = {
            number
            for places in mapping.fields.values()
            for place in places
            for number, answer in enumerate(self._answers)
            if is_at(answer, place)
        }
        self._meant = [self._meaning(answer) for answer in self._answers]
        #: Target -> fields with a value and without a place, by key; else by label.
        self._by_key: dict[str, list[int]] = {}
        self._by_label: dict[str, list[int]] = {}
        for number, (by_key, by_label) in enumerate(self._meant):
            if number not in self._placed and self._answers[number].value.strip():
                found = self._by_key if by_key else self._by_label
                found.setdefault(by_key or by_label, []).append(number)
        #: The number of adults is a default: the form has no field for it.
        self.adults_assumed = False
        #: The guest's language as the form or the CRM has it: `en-US`, `Deutsch`.
        self.language = self.take_text("language")

    def _meaning(self, answer: FormField) -> tuple[str, str]:
        """The targets by key and by label. A vague key counts only without a label."""
        if answer.contact:
            return "", ""
        by_label = target_of_label(answer.label) if answer.label else ""
        by_key = target_of_key(answer.key) if answer.key else ""
        if not by_key and not answer.label:
            vague = VAGUE.get(plain(stem(answer.key)), "")
            by_key = vague if vague != "adults" or self._is_single(answer) else ""
        return by_key, by_label

    def _is_single(self, answer: FormField) -> bool:
        """Whether no other field has a key of its prefix."""
        name = stem(answer.key)
        return sum(stem(other.key) == name for other in self._answers if not other.contact) == 1

    def _take(self, target: str) -> str:
        """The form's value for a target; "" for none. Its fields count as used from then on."""
        if target in self.mapping.fields:
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
        """The first of its places with a value. If the form has none of these fields, because it
        was edited or is another form of the source: by name, or by the key without its suffix.
        """
        places = self.mapping.fields[target]
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
            for n, answer in self._unused()
            if n not in self._placed
            and answer.key
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
        """The CRM's value for a target, independent of the form."""
        numbers = self._of_contact(target)
        return self._answers[numbers[0]].value.strip() if numbers else ""

    def _unused(self) -> list[tuple[int, FormField]]:
        """The fields with a value that are not used."""
        return [
            (n, answer)
            for n, answer in enumerate(self._answers)
            if n not in self._taken and answer.value.strip()
        ]

    def vague_days(self) -> list[tuple[int, FormField]]:
        """The unused date fields with a vague name."""
        return [
            (n, answer)
            for n, answer in self._unused()
            if n not in self._placed and plain(stem(answer.key)) in DAY_KEYS
        ]

    def other_day(self) -> str:
        """The value of the only unused date field with a vague name: the other end of a stay."""
        days = [(n, answer) for n, answer in self.vague_days() if not answer.label]
        if len(days) != 1:
            return ""
        [(n, answer)] = days
        self._taken.add(n)
        return answer.value.strip()

    def has_more_of(self, target: str) -> bool:
        """Whether an unused field has a target that begins with `target`, such as children."""
        return any(name.startswith(target) for n, _ in self._unused() for name in self._meant[n])

    def has_number_left(self) -> bool:
        """Whether an unused field has a number that may be a number of people: `pax: 4`."""
        return any(
            not answer.contact
            and not any(self._meant[n])
            and not any(plain(name) and _counts_else(name) for name in (answer.key, answer.label))
            and 0 < (read_count(answer.value) or 0) <= _MOST_PEOPLE
            for n, answer in self._unused()
        )

    def has_word(self, words: frozenset[str]) -> bool:
        """Whether the name of a field has one of the words (as `field_names.plain` writes them)."""
        return any(
            not answer.contact and not words.isdisjoint(plain(title(answer)).split())
            for answer in self._answers
        )

    def take_value(self, target: str) -> str:
        """Take the form's value for a target, translated by the mapping; "" for none."""
        text = self._take(target)
        words = self.mapping.values.get(target)
        if text and words:
            known = {plain(word): meant for word, meant in words.items() if word != "*"}
            text = known.get(plain(text), words.get("*", text))
        return text.strip()

    def take_text(self, target: str) -> str:
        """Take the form's value for a target, else its default in the mapping."""
        return self.take_value(target) or self.mapping.defaults.get(target, "").strip()

    def maybe(self, target: str, read: Callable[[str], T | None], otherwise: T) -> T:
        """An optional value; text that cannot be read goes to `extra`."""
        return self.maybe_of(target, self.take_text(target), read, otherwise)

    def maybe_of(self, target: str, text: str, read: Callable[[str], T | None], otherwise: T) -> T:
        """As `maybe`, for a text that was read before."""
        if not text:
            return otherwise
        value = read(text)
        if value is None:
            self.keep(target, text)
            return otherwise
        return value

    def short(self, target: str, most: int) -> str:
        """A line of `most` characters; a longer one is cut, and goes to `extra` in full."""
        text = line(self.take_text(target))
        if len(text) <= most:
            return text
        self.keep(target, text)
        return text[:most].rstrip()

    def keep(self, target: str, text: str) -> None:
        """Add a text to `extra`, which the hotel sees."""
        self._extra.append(f"{self.titles.get(target) or target}: {line(text)}")

    def rest(self) -> str:
        """The text for `extra`: what `keep` collected and the unused answers, a line each,
        without those of the CRM's contact.
        """
        self._take("privacy")
        left = [
            f"{title(answer) or '-'}: {line(answer.value)}"
            for _, answer in self._unused()
            if not answer.contact
        ]
        return "\n".join((*self._extra, *left))
