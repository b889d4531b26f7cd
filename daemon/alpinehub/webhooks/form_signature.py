"""What a form looks like: the names of its fields, never a value. So a changed form is noticed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import blake2b

from alpinehub.webhooks.submission import MAX_FIELDS, Sheet

_MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of one submission of a form."""

    #: Which of the source's forms.
    form_key: str
    #: Key and label of each, sorted.
    fields: tuple[tuple[str, str], ...]

    @property
    def names(self) -> frozenset[str]:
        """The keys; the labels where the fields have no keys."""
        return frozenset(key or label for key, label in self.fields)

    @property
    def mark(self) -> bytes:
        """16 bytes that tell two shapes apart."""
        return blake2b("\n".join(sorted(self.names)).encode(), digest_size=16).digest()


def shape_of(sheet: Sheet) -> Shape:
    """The shape of a submission. Labels alone count only where no field has a key: which of them
    finds its key depends on what was filled in.
    """
    own = [answer for answer in sheet.answers if not answer.contact]
    keyed = [answer for answer in own if answer.key] or own
    fields = {(_name(answer.key), _name(answer.label)) for answer in keyed}
    return Shape(sheet.form_key, tuple(sorted(fields)[:MAX_FIELDS]))


def _name(text: str) -> str:
    return text[:_MAX_NAME].encode("utf-8", "replace").decode()


@dataclass(frozen=True, slots=True)
class Change:
    """How a form differs from what was seen of it before."""

    added: tuple[str, ...]
    gone: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.gone)


def change(now: Collection[str], before: Iterable[Collection[str]]) -> Change:
    """What is new (in none of the shapes before) and what is gone (in each of them).

    A field that is left empty is not sent by every form builder: so one that was missing once is
    not missed again.
    """
    shapes = [frozenset(names) for names in before]
    if not shapes:
        return Change((), ())
    known, always = frozenset[str]().union(*shapes), shapes[0].intersection(*shapes[1:])
    return Change(tuple(sorted(set(now) - known)), tuple(sorted(always - set(now))))
