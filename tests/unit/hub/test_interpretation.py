"""What a submission is: a corpus of each kind by example, and anything at all by hypothesis."""

from __future__ import annotations

import json
import re
from pathlib import Path
from time import thread_time
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.examples import examples

from alpinehub.models import Hotel
from alpinehub.reservations import ReservationData, decode, encode
from alpinehub.webhooks.fields import OF_KIND, TARGETS, FieldMapping
from alpinehub.webhooks.interpretation import (
    Ignored,
    Mapped,
    Received,
    Unmapped,
    interpret,
)

CORPUS = Path(__file__).resolve().parents[2] / "data" / "webhook"
SAMPLES = sorted(path for kind in OF_KIND for path in (CORPUS / kind).glob("*.json"))
HOTEL = Hotel(id=1, code="DEMO", name="Demo", time_zone="Europe/Rome", language="de", region="IT")
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def read(
    kind: str, body: bytes, content_type: str = "", mapping: FieldMapping | None = None
) -> Mapped | Unmapped | Ignored:
    received = Received(kind=kind, body=body, content_type=content_type, honeypot="website_url")
    return interpret(received, mapping or OF_KIND[kind], HOTEL)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_sample_is_what_it_says(path: Path) -> None:
    sample = json.loads(path.read_text())
    given, expected = sample["body"], sample["expect"]
    body = given.encode() if isinstance(given, str) else json.dumps(given).encode()
    found = read(path.parent.name, body, sample.get("content_type", ""))
    if "mapped" in expected:
        assert isinstance(found, Mapped), found
        record = json.loads(encode(found.data))
        assert {name: record.get(name) for name in expected["mapped"]} == expected["mapped"]
        assert expected["mapped"].get("extra", "") == record.get("extra", "")
        check(found.data)
        assert expected.get("external_id", found.external_id) == found.external_id
    elif "review" in expected:
        assert isinstance(found, Unmapped) and list(found.problems) == expected["review"]
    else:
        assert found == Ignored(expected["ignored"])


def test_corpus_has_samples_of_every_kind() -> None:
    assert {path.parent.name for path in SAMPLES} == set(OF_KIND) and len(SAMPLES) > 60


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("1200", "1200.00"),
        ("1200,5", "1200.50"),
        ("1200.50", "1200.50"),
        ("0", "0.00"),
        ("99999999.99", "99999999.99"),
        ("1.200", None),
        ("1,200", None),
        ("99.999", None),
        ("1.200,00", None),
        ("-1", None),
        ("1e3", None),
        ("NaN", None),
        ("100000000", None),
    ],
)
def test_total_is_read_only_where_it_can_mean_one_thing(text: str, total: str | None) -> None:
    body = urlencode(
        {
            "name": "Eva Muster", "email": "eva@example.com", "arrival": "2027-02-01",
            "departure": "2027-02-08", "adults": "2", "price": text,
        }
    ).encode()  # fmt: skip
    mapping = FieldMapping(fields={"total": ("field:price",)}, defaults={"currency": "EUR"})
    found = read("form", body, "application/x-www-form-urlencoded", mapping)
    if total is None:
        assert isinstance(found, Unmapped) and found.problems == ("unreadable:total",)
    else:
        assert isinstance(found, Mapped) and str(found.data.total) == total


@pytest.mark.parametrize("kind", OF_KIND)
def test_default_without_a_stay_is_not_told_as_an_answer(kind: str) -> None:
    """The hotel would read it in a comment, as if the guest had said it."""

    def lead(*, child_age: str = "", **fields: str) -> ReservationData:
        given = {"email": "eva@example.com", **fields}
        bodies: dict[str, object] = {
            "wix": {f"field:{name}": value for name, value in given.items()},
            "google": {
                "user_column_data": [
                    {"column_id": name, "string_value": value} for name, value in given.items()
                ]
            },
        }
        body = urlencode(given) if kind == "form" else json.dumps(bodies[kind])
        defaults = {**OF_KIND[kind].defaults, "child_age": child_age}
        mapping = structs.replace(OF_KIND[kind], without_stay="lead", defaults=defaults)
        found = read(kind, body.encode(), "application/x-www-form-urlencoded", mapping)
        assert isinstance(found, Mapped), found
        check(found.data)
        return found.data

    stay = {"arrival": "2027-02-01", "departure": "2027-02-08"}
    assert lead().adults == 0
    assert lead(adults="3").adults == 3
    assert lead(**stay).adults == 2
    for child_age in ("", "8"):
        asked = lead(adults="2", Kinder="2", child_age=child_age)
        assert (asked.children, asked.extra) == ((), "Kinder: 2")
    assert lead(children="3, 5").children == (3, 5)
    assert lead(**stay, Kinder="2", child_age="8").children == (8, 8)


@pytest.mark.parametrize("kind", OF_KIND)
def test_names_of_fields_are_bounded(kind: str) -> None:
    long = "x" * 20_000
    bodies = {
        "wix": {f"field:{long}": "1", "submissions": [{"label": long, "value": "2"}]},
        "google": {"user_column_data": [{"column_id": long, "column_name": long}]},
    }
    body = urlencode({long: "1"}) if kind == "form" else json.dumps(bodies[kind])
    submission = Received(
        kind=kind,
        body=body.encode(),
        content_type="application/x-www-form-urlencoded",
        honeypot="",
    ).submission
    assert submission.answers
    assert all(len(one.key) <= 200 and len(one.label) <= 200 for one in submission.answers)


def check(data: ReservationData) -> None:
    """What ReservationData promises of a record."""
    assert decode(encode(data)) == data
    assert data.adults >= (data.arrival is not None) and len(data.children) <= 30
    assert all(0 <= age <= 17 for age in data.children)
    assert data.first_name or data.last_name or data.email or data.phone
    if data.arrival is None:
        assert data.departure is None
    else:
        assert data.departure is not None and data.arrival < data.departure
        assert 2000 <= data.arrival.year <= data.departure.year < 2200
    for name in ("first_name", "last_name", "city"):
        assert len(getattr(data, name)) <= 64
    assert len(data.room_type) <= 8 and re.fullmatch("([A-Z]{2})?", data.country)
    assert re.fullmatch(r"(\+?[0-9]{4,20})?", data.phone)
    for field in data.__struct_fields__:
        value = getattr(data, field)
        if isinstance(value, str):
            assert not _NO_XML.search(value) and value == value.strip(), field
            assert field in ("message", "extra") or "\n" not in value


TEXT = st.text(max_size=40) | st.sampled_from(
    ["", " ", "2027-02-29", "2027-02-01", "08.02.2027", "1/2/2027", "2", "5, 8", "Ja", "Checked",
     "eva@example.com", "+39 333 1234567", "<script>", "'; DROP TABLE x; --", "\ud800", "\u202e",
     "99999999999999999999", "2 Kinder: 5, 8", "2 Erwachsene und 1 Kind", "0000-00-00", "-", "\x00"]
)  # fmt: skip
NAMES = st.sampled_from(
    [*TARGETS, "date_picker_a7c8", "date_picker_7e65", "number_7cf5", "long_answer_1234", "von",
     "Anreise", "Arrivo", "Check-out", "Kinder", "Personen", "Alter der Kinder", "Datenschutz"]
) | st.text(max_size=12)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
WIX = st.fixed_dictionaries(
    {},
    optional={
        "submissionId": VALUES,
        "formId": VALUES,
        "contact": VALUES
        | st.fixed_dictionaries(
            {}, optional={"name": VALUES, "email": VALUES, "locale": VALUES, "address": VALUES}
        ),
        "submissions": VALUES
        | st.lists(st.fixed_dictionaries({"label": NAMES | VALUES, "value": VALUES}), max_size=6),
    },
)
PLACES = st.builds(
    lambda kind, name: f"{kind}:{name or 'x'}",
    st.sampled_from(["field", "prefix", "label", "path"]),
    NAMES,
)
MAPPINGS = st.builds(
    FieldMapping,
    fields=st.dictionaries(st.sampled_from(TARGETS), st.tuples(PLACES, PLACES), max_size=3),
    values=st.dictionaries(
        st.sampled_from(TARGETS), st.dictionaries(TEXT, TEXT, max_size=2), max_size=2
    ),
    defaults=st.dictionaries(st.sampled_from(TARGETS), TEXT, max_size=3),
    ignore=st.tuples(PLACES) | st.just(()),
    date_order=st.sampled_from(["dmy", "mdy"]),
    without_stay=st.sampled_from(["review", "lead"]),
)


def judge(found: Mapped | Unmapped | Ignored) -> None:
    if not isinstance(found, Ignored):
        form_key = found.shape.form_key if found.shape else ""
        for name in (found.external_id or "", form_key):
            assert len(name) <= 128 and not _NO_XML.search(name), "no store takes everything"
    if isinstance(found, Mapped):
        check(found.data)
    elif isinstance(found, Unmapped):
        assert found.problems and len(set(found.problems)) == len(found.problems)
        for problem in found.problems:
            assert re.fullmatch(r"[a-z_]+(:[a-z_]+)?", problem), "a name, and nothing of a guest's"


@settings(max_examples=examples(300), deadline=None)
@given(
    document=WIX,
    fields=st.dictionaries(NAMES, VALUES, max_size=8),
    wrapped=st.booleans(),
    mapping=MAPPINGS | st.just(OF_KIND["wix"]),
)
def test_any_wix_submission_is_mapped_or_in_review(
    document: dict[str, Any], fields: dict[str, Any], wrapped: bool, mapping: FieldMapping
) -> None:
    data = {**document, **{f"field:{name}": value for name, value in fields.items()}}
    body = json.dumps({"data": data} if wrapped else data).encode()
    judge(read("wix", body, mapping=mapping))


@settings(max_examples=examples(200), deadline=None)
@given(
    columns=VALUES
    | st.lists(
        st.fixed_dictionaries({"column_id": NAMES, "column_name": NAMES, "string_value": VALUES}),
        max_size=6,
    ),
    lead=VALUES,
    mapping=MAPPINGS | st.just(OF_KIND["google"]),
)
def test_any_google_lead_is_mapped_or_in_review(
    columns: Any, lead: Any, mapping: FieldMapping
) -> None:
    body = json.dumps({"lead_id": lead, "user_column_data": columns, "gcl_id": lead}).encode()
    judge(read("google", body, mapping=mapping))


@settings(max_examples=examples(300), deadline=None)
@given(
    pairs=st.lists(st.tuples(NAMES, TEXT), max_size=10),
    multipart=st.booleans(),
    mapping=MAPPINGS | st.just(OF_KIND["form"]),
)
def test_any_form_is_mapped_or_in_review(
    pairs: list[tuple[str, str]], multipart: bool, mapping: FieldMapping
) -> None:
    if multipart:
        parts = "".join(
            f'--XX\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in pairs
        )
        body = f"{parts}--XX--\r\n".encode("utf-8", "surrogatepass")
        judge(read("form", body, "multipart/form-data; boundary=XX", mapping))
    else:
        body = urlencode(pairs, errors="surrogatepass").encode()
        judge(read("form", body, "application/x-www-form-urlencoded", mapping))


@settings(max_examples=examples(200), deadline=None)
@given(
    body=st.binary(max_size=300) | st.binary(max_size=40).map(lambda b: b'{"data":' + b),
    kind=st.sampled_from(sorted(OF_KIND)),
    content_type=st.sampled_from(
        ["", "application/json", "multipart/form-data; boundary=X", "multipart/form-data",
         "application/x-www-form-urlencoded", "multipart/form-data; boundary=\x00",
         'multipart/form-data; boundary="', "multipart/form-data; boundary=" + "x" * 300]
    ),
)  # fmt: skip
def test_any_bytes_are_something(body: bytes, kind: str, content_type: str) -> None:
    judge(read(kind, body, content_type))


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"data":' * 50_000,
        b'{"data":{"field:a":1e999,"field:b":NaN,"field:c":' + b"9" * 5000 + b"}}",
        b'{"data":{"field:a":"' + b"\\ud800" * 1000 + b'"}}',
        b'\xef\xbb\xbf{"data":{}}',
        b"\xff\xfe{\x00}\x00",
        '{"data":{"field:first_name":"Jürgen"}}'.encode("latin-1"),
        b'{"data":{"field:a":1,"field:a":2}}',
        b"\x00" * 1000,
        b'{"data":{"field:' + b"a" * 100_000 + b'":"x"}}',
        b'{"data":{"field:message":"' + b"1.1.2027 - " * 20_000 + b'"}}',
        b'{"data":{"field:dates":"' + b"1. a " * 40_000 + b'"}}',
        b'{"data":{"field:children":"' + b"1 kind " * 30_000 + b'"}}',
        b'{"data":{"field:phone":"' + b"1" * 200_000 + b'"}}',
        b'{"data":{"field:email":"' + b"a." * 100_000 + b'@b"}}',
    ],
)
def test_hostile_body_is_judged_at_once(body: bytes) -> None:
    began = thread_time()  # not the time of others
    judge(read("wix", body))
    assert thread_time() - began < 1
