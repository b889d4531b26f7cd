"""Which units run alone."""

from __future__ import annotations

from functools import partial, wraps
from typing import Any

from cordata.store.postgres.habit import Habits, kind_of


async def one(tx: Any) -> None: ...


async def other(tx: Any) -> None: ...


class Thing:
    async def unit(self, tx: Any) -> None: ...

    async def __call__(self, tx: Any) -> None: ...


def made(number: int) -> Any:
    async def unit(tx: Any) -> int:
        return number

    return unit


def wrapped(unit: Any) -> Any:
    @wraps(unit)
    async def outer(tx: Any) -> Any:
        return await unit(tx)

    return outer


def test_kind_is_the_code_of_the_unit() -> None:
    assert kind_of(made(1)) == kind_of(made(2))
    assert kind_of(one) != kind_of(other)
    assert kind_of(Thing().unit) == kind_of(Thing().unit)
    assert kind_of(Thing()) == kind_of(Thing())
    assert kind_of(partial(one)) == kind_of(wrapped(one)) == kind_of(one)
    assert kind_of(wrapped(one)) != kind_of(wrapped(other))


def test_unit_runs_alone_for_a_while_when_it_broke_a_transaction() -> None:
    habits = Habits()
    assert not habits.alone(one)
    habits.broke(one)
    runs = 0
    while habits.alone(one):
        runs += 1
    assert runs
    assert not habits.alone(other)
    habits.broke(one)
    assert sum(habits.alone(one) for _ in range(1000)) == 2 * runs


def test_unit_runs_alone_for_a_short_while_when_it_shared_many_transactions_before() -> None:
    habits = Habits()
    habits.broke(one)
    first = sum(habits.alone(one) for _ in range(1000))
    habits.broke(one)
    assert sum(habits.alone(one) for _ in range(1000)) == first


def test_habits_stay_small_when_code_is_made_anew_all_the_time() -> None:
    habits = Habits()
    for number in range(5000):
        habits.broke(eval(f"lambda tx: {number}"))
    assert len(habits._kinds) <= 4096
