"""The fields of a form, and which answers what: by the mapping, else by key, label, contact.

    an explicit place ............ that one, and no other, as long as the form has it
    else the key of a field ...... `first_name_abae`, `arrivo`
    else its label ............... Anreise, Arrivo, Arrival
    else the CRM's contact ....... contact.email

Two fields for one answer that say different things are ambiguous: a person decides, not a rule.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpinehub.webhooks.field_names import (
    DAY_KEYS,
    VAGUE,
    meant_by_key,
    meant_by_label,
    plain,
    stem,
)
from alpinehub.webhooks.mapping import Mapping, is_at, is_ignored
from alpinehub.webhooks.submission import Answer
from alpinehub.webhooks.values import line, read_count

#: Of these several fields may tell a part each.
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
#: What else a number counts; as the names of fields begin, written as `words.plain` has them.
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
        """The only field left of a date whose name tells nothing: the other end of a stay."""
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
        """Whether fields of a date are left whose names tell nothing."""
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
        """Whether the name of a field has one of the words (as `words.plain` writes them)."""
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
