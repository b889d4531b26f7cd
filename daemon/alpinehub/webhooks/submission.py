"""A submission as its sender wrote it: fields with what was put into them, not interpreted yet;
and the signature of its form, the names of the fields, by which a changed form is noticed.

Whatever kind it came from, it is interpreted from here on by one set of rules (interpretation.py).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from alpinehub.webhooks.values import line

#: More fields than any form has: a mistake, or an attack.
MAX_FIELDS = 200
#: Characters of a field that are kept; what is cut says so. A guest's text is cut nowhere below.
MAX_VALUE = 20_000


class Unreadable(Exception):
    """A body that holds no form; `code` says why, and no word of what it holds."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Answer:
    """A field and its value."""

    #: As the form calls it (`date_picker_a7c8`); "" where only the label is known.
    key: str
    #: As the guest saw it; "" where it is not known.
    label: str
    value: str
    #: Known of the guest from elsewhere (`contact.email`): for what the form itself leaves open.
    contact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One submission."""

    answers: tuple[Answer, ...]
    #: Which of the source's forms; "" where it has one only, or does not say.
    form_key: str = ""
    #: The sender's own id of the submission.
    external_id: str | None = None
    #: utm_source and the like, and click ids.
    utm: Mapping[str, str] = field(default_factory=dict)
    gclid: str = ""
    #: Why no hotel is to see it.
    set_aside: Literal["", "test", "spam"] = ""


def load_json(body: bytes) -> Any:
    """The JSON of a body. Raises: Unreadable.

    msgspec takes what is right; a lone surrogate, NaN and the like are no reason to lose a guest.
    """
    body = body.removeprefix(b"\xef\xbb\xbf")
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError:
        raise Unreadable("not_json") from None
    try:
        return json.loads(body.decode(), parse_constant=str)
    except (ValueError, RecursionError):
        raise Unreadable("not_json") from None


def bounded(text: str) -> str:
    """A text of MAX_VALUE characters at most, which says what was cut off."""
    if len(text) <= MAX_VALUE:
        return text
    kept = MAX_VALUE - 100
    return f"{text[:kept]}\n[{len(text) - kept} more characters cut off]"


def text_of(value: object) -> str:
    """What a field of JSON holds, as a guest would write it; of a list all its items."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return bounded(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
        return bounded(", ".join(filter(None, map(text_of, value))))
    try:
        return bounded(json.dumps(value, ensure_ascii=False))
    except (ValueError, RecursionError):  # an integer of 5,000 digits
        return ""


def said(value: object, most: int = 128) -> str:
    """An id or a name of JSON, as one line; "" for what is none or too long."""
    text = line(text_of(value)) if isinstance(value, str | int | float) else ""
    return text if len(text) <= most else ""


def check_count(count: int) -> None:
    """Raises: Unreadable for more fields than a form has."""
    if count > MAX_FIELDS:
        raise Unreadable("too_many_fields")


_MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class FormSignature:
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
        """16 bytes that differ for two signatures."""
        return blake2b("\n".join(sorted(self.names)).encode(), digest_size=16).digest()


def signature_of(submission: Submission) -> FormSignature:
    """The signature of a submission. Labels alone count only where no field has a key: which of
    them finds its key depends on what was filled in.
    """
    own = [answer for answer in submission.answers if not answer.contact]
    keyed = [answer for answer in own if answer.key] or own
    fields = {(_name(answer.key), _name(answer.label)) for answer in keyed}
    return FormSignature(submission.form_key, tuple(sorted(fields)[:MAX_FIELDS]))


def _name(text: str) -> str:
    return text[:_MAX_NAME].encode("utf-8", "replace").decode()


@dataclass(frozen=True, slots=True)
class FormChange:
    """How a form differs from what was seen of it before."""

    added: tuple[str, ...]
    gone: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.gone)


def form_change(now: Collection[str], before: Iterable[Collection[str]]) -> FormChange:
    """What is new (in none of the signatures before) and what is gone (in each of them).

    A field that is left empty is not sent by every form builder: so one that was missing once is
    not missed again.
    """
    signatures = [frozenset(names) for names in before]
    if not signatures:
        return FormChange((), ())
    known, always = frozenset[str]().union(*signatures), signatures[0].intersection(*signatures[1:])
    return FormChange(tuple(sorted(set(now) - known)), tuple(sorted(always - set(now))))
