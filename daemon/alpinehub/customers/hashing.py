"""Hashes by which an advertising platform finds a customer: SHA-256 of their data, normalised by
the platform's rules. They are computed on demand and not stored.

Meta: Conversions API, customer information parameters. Google: enhanced conversions, customer data.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from alpinehub.customers.phone import digits_of

_GMAIL = ("gmail.com", "googlemail.com")


def _lower(text: str) -> str:
    return text.strip().lower()


def _unmarked(text: str) -> str:
    """Without punctuation and symbols; letters keep their accents, words their spaces."""
    kept = "".join(c for c in text.lower() if unicodedata.category(c)[0] not in "PS")
    return kept.strip()


def _joined(text: str) -> str:
    """As `_unmarked`, without any space."""
    return "".join(_unmarked(text).split())


def _mailbox(text: str) -> str:
    """Gmail ignores dots and a +suffix in the name of a mailbox; they are removed."""
    address = "".join(text.lower().split())
    name, at, domain = address.rpartition("@")
    if domain in _GMAIL:
        name = name.partition("+")[0].replace(".", "")
    return f"{name}{at}{domain}"


def _initial(text: str) -> str:
    return _lower(text)[:1]


#: By platform: how each field is normalised before it is hashed. Other fields are not hashed.
RULES: Mapping[str, Mapping[str, Callable[[str], str]]] = {
    "meta": {
        "email": _lower,
        "phone": digits_of,
        "first_name": _unmarked,
        "last_name": _unmarked,
        "city": _joined,
        "postal_code": _joined,
        "country": _joined,
        "state": _joined,
        "birth_date": digits_of,
        "gender": _initial,
    },
    "google": {
        "email": _mailbox,
        "phone": _lower,
        "first_name": _lower,
        "last_name": _lower,
    },
}
PLATFORMS = tuple(RULES)


def hashes(customer: Mapping[str, Any], platform: str) -> dict[str, bytes]:
    """The 32 bytes of each field that is known and that the platform uses.

    `customer` has text or None under the same names: the phone number in E.164, the country in ISO
    3166, the birth date as YYYY-MM-DD, the gender as female or male.
    """
    found: dict[str, bytes] = {}
    for field, write in RULES[platform].items():
        written = write(unicodedata.normalize("NFC", customer[field] or ""))
        if written:
            found[field] = sha256(written.encode()).digest()
    return found
