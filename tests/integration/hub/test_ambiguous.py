"""Forms that could mean two things: nothing is guessed, a person looks at them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.integration.hub.lenient import data, open_lenient, post_form, post_wix, wix
from tests.integration.hub.material import Hub, forget_directory

from alpinehub.inbox.actions import change_mapping
from alpinehub.webhooks.fields import FieldMapping, decode

on_each_store = pytest.mark.usefixtures("each_store")
GUEST = {"name": "Eva Muster", "email": "eva@example.com"}
STAY = {"arrival": "2027-02-01", "departure": "2027-02-08"}
BOTH_DAYS = ["ambiguous:arrival", "ambiguous:departure"]


async def became(hub: Hub, fields: Mapping[str, str]) -> dict[str, Any] | list[str]:
    """The record of a form, or its problems."""
    assert (await post_form(hub, {**GUEST, **fields})).status == 200
    await hub.handle_events()
    [row] = await hub.rows(
        "SELECT i.state, i.error, v.data FROM inbox i"
        " LEFT JOIN reservation_version v ON v.reservation_id = i.reservation_id"
        " ORDER BY i.id DESC, v.version DESC LIMIT 1"
    )
    if row["state"] == "review":
        problems: list[str] = row["error"].split("; ")
        return problems
    assert row["state"] == "mapped"
    record: dict[str, Any] = json.loads(row["data"])
    return record


def days(first: str, second: str) -> dict[str, str]:
    return {"arrival": first, "departure": second, "adults": "2"}


DAYS: list[tuple[dict[str, str], tuple[str, str] | list[str]]] = [
    # The guest's language says which is the month.
    (days("02/01/2027", "02/08/2027") | {"locale": "en-US"}, ("2027-02-01", "2027-02-08")),
    (days("02-01-2027", "02-08-2027") | {"lang": "en_US"}, ("2027-02-01", "2027-02-08")),
    (days("01/02/2027", "08/02/2027") | {"locale": "en-GB"}, ("2027-02-01", "2027-02-08")),
    (days("01/02/2027", "08/02/2027") | {"locale": "it"}, ("2027-02-01", "2027-02-08")),
    # Nothing says it.
    (days("02/01/2027", "02/08/2027"), BOTH_DAYS),
    (days("05/06/2027", "06/07/2027"), BOTH_DAYS),
    (days("05/06/2027", "06/07/2027") | {"locale": "en"}, BOTH_DAYS),
    (days("05/06/27", "2027-06-11"), ["ambiguous:arrival"]),
    ({"dates": "05/06/2027 - 06/07/2027", "adults": "2"}, ["ambiguous:dates"]),
    ({"arrival": "05/06/2027", "nights": "3", "adults": "2"}, ["ambiguous:arrival"]),
    # One of the two does: it cannot be meant otherwise.
    (days("02/01/2027", "02/13/2027"), ("2027-02-01", "2027-02-13")),
    (days("01/02/2027", "13/02/2027"), ("2027-02-01", "2027-02-13")),
    (days("05/05/2027", "06/06/2027"), ("2027-05-05", "2027-06-06")),
    # The other way round the guest would leave before they come.
    (days("30/01/2027", "05/02/2027"), ("2027-01-30", "2027-02-05")),
    (days("05/02/2027", "01/03/2027"), ("2027-02-05", "2027-03-01")),
    # The names of the fields are of a language that writes the day first.
    (
        {"anreise": "01/02/2027", "abreise": "08/02/2027", "adults": "2"},
        ("2027-02-01", "2027-02-08"),
    ),
    (
        {"data di arrivo": "01/02/2027", "data di partenza": "08/02/2027", "adulti": "2"},
        ("2027-02-01", "2027-02-08"),
    ),
    # Two ways of writing in one form.
    (days("01.02.2027", "02/08/2027"), ["ambiguous:departure"]),
    (days("2027-02-01", "08/02/2027") | {"locale": "de"}, ["ambiguous:departure"]),
    ({"anreise": "01.02.2027", "abreise": "02/08/2027"}, ["ambiguous:departure"]),
    (days("13/01/2027", "01/25/2027"), BOTH_DAYS),
    (days("01.02.2027", "13/02/2027"), ("2027-02-01", "2027-02-13")),
    # No year.
    (days("05/06", "06/07"), ["unreadable:arrival", "unreadable:departure"]),
    # Typed wrong: another year.
    (days("2026-02-01", "2026-02-08"), ["past:arrival"]),
    (days("2027-02-01", "2028-02-08"), ["too_long:departure"]),
    (days("2027-01-02", "2028-02-08"), ["too_long:departure"]),
    (days("2027-01-02", "2028-01-03"), ("2027-01-02", "2028-01-03")),
    (days("2027-01-02", "2027-01-03"), ("2027-01-02", "2027-01-03")),
    (days("2027-01-01", "2027-01-03"), ["past:arrival"]),
]


@on_each_store
async def test_day_that_could_be_another_is_in_review(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, form_per_minute=0) as hub:
        for fields, expected in DAYS:
            found = await became(hub, fields)
            if isinstance(found, dict):
                assert (found["arrival"], found["departure"]) == expected, fields
            else:
                assert found == expected, fields


@on_each_store
async def test_day_is_read_as_the_operator_says(tmp_path: Path) -> None:
    def american(before: FieldMapping) -> FieldMapping:
        return decode(b'{"date_order": "mdy", "defaults": {"adults": "2"}}')

    async with open_lenient(tmp_path, form_per_minute=0) as hub:
        assert await became(hub, days("02/01/2027", "02/08/2027")) == BOTH_DAYS
        await change_mapping(hub.ctx.store, "DEMO", "form", american)
        forget_directory(hub.ctx)
        found = await became(hub, days("02/01/2027", "02/09/2027"))
        assert isinstance(found, dict) and found["departure"] == "2027-02-09"


async def test_locale_of_the_contact_says_how_wix_writes_days(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        payload = wix(
            field__date_picker_a7c8=None, field__date_picker_7e65=None, field__number_7cf5="2"
        )
        payload["data"] |= {
            "submissions": [
                {"label": "Arrival", "value": "02/01/2027"},
                {"label": "Departure", "value": "02/08/2027"},
            ],
            "contact": {"locale": "en-US"},
        }
        await post_wix(hub, payload)
        await hub.handle_events()
        record = await data(hub)
        assert (record["arrival"], record["departure"]) == ("2027-02-01", "2027-02-08")
        assert record["language"] == "en"


async def test_birth_date_that_could_be_another_is_kept_as_written(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, form_per_minute=0) as hub:
        found = await became(hub, {**STAY, "adults": "2", "birth_date": "05/06/1970"})
        assert isinstance(found, dict) and "birth_date" not in found
        assert found["extra"] == "birth date: 05/06/1970"
        told = {"birth_date": "05/06/1970", "locale": "en-US"}
        found = await became(hub, {**STAY, "adults": "3", **told})
        assert isinstance(found, dict) and found["birth_date"] == "1970-05-06"


CHILDREN: list[tuple[str, list[int] | list[str]]] = [
    ("2 (5+8)", [5, 8]),
    ("2 (5 und 8 Jahre)", [5, 8]),
    ("2: 5, 8", [5, 8]),
    ("2 : 5 / 8", [5, 8]),
    ("1: 5", [5]),
    ("2 x 5", [5, 5]),
    ("2x5, 1x8", [5, 5, 8]),
    ("2 × 5 Jahre", [5, 5]),
    ("3 (5+8)", ["unreadable:children"]),
    ("2: 5", ["unreadable:children"]),
    ("2 / 5, 8", ["unreadable:children"]),
    ("2 = 5, 8", [5, 8]),
    ("2 x 5, 8", ["unreadable:children"]),
    ("20 x 5", ["unreadable:children"]),
    ("5, 8", [5, 8]),
    ("2, 5, 8", [2, 5, 8]),
]


@pytest.mark.parametrize("name", ["kinder", "alter der kinder"])
async def test_number_of_children_is_not_the_age_of_one(tmp_path: Path, name: str) -> None:
    async with open_lenient(tmp_path, form_per_minute=0) as hub:
        for number, (text, expected) in enumerate(CHILDREN):
            found = await became(hub, {**STAY, "adults": str(number + 1), name: text})
            got = found.get("children") if isinstance(found, dict) else found
            assert got == expected, text


async def test_count_of_children_may_tell_their_ages(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, form_per_minute=0) as hub:
        for text, expected in (("2 (5+8)", [5, 8]), ("2: 5, 8", [5, 8])):
            found = await became(hub, {**STAY, "adults": "2", "anzahl kinder": text})
            assert isinstance(found, dict) and found["children"] == expected
        told = {**STAY, "adults": "2", "anzahl kinder": "5, 8"}
        assert await became(hub, told) == ["unreadable:children_count"]


#: A field beside those that are known, and what becomes of a form that does not ask for adults.
NUMBERS: list[tuple[dict[str, str], int | str]] = [
    ({}, 2),
    ({"pax": "4"}, "review"),
    ({"wieviele seid ihr": "4 Personen"}, "review"),
    ({"number_1111": "3", "number_2222": "1"}, "review"),
    ({"quanti": "1"}, "review"),
    ({"pax": "4", "adults": "3"}, 3),
    # They count something else, or nothing.
    ({"anzahl zimmer": "1"}, 2),
    ({"rooms": "2"}, 2),
    ({"nights": "7"}, 2),
    ({"form_id": "17"}, 2),
    ({"budget": "90"}, 2),
    ({"year": "2027"}, 2),
    ({"wie": "per Post"}, 2),
]


async def test_number_that_nobody_claims_may_be_that_of_the_adults(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, form_per_minute=0) as hub:
        for number, (fields, expected) in enumerate(NUMBERS):
            found = await became(hub, {**STAY, "message": str(number), **fields})
            if expected == "review":
                assert found == ["ambiguous:adults"], fields
            else:
                assert isinstance(found, dict) and found["adults"] == expected, fields


@on_each_store
async def test_text_that_is_cut_says_so(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, form_per_minute=0) as hub:
        found = await became(hub, {**STAY, "adults": "2", "message": "ä" * 25_000})
        assert isinstance(found, dict)
        assert found["message"].startswith("ä" * 19_000) and len(found["message"]) <= 20_000
        assert found["message"].endswith("characters cut off]") and "[5" in found["message"]
        uncut = await became(hub, {**STAY, "adults": "3", "message": "ä" * 20_000})
        assert isinstance(uncut, dict) and uncut["message"] == "ä" * 20_000
        payload = wix(field__long_answer_3524="x" * 25_000)
        await post_wix(hub, payload)
        await hub.handle_events()
        assert "characters cut off]" in (await data(hub))["message"]


async def test_name_that_is_cut_is_whole_in_the_comment(tmp_path: Path) -> None:
    async with open_lenient(tmp_path, form_per_minute=0) as hub:
        name = " ".join(["Muster"] * 20)
        fields = {**STAY, "adults": "2", "vorname": "Eva", "name": name}
        found = await became(hub, fields)
        assert isinstance(found, dict) and found["last_name"] == name[:64].rstrip()
        assert name in found["extra"]
