"""A submission before its interpretation: fields and their values; and the shape of its form,
the names of the fields, which shows that a form was changed.

The rules of interpretation are the same for all kinds of sources (interpretation.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec import Struct

from alpinehub.webhooks.values import line

#: More fields than any form has: a mistake, or an attack.
MAX_FIELDS = 200
#: Characters stored of a field; a note says how many were cut off. Shorter texts are never cut.
MAX_VALUE = 20_000


class Unreadable(Exception):
    """The body is not a readable form; `code` is the reason, without any of its content."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class FormField(Struct, frozen=True):
    """A field and its value."""

    #: Technical name in the form (`date_picker_a7c8`); "" if only the label is known.
    key: str
    #: Label that the guest saw; "" if not known.
    label: str
    value: str
    #: Known from the sender's CRM (`contact.email`): used if the form itself has no answer.
    contact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One submission."""

    answers: tuple[FormField, ...]
    #: Which of the source's forms; "" if the sender does not say.
    form_key: str = ""
    #: The sender's own id of the submission.
    external_id: str | None = None
    #: utm_source and the like, and click ids.
    utm: Mapping[str, str] = field(default_factory=dict)
    gclid: str = ""
    #: The proof of work of a form (form_endpoint.py).
    proof: str = ""
    #: Why it is not sent to the hotel; "" if it is.
    ignored: Literal["", "test", "spam"] = ""


def load_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body. Raises: Unreadable.

    Decoded by msgspec, else by the more tolerant `json`: a lone surrogate, NaN or a number of
    thousands of digits must not make a request fail. Of a key that is there twice both take the
    last value, as for the generic format: no other program has decided by the first, since
    signatures are of the bytes.
    """
    body = body.removeprefix(b"\xef\xbb\xbf")
    try:
        try:
            document = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            document = json.loads(body.decode(), parse_constant=str, parse_int=_integer)
    except (ValueError, RecursionError):
        raise Unreadable("not_json") from None
    if not isinstance(document, dict):
        raise Unreadable("not_an_object")
    return document


def _integer(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:  # Python converts 4300 digits at most
        return digits


def bounded(text: str) -> str:
    """A text of MAX_VALUE characters at most; it ends with a note if it was cut."""
    if len(text) <= MAX_VALUE:
        return text
    kept = MAX_VALUE - 100
    return f"{text[:kept]}\n[{len(text) - kept} more characters cut off]"


def text_of(value: object) -> str:
    """A JSON value as text, as a guest would write it; a list as its items with commas."""
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
    except RecursionError:
        return ""


def id_text(value: object, most: int = 128) -> str:
    """An id or a name in JSON as one line; "" if it is of another type or too long."""
    text = line(text_of(value)) if isinstance(value, str | int | float) else ""
    return text if len(text) <= most else ""


def check_count(count: int) -> None:
    """Raises: Unreadable if there are more than MAX_FIELDS."""
    if count > MAX_FIELDS:
        raise Unreadable("too_many_fields")


_MAX_NAME = 64


class FormShape(Struct, frozen=True):
    """The fields of one submission of a form."""

    #: Which of the source's forms.
    form_key: str
    #: Key and label of each, sorted.
    fields: tuple[tuple[str, str], ...]

    @property
    def names(self) -> frozenset[str]:
        """The key of each field, or its label if it has no key."""
        return frozenset(key or label for key, label in self.fields)

    @property
    def hash(self) -> bytes:
        """A hash of the names, 16 bytes."""
        return blake2b("\n".join(sorted(self.names)).encode(), digest_size=16).digest()


def shape_of(submission: Submission) -> FormShape:
    """The shape of a submission. Fields without a key count only if no field has a key: which
    label is matched with a key depends on what was filled in.
    """
    own = [answer for answer in submission.answers if not answer.contact]
    keyed = [answer for answer in own if answer.key] or own
    fields = {(_name(answer.key), _name(answer.label)) for answer in keyed}
    return FormShape(submission.form_key, tuple(sorted(fields)[:MAX_FIELDS]))


def _name(text: str) -> str:
    return text[:_MAX_NAME].encode("utf-8", "replace").decode()
