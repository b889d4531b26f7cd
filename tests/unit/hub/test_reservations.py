"""Rules of reservations: what follows what, ids, what a cancellation carries over."""

from __future__ import annotations

from datetime import date
from typing import get_args

import msgspec
import pytest

from alpinehub.intake import carry_over
from alpinehub.reservations import (
    MEAL_PLAN_CODES,
    MealPlan,
    ReservationData,
    ResStatus,
    Status,
    content_hash,
    encode,
    new_id,
    next_res_status,
    unique_id_type,
)

BEFORE = ReservationData(
    status="reservation",
    arrival=date(2027, 2, 1),
    departure=date(2027, 2, 8),
    adults=2,
    last_name="Muster",
    email="eva@example.com",
    newsletter=True,
)


@pytest.mark.parametrize(
    ("status", "before", "expected"),
    [
        ("request", None, "Requested"),
        ("request", "request", "Requested"),
        ("reservation", None, "Reserved"),
        ("reservation", "request", "Reserved"),
        ("reservation", "reservation", "Modify"),
        ("reservation", "cancelled", "Reserved"),
        ("cancelled", None, "Cancelled"),
        ("cancelled", "reservation", "Cancelled"),
        ("request", "cancelled", "Requested"),
    ],
)
def test_res_status_follows_from_what_was_before(
    status: Status, before: Status | None, expected: ResStatus
) -> None:
    assert next_res_status(status, before) == expected


def test_cancellation_carries_over_what_it_does_not_say() -> None:
    said = carry_over(BEFORE, ReservationData(status="cancelled", message="krank"))
    assert said.status == "cancelled" and said.message == "krank"
    assert (said.arrival, said.adults, said.last_name) == (BEFORE.arrival, 2, "Muster")
    assert said.newsletter is True


def test_id_fits_alpinebits_and_grows_with_time() -> None:
    ids = [new_id(1_800_000_000_000_000 + i * 1000) for i in range(100)]
    assert ids == sorted(ids) and len(set(ids)) == 100
    assert {len(i) for i in ids} == {32}


def test_content_hash_differs_when_content_does() -> None:
    other = ReservationData(status="reservation", adults=2)
    assert content_hash(encode(BEFORE)) != content_hash(encode(other))
    assert len(content_hash(encode(BEFORE))) == 16


def test_every_meal_plan_has_a_code() -> None:
    assert set(MEAL_PLAN_CODES) == set(get_args(MealPlan))
    assert unique_id_type("reservation") == 14
    assert unique_id_type("cancelled") == 15


def test_stay_of_a_cancellation_replaces_the_one_before_as_a_whole() -> None:
    before = msgspec.structs.replace(BEFORE, pets=True, consent=True)
    first, last = date(2028, 1, 1), date(2028, 1, 5)
    after = carry_over(before, ReservationData(status="cancelled", arrival=first, departure=last))
    assert (after.arrival, after.departure) == (first, last)
    assert (after.pets, after.consent) == (True, True)
    for said in (
        ReservationData(status="cancelled", pets=False, arrival=first),
        ReservationData(status="cancelled", pets=False, departure=last),
    ):
        half = carry_over(before, said)
        assert (half.arrival, half.departure) == (BEFORE.arrival, BEFORE.departure)
        assert half.pets is False
