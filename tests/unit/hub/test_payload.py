"""The generic payload: every rule by table, the corpus of tests/data/webhook, and properties."""

from __future__ import annotations

import json
import unicodedata
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from alpinehub import reservations
from alpinehub.webhooks.endpoint import (
    MAX_PROBLEMS,
    Problem,
    WebhookError,
    invalid,
    webhook_error_body,
)
from alpinehub.webhooks.generic import CheckedPayload, Payload, normalise, parse

DATA = Path(__file__).parents[2] / "data" / "webhook"
REQUEST: dict[str, Any] = {
    "hotel_code": "DEMO",
    "status": "request",
    "external_id": "n-1",
    "arrival": "2027-02-01",
    "departure": "2027-02-08",
    "adults": 2,
    "last_name": "Muster",
    "email": "eva@example.com",
}


def accept(payload: Any) -> CheckedPayload:
    return normalise(parse(json.dumps(payload).encode()))


def refuse(payload: Any) -> dict[str, str]:
    """The problems of a payload, by field."""
    with pytest.raises(WebhookError) as caught:
        accept(payload)
    assert caught.value.status == 422
    return {problem.field: problem.problem for problem in caught.value.problems}


def corpus(kind: str) -> list[Any]:
    files = sorted((DATA / kind).glob("*.json"))
    return [pytest.param(json.loads(path.read_text("utf-8")), id=path.stem) for path in files]


@pytest.mark.parametrize("payload", corpus("accepted"))
def test_payload_is_accepted_when_the_corpus_says_so(payload: dict[str, Any]) -> None:
    submission = accept(payload)
    assert submission.data.status == payload["status"]
    again = reservations.decode(reservations.encode(submission.data))
    assert again == submission.data
    for name in ("first_name", "last_name", "message"):
        assert getattr(submission.data, name) == (payload.get(name) or "")


@pytest.mark.parametrize("case", corpus("rejected"))
def test_payload_names_every_problem_when_refused(case: dict[str, Any]) -> None:
    assert sorted(refuse(case["payload"])) == sorted(case["problems"])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"{}x", 400),
        (b'{"adults": NaN}', 400),
        (b'{"adults": Infinity}', 400),
        (b'{"adults": 01}', 400),
        (b"{'adults': 1}", 400),
        (b'\xef\xbb\xbf{"adults": 1}', 400),
        (b'{"last_name": "\xff"}', 400),
        (b'{"last_name": "\xed\xa0\x80"}', 400),
        (b'{"last_name": "a\x01"}', 400),
        (b'{"last_name": "\\ud800x"}', 400),
        (b'{"last_name": "\\udc00"}', 400),
        ('{"adults": 1}'.encode("utf-16"), 400),
        (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
        (b"[" * 100_000, 400),
        (b'{"adults":' + b"9" * 100_000 + b"}", 422),
        (b'{"total": 1e999999}', 422),
        (b'{"total": "' + b"9" * 50_000 + b'"}', 422),
        (b"null", 422),
        (b'"DEMO"', 422),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else None,
)
def test_body_gets_a_clear_answer_when_it_is_hostile(body: bytes, status: int) -> None:
    with pytest.raises(WebhookError) as caught:
        normalise(parse(body))
    assert caught.value.status == status


def test_last_value_counts_when_a_key_is_repeated() -> None:
    body = json.dumps(REQUEST)[:-1].encode() + b', "adults": 3}'
    assert normalise(parse(body)).data.adults == 3


@pytest.mark.parametrize(
    "text",
    [
        "a@b",
        "@b.it",
        "a@.it",
        "a@b..it",
        "a b@c.it",
        "a@b.it, c@d.it",
        "<a@b.it>",
        "a@b@c.it",
        "a@b.it.",
    ],
)
def test_email_is_refused_when_it_has_no_such_shape(text: str) -> None:
    assert list(refuse({**REQUEST, "email": text})) == ["email"]


@pytest.mark.parametrize("text", ["eva+x@sub.example.co.at", "ü@münchen.example", "a'b@c.it"])
def test_email_is_kept_as_written_when_it_has_the_shape(text: str) -> None:
    assert accept({**REQUEST, "email": f" {text} "}).data.email == text


def test_fields_are_normalised_when_they_have_one_form() -> None:
    data = accept(
        {
            **REQUEST,
            "language": "de-AT",
            "currency": "eur",
            "total": 450,
            "first_name": "  Eva ",
            "message": "a\r\nb\rc  ",
            "utm_source": "google",
            "utm_x1": "y",
        }
    ).data
    assert (data.language, data.currency, data.total) == ("de", "EUR", Decimal("450.00"))
    assert (data.first_name, data.message) == ("Eva", "a\nb\nc")
    assert data.utm == {"source": "google", "x1": "y"}
    assert (data.arrival, data.departure) == (date(2027, 2, 1), date(2027, 2, 8))


@pytest.mark.parametrize("total", [99_999_999.99, "99999999.99", 99_999_999, -0.0, "0", 1e2, 0.07])
def test_total_is_the_number_that_was_written(total: float | str) -> None:
    data = accept({**REQUEST, "total": total, "currency": "EUR"}).data
    assert data.total == Decimal(str(total)) and str(data.total)[-3] == "."


@pytest.mark.parametrize(
    "total", ["\u0663\u0664", "1_0", " 1", "1\n", "1,5", "", "1.", "NaN", True, [1]]
)
def test_total_is_refused_when_it_is_no_number_in_ascii_digits(total: object) -> None:
    problems = refuse({**REQUEST, "total": total, "currency": "EUR"})
    assert problems == {"total": "expected a number (1450.50)"}


def test_content_is_equal_when_only_the_writing_differs() -> None:
    one = accept({**REQUEST, "total": 450, "currency": "eur", "utm_a": "1", "utm_source": "x"})
    two = accept(
        {
            "utm_source": "x",
            "utm_a": "1",
            "currency": "EUR",
            "total": "450.00",
            "phone": None,
            **REQUEST,
        }
    )
    assert reservations.encode(one.data) == reservations.encode(two.data)


def test_errors_are_bounded_and_repeat_no_value_when_all_is_wrong() -> None:
    payload = {f"field{i}" * 20: "secret value" for i in range(5000)}
    with pytest.raises(WebhookError) as caught:
        accept({**payload, "status": "secret value", "adults": "secret value"})
    body = webhook_error_body(caught.value, "r-1")
    decoded = json.loads(body)
    assert len(decoded["problems"]) == MAX_PROBLEMS + 1
    assert "more problems" in decoded["problems"][-1]["problem"]
    assert b"secret value" not in body and len(body) < 20_000
    assert decoded["error"] == "invalid" and decoded["request_id"] == "r-1"


def test_unknown_field_gets_the_nearest_name_when_it_is_a_slip() -> None:
    assert "children" in refuse({**REQUEST, "chldren": []})["chldren"]


def test_message_of_a_422_names_fields_when_there_are_any() -> None:
    assert "adults" in invalid([Problem("adults", "required")]).message


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
_names = st.sampled_from(Payload.__struct_fields__) | st.text(max_size=12)
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)


@settings(max_examples=examples(60), deadline=None)
@given(st.dictionaries(_names, _anything, max_size=12))
def test_any_json_is_accepted_or_refused_with_reasons(payload: dict[str, Any]) -> None:
    body = json.dumps(payload, allow_nan=True).encode("utf-8", "surrogatepass")
    try:
        normalise(parse(body))
    except WebhookError as refused:
        assert refused.status in (400, 422)
        assert refused.status == 400 or refused.problems
        json.loads(webhook_error_body(refused, ""))


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_refused_without_a_crash(body: bytes) -> None:
    with pytest.raises(WebhookError):
        normalise(parse(body))


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(["first_name", "last_name", "message", "rate_plan", "external_id"]), _text)
def test_text_is_kept_verbatim_or_refused_by_name(name: str, text: str) -> None:
    raw = json.dumps({**REQUEST, name: text}, ensure_ascii=False).encode()
    escaped = json.dumps({**REQUEST, name: text}).encode()
    results = []
    for body in (raw, escaped):
        try:
            submission = normalise(parse(body))
        except WebhookError as refused:
            results.append([p.field for p in refused.problems])
            assert results[-1] == [name]
        else:
            results.append(
                [reservations.encode(submission.data).decode(), submission.external_id or ""]
            )
            if name not in ("message", "external_id"):
                assert getattr(submission.data, name) == text.strip(" \t\r\n\u00a0")
            for character in results[-1][0]:
                assert character >= " " and unicodedata.category(character) != "Cs"
    assert results[0] == results[1]


def test_nearest_name_is_sought_for_so_many_unknown_fields_only() -> None:
    """Each search costs 50 us of the loop that all clients share."""
    body = json.dumps({f"adult{n}": 1 for n in range(MAX_PROBLEMS + 50)}).encode()
    problems = [p.problem for p in parse(body).problems]
    assert len(problems) == MAX_PROBLEMS + 50
    assert sum("did you mean" in problem for problem in problems) == MAX_PROBLEMS
