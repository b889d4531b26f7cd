"""What a customer says of himself: the columns of `customer`, and how the newest word wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alpinehub.reservations import ReservationData

#: Columns that are told together or not at all: half of a new address is not the rest of an old.
GROUPS = (
    ("first_name", "last_name"),
    ("city", "postal_code", "country", "state"),
    ("email",),
    ("phone",),
    ("birth_date",),
    ("gender",),
    ("language",),
)
#: Every column that tells who somebody is.
COLUMNS = tuple(name for group in GROUPS for name in group)


def said_by(data: ReservationData) -> dict[str, Any]:
    """The columns as one record tells them; None: not told."""
    told: dict[str, Any] = {name: getattr(data, name) or None for name in COLUMNS}
    told["email"] = data.email.lower() or None
    told["birth_date"] = data.birth_date and data.birth_date.isoformat()
    told["consent"] = None if data.consent is None else int(data.consent)
    return told


def news(known: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """What is told and was not known: columns to be set, "" to be emptied, None left as they are.

    Empty: nothing is new.
    """
    found: dict[str, Any] = {}
    for group in GROUPS:
        if not any(told[name] for name in group):
            continue
        for name in group:
            if told[name] != known[name]:
                found[name] = told[name] or ""
    if told["consent"] is not None and (found or told["consent"] != known["consent"]):
        found["consent"] = told["consent"]  # said again, too: the moment of his last word counts
    return {name: found.get(name) for name in (*COLUMNS, "consent")} if found else {}
