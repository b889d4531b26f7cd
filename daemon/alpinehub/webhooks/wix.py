"""Wix Automations: fields by key, most of them again by label, and the CRM's contact.

    {"data": {"formName", "formId", "submissionId", "field:email_5139": "...",
              "submissions": [{"label", "value"}], "contact": {"name": {"first", "last"}, ...}}}

The label of a key is that of the submission with the same value; dates are compared as days, since
one list has 2026-02-01 and the other 01.02.2026.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC
from functools import partial
from itertools import islice
from typing import Any

from alpinehub.webhooks.days import DateOrder, read_day
from alpinehub.webhooks.submission import (
    FormField,
    Submission,
    check_count,
    id_text,
    load_object,
    text_of,
)
from alpinehub.webhooks.values import line

_FIELD = "field:"
#: Longest key or label: bounded, because the targets of names are cached (field_names.py).
_MAX_NAME = 200
_UTM = re.compile(r"utm_[a-z0-9_]{1,32}")
#: Paths in the CRM's contact; a place of a mapping is `path:contact.name.first`.
_CONTACT = (
    "name.first", "name.last", "email", "phone", "locale", "birthdate", "company",
    "address.addressLine", "address.city", "address.postalCode", "address.country",
    "address.subdivision",
)  # fmt: skip


def read(body: bytes) -> Submission:
    """The submission in a body. Raises: Unreadable."""
    document = load_object(body)
    data = document.get("data")
    if not isinstance(data, dict):
        data = document
    keyed = [(k[:_MAX_NAME], text_of(v)) for k, v in data.items() if k.startswith(_FIELD)]
    labelled = _labelled(data.get("submissions"))
    check_count(len(keyed))
    check_count(len(labelled))
    return Submission(
        answers=(*_join(keyed, labelled), *_of_contact(data.get("contact"))),
        form_key=id_text(data.get("formId")) or id_text(data.get("formName")),
        external_id=_external_id(data),
        utm=_utm(data),
    )


def _labelled(submissions: object) -> list[tuple[str, str]]:
    if not isinstance(submissions, list):
        return []
    return [
        (text_of(one.get("label")).strip()[:_MAX_NAME], text_of(one.get("value")))
        for one in submissions
        if isinstance(one, dict)
    ]


def _join(keyed: list[tuple[str, str]], labelled: list[tuple[str, str]]) -> list[FormField]:
    """Each field once. Fields with the same value are matched in order."""
    labels: dict[str, str] = {}
    left = labelled
    for same in (line, partial(_canonical, "dmy"), partial(_canonical, "mdy")):
        left = _match([k for k in keyed if k[0] not in labels], left, labels, same)
    answers = [FormField(k.removeprefix(_FIELD), labels.get(k, ""), v) for k, v in keyed]
    return answers + [FormField("", label, value) for label, value in left]


def _match(
    keyed: list[tuple[str, str]],
    labelled: list[tuple[str, str]],
    labels: dict[str, str],
    same: Callable[[str], str],
) -> list[tuple[str, str]]:
    """Add the label of each key whose value is that of a labelled field. Returns the others."""
    waiting: dict[str, list[str]] = {}
    for key, value in keyed:
        if value:
            waiting.setdefault(same(value), []).append(key)
    left = []
    for label, value in labelled:
        keys = waiting.get(same(value)) if value else None
        if keys:
            labels[keys.pop(0)] = label
        else:
            left.append((label, value))
    return left


def _canonical(order: DateOrder, text: str) -> str:
    """For comparison: a day as ISO 8601, a number as its digits, else the text in lower case."""
    day = read_day(text, order, UTC)
    if day is not None:
        return day.isoformat()
    digits = "".join(filter(str.isdecimal, text))
    return digits if digits and not any(map(str.isalpha, text)) else line(text).casefold()


def _of_contact(contact: object) -> list[FormField]:
    found = []
    for path in _CONTACT:
        value: object = contact
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, str | int | float) and (text := text_of(value).strip()):
            found.append(FormField(f"contact.{path}", "", text, contact=True))
    return found


def _external_id(data: Mapping[str, Any]) -> str | None:
    """Wix's id of the submission; else the contact's id and the time, or None."""
    if own := id_text(data.get("submissionId")):
        return own
    contact = data.get("contact")
    who = id_text(contact.get("contactId"), 64) if isinstance(contact, dict) else ""
    when = id_text(data.get("submissionTime"), 60)
    return f"{who}@{when}" if who and when else None


def _utm(data: Mapping[str, Any]) -> dict[str, str]:
    found = (
        (name[4:], text)
        for name, value in data.items()
        if _UTM.fullmatch(name) and (text := line(text_of(value))[:1024])
    )
    return dict(islice(found, 20))
