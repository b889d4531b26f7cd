"""What a form sends, each version can carry, or holds for a reason by name: exactly one."""

from __future__ import annotations

from hypothesis import given
from tests.integration.alpinebits import material
from tests.integration.alpinebits.payloads import FIELDS, as_json, texts, wide
from tests.integration.alpinebits.test_accepted import HOTEL

from alpinehub.alpinebits.guest import StoredVersion, Undeliverable, render, response
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.webhooks.fields import FieldMapping, decode
from alpinehub.webhooks.interpretation import Mapped, Received, interpret

MAPPING = decode(
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
    found = interpreted(fields, number, MAPPING)
    if not isinstance(found, Mapped):
        return
    status = found.data.status
    record = StoredVersion(
        id="6b34fe24ac2ff8106b34fe24ac2ff810",
        res_status="Reserved" if status == "reservation" else "Requested",
        data=found.data,
        external_id=found.external_id or "",
        source="<website>",
        created_at=1_767_360_387_938_000,
        changed_at=1_767_360_387_938_001,
    )
    for version, protocol in PROTOCOLS.items():
        try:
            document = response([render(record, HOTEL, protocol)])
        except Undeliverable as held:
            assert held.code == "no_stay" and found.data.arrival is None, held
        else:
            assert material.problems(document, version) == []


def interpreted(fields: dict[str, str], number: str, mapping: FieldMapping) -> object:
    data = {f"field:{name}": value for name, value in fields.items()}
    body = as_json({"data": {"submissionId": number, **data}})
    return interpret(Received(kind="wix", body=body, content_type="", honeypot=""), mapping, HOTEL)


def test_whole_form_is_mapped() -> None:
    """Else the test above tests nothing."""
    stay = {"arrival": "2027-02-01", "departure": "2027-02-08", "email": "eva@example.com"}
    booked = {"status": "reservation", "room": "DZ", "plan": "B", "total": "1,50"}
    for fields in (stay, {"email": "eva@example.com"}, {**stay, **booked, "currency": "EUR"}):
        assert isinstance(interpreted(fields, "1", MAPPING), Mapped), fields
