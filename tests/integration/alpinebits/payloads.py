"""Whatever a sender may say, as strategies: most of it is accepted, some of it never."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from tests.examples import examples

#: Each in the place of any text: what breaks programs that meet it for the first time.
ODD = (
    "",
    " ",
    "\u00a0\u2003\u3000",
    "<b>&amp;\"'</b>]]><!--",
    "';DROP TABLE reservation;--",
    "\u202eאבג\u202c\u2067שלום\u2069\u200f",
    "مرحبا",
    "Z\u0335a\u0327\u0301l\u0334\u0300g\u0310\u0301o" + "\u0301" * 40,
    "e\u0301é",
    "👩‍👩‍👧‍👦🏳️‍🌈𝄞",
    "\u200b\u200d\ufeff\u2028\u2029\u0085",
    "정 王小明 Ωmega ﬁ İıẞß",
    "a\r\nb\tc\rd\n",
    "\x00",
    "\x1b[31mred\x07\x7f",
    "\ufffe\uffff\U0001fffe\U0010ffff\ufdd0",
    "\ud83d",
    "\udc00x\ud800",
    "%00%0a{{7*7}}${x}",
    "-",
)
#: Days that are none, that few programs know, and nights that are shorter or longer than others.
DAYS = (
    *("2027-02-29", "2028-02-29", "2100-02-29", "2027-03-27", "2027-03-28", "2027-10-30"),
    *("2027-10-31", "2027-12-31", "0001-01-01", "9999-12-31", "2027-2-1", "2027-01-32"),
    *("2027-03-28T02:30:00+01:00", "1.2.2027", "8. Februar 2027", "02/01/27", "29.02.2027"),
    *("2027-02-01T23:59:59Z", "morgen", ""),
)
STATUSES = ("request", "reservation", "cancelled")


def wide(count: int) -> settings:
    """Settings of a test that looks at so many examples, or at as many times more as is wanted."""
    return settings(max_examples=examples(count), deadline=None)


def texts(most: int) -> st.SearchStrategy[str]:
    """Any text up to a length, markup and what is odd more often, a long one now and then."""
    safe = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff")
    usual = st.text(st.sampled_from("<>&\"' ]") | safe, max_size=min(most, 40))
    odd = st.sampled_from(ODD).map(lambda text: text[:most])
    both = st.tuples(usual, odd).map(lambda pair: "".join(pair)[:most])
    long = st.sampled_from("aä<&\u0301𝄞 ").map(lambda letter: (letter * most)[:most])
    return usual | usual | odd | both | long


def _stay(first: date, nights: int) -> dict[str, str]:
    return {"arrival": str(first), "departure": str(first + timedelta(nights))}


STAYS = st.builds(_stay, st.dates(date(2000, 1, 1), date(2199, 1, 1)), st.integers(-1, 400))
ODD_STAYS = st.fixed_dictionaries(
    {}, optional={"arrival": st.sampled_from(DAYS), "departure": st.sampled_from(DAYS)}
)
EMAILS = st.sampled_from(
    ["eva@example.com", "ü@bücher.example", "a@b", '"x y"@example.com', "<eva@example.com>", "@"]
) | texts(260)
PHONES = (
    st.sampled_from(["+39 0471 (0) 12/34-5", "0039 333 1234567", "12 34", "+", "x", "٣٣٣ ١٢٣٤"])
    | st.from_regex(r"\+?[0-9 ()/.-]{0,30}", fullmatch=True)
    | texts(32)
)
LANGUAGES = st.sampled_from(["de", "IT", "pt-BR", "zh_Hans", "xx", "deutsch", "ç"]) | texts(32)

_Fields = dict[str, st.SearchStrategy[Any]]


@st.composite
def _mixed(draw: st.DrawFn, good: _Fields, any_: _Fields) -> dict[str, Any]:
    """What is good, with some fields that may be anything: else one of them spoils nearly all."""
    said = {name: draw(values) for name, values in good.items()}
    names = st.lists(st.sampled_from(sorted(any_)), max_size=8, unique=True)
    return said | {name: draw(any_[name]) for name in draw(names)}


_GENERIC = _mixed(
    {
        "hotel_code": st.just("H1"),
        "status": st.sampled_from(STATUSES),
        "external_id": st.just("n-1"),
        "adults": st.integers(1, 99),
        "email": st.just("eva@example.com"),
        "room_type": st.sampled_from(["DZ", "<&>\"'", "à la 𝄞"]),
        "rate_plan": st.just("B"),
        "total": st.integers(0, 9_999_999_999).map(lambda cents: cents / 100),
        "currency": st.just("EUR"),
    },
    {
        "external_id": texts(128),
        "adults": st.integers(-1, 100),
        "email": EMAILS | st.none(),
        "room_type": texts(8),
        "rate_plan": texts(64),
        "total": st.sampled_from([0, -0.0, -1, 1e3, 99999999.99, 1e8, 0.001, "12.50"]),
        "currency": st.sampled_from(["chf", "EU", "€€€"]),
        "children": st.lists(st.integers(0, 17) | st.integers(-1, 18), max_size=31),
        "first_name": texts(64),
        "last_name": texts(64),
        "phone": PHONES,
        "language": LANGUAGES,
        "message": texts(10_000),
        "meal_plan": st.sampled_from(["breakfast", "all_inclusive", "half_board", None, "lunch"]),
        "newsletter": st.booleans() | st.none(),
        "consent": st.booleans() | st.none(),
        "gclid": texts(1024),
        "fbclid": texts(1024),
        **{f"utm_{name}": texts(1024) for name in ("source", "medium", "campaign", "x")},
    },
)
#: Of POST /api/webhook/generic.
PAYLOADS: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda payload, stay: payload | stay, _GENERIC, STAYS | STAYS | STAYS | ODD_STAYS
)

_FORM = _mixed(
    {"first_name": st.just("Eva"), "email": st.just("eva@example.com")},
    {
        "first_name": texts(70),
        "last_name": texts(70),
        "email": EMAILS,
        "phone": PHONES,
        "nights": st.sampled_from(["7", "0", "366", "367", "eine Woche"]),
        "adults": st.sampled_from(["2", "99", "0", "zwei", "2.0", "²"]),
        "children_ages": st.sampled_from(["5, 8", "0", "17 17 17", "18", "1 Kind: 5", "5 " * 31]),
        "children_count": st.sampled_from(["0", "1", "30", "31"]),
        "message": texts(12_000),
        "question": texts(300),
        "prefix": texts(20) | st.sampled_from(["Frau", "Signor", "Mr"]),
        "title": texts(20),
        "birth_date": st.sampled_from(["1.1.1980", "2027-01-01", "nie", "29.2.1980", "1899-01-01"]),
        "address": texts(300),
        "city": texts(80),
        "plz": texts(20),
        "country": st.sampled_from(["Italien", "DE", "Nirgendwo"]) | texts(20),
        "state": texts(80),
        "pets": st.sampled_from(["Ja", "nein", "ein Hund"]),
        "newsletter": st.sampled_from(["on", "Unchecked", "?"]),
        "consent": st.sampled_from(["Checked", "no", "?"]),
        "language": st.sampled_from(["Deutsch"]) | LANGUAGES,
        "room": texts(10),
        "plan": texts(70),
        "meals": st.sampled_from(["breakfast", "", "?"]),
        "status": st.sampled_from(STATUSES),
        "total": st.sampled_from(["10.5", "-1", "1e3", "1,50", "1.200", "0", "٣"]),
        "currency": st.sampled_from(["EUR", "eur", "€", ""]),
        "gclid": texts(1100),
        "fbclid": texts(1100),
    },
)
#: Of a website's form: answers by the names of their fields.
FIELDS: st.SearchStrategy[dict[str, str]] = st.builds(
    lambda fields, stay: fields | stay, _FORM, STAYS | STAYS | ODD_STAYS | st.just({})
)


def as_json(payload: object, escaped: bool = True) -> bytes:
    """A body. Half a surrogate pair can only be written as an escape."""
    said = json.dumps(payload, ensure_ascii=escaped)
    try:
        return said.encode()
    except UnicodeEncodeError:
        return json.dumps(payload).encode()
