"""Two customers of a hotel who are one: known by one number, and at most one by an address.

The other one's requests are the one's from then on, and his row goes. Where a request is just being
stored for him the foreign key says so to one of the two, who does his work again: none is lost.

    one has an address ............... he is the one
    none has ......................... the oldest is the one
    several have ..................... they stay: a telephone is shared more often than a mailbox,
                                       and whoever gave the number alone may be any of them
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from alpinehub.customers.person import GROUPS
from cordata import Tx

_log = logging.getLogger("alpinehub.customers")


async def merge_shared(tx: Tx, numbers: Collection[tuple[int, str]]) -> set[int]:
    """Make one of those who are one, of (hotel, number); ids of all whose row changed or went."""
    if not numbers:
        return set()
    touched: set[int] = set()
    for group in await tx.fetch_all("customer_shared", numbers=encode_list(sorted(numbers))):
        number = {"hotel_id": group["hotel_id"], "phone_e164": group["phone_e164"]}
        found = await tx.fetch_all("customer_nameless", **number, owner=group["owner"])
        people = [dict(row) for row in found]
        if group["owners"] > 1:
            people = [person for person in people if person["email"] is None]
        people.sort(key=lambda person: (person["email"] is None, person["id"]))
        if len(people) > 1:
            await _merge(tx, people[0], people[1:])
            touched |= {int(person["id"]) for person in people}
    return touched


async def _merge(tx: Tx, one: dict[str, Any], others: list[dict[str, Any]]) -> None:
    ids = encode_list(other["id"] for other in others)
    await tx.execute("customer_move_requests", id=one["id"], ids=ids)
    await tx.execute("customer_forget_hashes", ids=ids)
    await tx.execute("customer_delete", ids=ids)
    # The latest word counts, of two at one moment the no.
    latest = max((one, *others), key=lambda p: (p["consent_at"] or 0, p["consent"] == 0))
    await tx.execute(
        "customer_absorb",
        id=one["id"],
        **_known((one, *others)),
        consent=latest["consent"],
        consent_at=latest["consent_at"],
    )
    _log.info("customers %s are one with customer %d", ids, one["id"])


def _known(people: Sequence[dict[str, Any]]) -> dict[str, object]:
    """What is known of them together: of each group of columns what the first says who says it."""
    known: dict[str, object] = {}
    for group in GROUPS:
        tellers = (p for p in people if any(p[name] is not None for name in group))
        teller = next(tellers, people[0])
        known |= {name: teller[name] for name in group}
    return known


def encode_list(values: Iterable[object]) -> str:
    """A list as a parameter: the JSON of its values."""
    return msgspec.json.encode(list(values)).decode()
