"""What the webhook accepts, each version can carry: nobody's request ends in between."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from tests.integration.alpinebits import material

from alpinehub.alpinebits.capability import SERVED
from alpinehub.alpinebits.guest import Record, render, response
from alpinehub.party import Hotel
from alpinehub.reservations import ReservationData, ResStatus, decode, encode
from alpinehub.webhooks.normalise import normalise
from alpinehub.webhooks.payload import parse
from alpinehub.webhooks.problem import Refused

HOTEL = Hotel(
    id=1, code="<&>'\"~!", name="Ü<\"&'>", time_zone="Europe/Rome", language="de", region="IT"
)
STATUSES: dict[str, tuple[ResStatus, ...]] = {
    "request": ("Requested",),
    "reservation": ("Reserved", "Modify"),
    "cancelled": ("Cancelled",),
}


def texts(most: int) -> st.SearchStrategy[str]:
    """Any text without control characters, which the webhook refuses; markup more often."""
    safe = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff")
    return st.text(st.sampled_from("<>&\"' ]") | safe, max_size=most)


PAYLOADS = st.fixed_dictionaries(
    {
        "hotel_code": st.just("H1"),
        "status": st.sampled_from(list(STATUSES)),
        "external_id": texts(128),
        "arrival": st.just("2026-02-01"),
        "departure": st.sampled_from(["2026-02-08", "2199-12-30"]),
        "adults": st.integers(1, 99),
        "email": st.just("eva@example.com"),
        "room_type": st.sampled_from(["DZ", "<&>\"'", "à la 𝄞"]),
        "rate_plan": st.just("B") | texts(64),
        "total": st.integers(0, 9_999_999_999).map(lambda cents: cents / 100),
        "currency": st.just("EUR"),
    },
    optional={
        "children": st.lists(st.integers(0, 17), max_size=5),
        "first_name": texts(64),
        "last_name": texts(64),
        "phone": st.sampled_from(["+39 0471 (0) 12/34-5", "0039 333 1234567", "12 34 5"]),
        "language": st.sampled_from(["de", "IT", "pt-BR"]),
        "message": texts(500) | st.just("a\r\nb\tc\rd"),
        "meal_plan": st.sampled_from(["breakfast", "all_inclusive", None]),
        "newsletter": st.booleans(),
        "gclid": texts(200),
        "fbclid": texts(200),
        "utm_source": texts(200),
        "utm_medium": texts(200),
        "utm_campaign": texts(200),
    },
)


def accepted(payload: dict[str, Any]) -> ReservationData | None:
    """What the webhook makes of a payload and stores; None: it refuses."""
    try:
        submission = normalise(parse(json.dumps(payload).encode()))
    except Refused:
        return None
    return decode(encode(submission.data))


@settings(max_examples=200, deadline=None)
@given(payload=PAYLOADS)
def test_every_accepted_payload_is_rendered_and_valid_in_every_version(
    payload: dict[str, Any],
) -> None:
    data = accepted(payload)
    if data is None:
        return
    for res_status in STATUSES[data.status]:
        record = Record(
            id="6b34fe24ac2ff8106b34fe24ac2ff810",
            res_status=res_status,
            data=data,
            external_id=payload["external_id"],
            source="<website>",
            created_at=1_767_360_387_938_000,
            changed_at=1_767_360_387_938_001,
        )
        for version, protocol in SERVED.items():
            document = response([render(record, HOTEL, protocol)])
            assert material.problems(document, version) == []
            assert etree.fromstring(document)[1][0].get("ResStatus") == res_status


def test_most_generated_payloads_are_accepted() -> None:
    """Else the test above tests nothing."""
    base = {"hotel_code": "H1", "email": "eva@example.com", "arrival": "2026-02-01"}
    stay = base | {"departure": "2026-02-08", "adults": 2, "status": "request"}
    booked = stay | {"status": "reservation", "room_type": "DZ", "rate_plan": "B"}
    priced = booked | {"total": 10.5, "currency": "EUR", "first_name": "<b>"}
    for payload in (stay, priced, priced | {"status": "cancelled", "external_id": "1"}):
        assert accepted(payload) is not None
