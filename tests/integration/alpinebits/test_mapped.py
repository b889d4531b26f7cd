"""What a form sends, each version can carry, or holds for a reason by name: exactly one."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.alpinebits import material
from tests.integration.alpinebits.test_accepted import HOTEL, texts

from alpinehub.alpinebits.capability import SERVED
from alpinehub.alpinebits.guest import Held, HeldCode, Record, render, response
from alpinehub.webhooks.interpretation import Mapped, Received, interpret
from alpinehub.webhooks.mapping import Mapping, decode

MAPPING = decode(
    b'{"fields": {"room_type": ["field:room"], "status": ["field:status"],'
    b' "total": ["field:total"], "currency": ["field:currency"], "rate_plan": ["field:plan"],'
    b' "meal_plan": ["field:meals"]},'
    b' "defaults": {"adults": "2", "child_age": "8"}, "without_stay": "lead"}'
)
FIELDS = st.fixed_dictionaries(
    {
        "first_name": texts(70) | st.just("Eva"),
        "last_name": texts(70),
        "email": st.just("eva@example.com") | texts(20),
        "phone": st.sampled_from(["+39 0471 (0) 12/34-5", "12 34", "x", ""]),
    },
    optional={
        "arrival": st.sampled_from(["2027-02-01", "1.2.2027", "2027-02-29", ""]),
        "departure": st.sampled_from(["2027-02-08", "2199-12-30", "8. Februar 2027"]),
        "adults": st.sampled_from(["2", "99", "0", "zwei"]),
        "children_ages": st.sampled_from(["5, 8", "0", "17 17 17", "18", "1 Kind: 5"]),
        "children_count": st.sampled_from(["0", "1", "30"]),
        "message": texts(300),
        "question": texts(100),
        "prefix": texts(20) | st.just("Frau"),
        "birth_date": st.sampled_from(["1.1.1980", "2027-01-01", "nie"]),
        "address": texts(300),
        "city": texts(80),
        "plz": texts(20),
        "country": st.sampled_from(["Italien", "DE", "Nirgendwo"]),
        "state": texts(80),
        "pets": st.sampled_from(["Ja", "nein", "ein Hund"]),
        "newsletter": st.sampled_from(["on", "Unchecked", "?"]),
        "language": st.sampled_from(["Deutsch", "pt-BR", "xx", "?"]),
        "room": texts(10),
        "plan": texts(70),
        "meals": st.sampled_from(["breakfast", "", "?"]),
        "status": st.sampled_from(["reservation", "request", "cancelled"]),
        "total": st.sampled_from(["10.5", "-1", "1e3", "1,50"]),
        "currency": st.sampled_from(["EUR", "eur", "€"]),
        "gclid": texts(100),
    },
)


@settings(max_examples=200, deadline=None)
@given(fields=FIELDS, number=texts(128))
def test_every_mapped_form_is_rendered_and_valid_or_held_by_name(
    fields: dict[str, str], number: str
) -> None:
    found = interpreted(fields, number, MAPPING)
    if not isinstance(found, Mapped):
        return
    status = found.data.status
    record = Record(
        id="6b34fe24ac2ff8106b34fe24ac2ff810",
        res_status="Reserved" if status == "reservation" else "Requested",
        data=found.data,
        external_id=found.external_id or "",
        source="<website>",
        created_at=1_767_360_387_938_000,
        changed_at=1_767_360_387_938_001,
    )
    for version, protocol in SERVED.items():
        try:
            document = response([render(record, HOTEL, protocol)])
        except Held as held:
            assert isinstance(held.code, HeldCode) and not found.data.has_stay, held
        else:
            assert material.problems(document, version) == []


def interpreted(fields: dict[str, str], number: str, mapping: Mapping) -> object:
    data = {f"field:{name}": value for name, value in fields.items()}
    body = json.dumps({"data": {"submissionId": number, **data}}).encode()
    return interpret(Received(kind="wix", body=body, content_type="", honeypot=""), mapping, HOTEL)


def test_whole_form_is_mapped() -> None:
    """Else the test above tests nothing."""
    stay = {"arrival": "2027-02-01", "departure": "2027-02-08", "email": "eva@example.com"}
    booked = {"status": "reservation", "room": "DZ", "plan": "B", "total": "1,50"}
    for fields in (stay, {"email": "eva@example.com"}, {**stay, **booked, "currency": "EUR"}):
        assert isinstance(interpreted(fields, "1", MAPPING), Mapped), fields
