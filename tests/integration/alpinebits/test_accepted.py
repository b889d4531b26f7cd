"""What the webhook accepts, each version can carry: nobody's request ends in between."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from tests.integration.alpinebits import material
from tests.integration.alpinebits.payloads import PAYLOADS, as_json, wide

from alpinehub.alpinebits.guest import StoredVersion, render, response
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.models import Hotel
from alpinehub.reservations import ResStatus, decode, encode
from alpinehub.webhooks.endpoint import WebhookError
from alpinehub.webhooks.generic import CheckedPayload, normalise, parse

HOTEL = Hotel(
    id=1, code="<&>'\"~!", name="Ü<\"&'>", time_zone="Europe/Rome", language="de", region="IT"
)
STATUSES: dict[str, tuple[ResStatus, ...]] = {
    "request": ("Requested",),
    "reservation": ("Reserved", "Modify"),
    "cancelled": ("Cancelled",),
}


def accepted(body: bytes) -> CheckedPayload | None:
    """What the webhook makes of a payload; None: it refuses."""
    try:
        return normalise(parse(body))
    except WebhookError:
        return None


@wide(150)
@given(payload=PAYLOADS, escaped=st.booleans())
def test_every_accepted_payload_is_rendered_and_valid_in_every_version(
    payload: dict[str, Any], escaped: bool
) -> None:
    submission = accepted(as_json(payload, escaped))
    if submission is None:
        return
    data = decode(encode(submission.data))
    for res_status in STATUSES[data.status]:
        record = StoredVersion(
            id="6b34fe24ac2ff8106b34fe24ac2ff810",
            res_status=res_status,
            data=data,
            external_id=submission.external_id or "",
            source="<website>",
            created_at=1_767_360_387_938_000,
            changed_at=1_767_360_387_938_001,
        )
        for version, protocol in PROTOCOLS.items():
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
        assert accepted(as_json(payload)) is not None
