"""Units that share transactions do what they would do one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.postgres.serial import (
    Changed,
    Outcome,
    Program,
    State,
    agree_on_error,
    apply,
    explain,
    run_program,
)

from cordata.config.sections import StoreConfig
from cordata.errors import Conflict, PermanentError
from cordata.store import Chain, Queries, Tx
from cordata.store.postgres.store import PostgresStore

SQL = "tests.integration.postgres.sql"
KEYS = ("a", "b", "c")
FITTING = (
    *("get", "range", "all", "share", "write_add", "write_offer", "write_put", "write_set"),
    *("write_more", "note", "note", "mark", "add", "offer", "count", "take", "take_or_raise"),
    *("many", "add_returning", "set", "more", "write_drop", "drop"),
)
OTHERS = ("hold", "divide", "raise_all", "copy", "write_copy", "nul", "raise", "put", "write_sweep")
#: Of units that ask for nothing; some of these writes are not for sharing.
WRITES = ("write_put", "note", "mark", "write_more", "write_copy", "write_sweep")


def steps_of(names: Sequence[str], most: int) -> st.SearchStrategy[Program]:
    step = st.tuples(st.sampled_from(names), st.sampled_from(KEYS), st.integers(0, 3))
    return st.lists(step, min_size=1, max_size=most).map(tuple)


program = st.one_of(
    steps_of((*FITTING, *FITTING, *OTHERS), 5),
    steps_of((*FITTING, *FITTING, *OTHERS), 5),
    steps_of(WRITES, 2),
)
programs = st.lists(program, min_size=2, max_size=5)
starts = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 3), max_size=3)


async def run(store: PostgresStore, program: Program, who: int) -> Outcome:
    async def unit(tx: Tx) -> list[Any]:
        return await run_program(tx, program, who)

    # A kind of its own, so that what one example teaches does not keep the next ones apart.
    unit.__wrapped__ = object()  # type: ignore[attr-defined]
    try:
        return await store.run(unit)
    except (Conflict, PermanentError, Changed) as error:
        return type(error).__name__


async def reset(store: PostgresStore, start: dict[str, int]) -> State:
    async def unit(tx: Tx) -> None:
        await tx.execute("serial.clear")
        for k, v in start.items():
            await tx.write("kv.add", k=k, v=v)

    await store.run_alone(unit)
    return State(dict(start))


async def look(store: PostgresStore) -> State:
    async def unit(tx: Tx) -> State:
        kv = {row["k"]: row["v"] for row in await tx.fetch_all("kv.all")}
        rows = await tx.fetch_all("note.all")
        return State(kv, [(row["who"], row["k"], row["text"]) for row in rows])

    return await store.read(unit)


def check_examples(
    database: str,
    check: Callable[[PostgresStore, dict[str, int], list[Program]], Any],
    count: int,
    *,
    prepared: bool = True,
) -> None:
    """Run a check on generated units, all of them on one store.

    With one connection, so that no two transactions are open at once: what READ COMMITTED lets
    such see of each other is the server's, and not what is looked at here.
    """

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        queries = Queries.load([SQL], "postgres")
        config = StoreConfig(url=database, pool_size=1, prepared_statements=prepared)
        async with await PostgresStore.open(config, queries=queries) as store:
            await store.migrate([Chain("serial", SQL)])

            @settings(
                max_examples=count,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
            )
            @given(start=starts, units=programs)
            def examples(start: dict[str, int], units: list[Program]) -> None:
                work = asyncio.run_coroutine_threadsafe(check(store, start, units), loop)
                work.result(60)

            await asyncio.to_thread(examples)

    asyncio.run(whole())


async def check_batch(store: PostgresStore, start: dict[str, int], units: list[Program]) -> None:
    before = await reset(store, start)
    outcomes = await asyncio.gather(*(run(store, unit, who) for who, unit in enumerate(units)))
    after = await look(store)
    order = explain(before, units, list(outcomes), after)
    assert order is not None, (before, units, outcomes, after)


async def check_model(store: PostgresStore, start: dict[str, int], units: list[Program]) -> None:
    state = await reset(store, start)
    for who, unit in enumerate(units):
        state, expected = apply(state, unit, who)

        async def alone(tx: Tx, unit: Program = unit, who: int = who) -> list[Any]:
            return await run_program(tx, unit, who)

        try:
            got: Outcome = await store.run_alone(alone)
        except (Conflict, PermanentError, Changed) as error:
            got = type(error).__name__
        assert agree_on_error(unit, expected, got), (unit, state, expected, got)
    there = await look(store)
    assert there.kv == state.kv
    assert sorted(map(str, there.notes)) == sorted(map(str, state.notes))


def test_outcomes_are_those_of_some_serial_order_when_units_run_at_once(database: str) -> None:
    check_examples(database, check_batch, 300)


def test_outcomes_are_those_of_some_serial_order_when_two_statements_are_merged_already(
    database: str,
) -> None:
    check_examples(database, check_batch, 300, prepared=False)


def test_model_agrees_with_the_server_when_units_run_one_by_one(database: str) -> None:
    check_examples(database, check_model, 100)
