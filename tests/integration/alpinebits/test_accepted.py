"""What is accepted, each version can carry, or holds for a reason by name: exactly one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from tests.integration.alpinebits import material
from tests.integration.alpinebits.payloads import FIELDS, PAYLOADS, as_json, texts, wide

from alpinehub.alpinebits.guest import StoredVersion, Undeliverable, render, response
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.models import Hotel
from alpinehub.reservations import ResStatus, decode, encode
from alpinehub.webhooks.endpoint import WebhookError
from alpinehub.webhooks.fields import decode as decode_mapping
from alpinehub.webhooks.generic import CheckedPayload, normalise, parse
from alpinehub.webhooks.interpretation import Mapped, Received, interpret

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


def record(submission: CheckedPayload | Mapped, res_status: ResStatus) -> StoredVersion:
    """The version that is stored of it."""
    return StoredVersion(
        id="6b34fe24ac2ff8106b34fe24ac2ff810",
        res_status=res_status,
        data=decode(encode(submission.data)),
        external_id=submission.external_id or "",
        source="<website>",
        created_at=1_767_360_387_938_000,
        changed_at=1_767_360_387_938_001,
    )


@wide(150)
@given(payload=PAYLOADS, escaped=st.booleans())
def test_every_accepted_payload_is_rendered_and_valid_in_every_version(
    payload: dict[str, Any], escaped: bool
) -> None:
    submission = accepted(as_json(payload, escaped))
    if submission is None:
        return
    for res_status in STATUSES[submission.data.status]:
        made = record(submission, res_status)
        for version, protocol in PROTOCOLS.items():
            document = response([render(made, HOTEL, protocol)])
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


MAPPING = decode_mapping(
    b'{"fields": {"room_type": ["field:room"], "status": ["field:status"],'
    b' "total": ["field:total"], "currency": ["field:currency"], "rate_plan": ["field:plan"],'
    b' "meal_plan": ["field:meals"]},'
    b' "defaults": {"adults": "2", "child_age": "8"}, "without_stay": "lead"}'
)


@wide(150)
@given(fields=FIELDS, number=texts(128))
def test_every_mapped_form_is_rendered_and_valid_or_undeliverable_by_name(
    fields: dict[str, str], number: str
) -> None:
    found = interpreted(fields, number)
    if not isinstance(found, Mapped):
        return
    made = record(found, STATUSES[found.data.status][0])
    for version, protocol in PROTOCOLS.items():
        try:
            document = response([render(made, HOTEL, protocol)])
        except Undeliverable as held:
            assert held.code == "no_stay" and found.data.arrival is None, held
        else:
            assert material.problems(document, version) == []


def interpreted(fields: dict[str, str], number: str) -> object:
    data = {f"field:{name}": value for name, value in fields.items()}
    body = as_json({"data": {"submissionId": number, **data}})
    return interpret(Received(kind="wix", body=body, content_type="", honeypot=""), MAPPING, HOTEL)


def test_whole_form_is_mapped() -> None:
    """Else the test above tests nothing."""
    stay = {"arrival": "2027-02-01", "departure": "2027-02-08", "email": "eva@example.com"}
    booked = {"status": "reservation", "room": "DZ", "plan": "B", "total": "1,50"}
    for fields in (stay, {"email": "eva@example.com"}, {**stay, **booked, "currency": "EUR"}):
        assert isinstance(interpreted(fields, "1"), Mapped), fields
