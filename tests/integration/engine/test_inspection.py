"""The operator's hands in the engine: a real store and worker, more rows than one unit takes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import opened, publish, rows, until
from tests.queries import queries_of
from tests.raw import raw

from cordata import clock
from cordata.app import App
from cordata.broker.inspection import BadPosition, DeadLetters, Filter, Outbox
from cordata.config.sections import EngineConfig
from cordata.context import Event, EventContext
from cordata.errors import PermanentError
from cordata.store import Row, Store, Tx

ALL = Filter()


class Shop:
    """An App whose two groups fail until they are mended."""

    def __init__(self) -> None:
        self.app = App("t")
        self.broken = True
        self.error: Exception = PermanentError("broken")
        self.handled = Counter[str]()

        @self.app.on("thing.done")
        async def one(event: Event, ctx: EventContext) -> None:
            if self.broken:
                raise self.error
            await ctx.run(self._unit)
            self.handled[event.id] += 1

        @self.app.on("thing.done")
        async def two(event: Event, ctx: EventContext) -> None:
            pass

    async def _unit(self, tx: Tx) -> None:
        await tx.fetch_all("handled_count")


async def with_letters(
    store: Store, state: Path, count: int, *, rounds: int = 1
) -> tuple[Shop, list[str]]:
    """So many events that one of two groups gave up; in `rounds` at different times."""
    shop, ids = Shop(), list[str]()
    async with running(build(store, state, shop.app)):
        for _ in range(rounds):
            ids += await publish(store, count // rounds)
            await until(partial(_dead, store, len(ids)))
        await until(lambda: _nothing_left(store))
    return shop, ids


async def _dead(store: Store, count: int) -> bool:
    states = [row["state"] for row in await rows(store, "messages")]
    return states.count("dead") == count


async def _nothing_left(store: Store) -> bool:
    (left,) = await rows(store, "messages_left")
    return bool(left["count"] == 0)


async def test_replay_goes_to_the_group_that_failed_when_many_are_given_back(
    state: Path,
) -> None:
    async with opened(state) as store:
        shop, ids = await with_letters(store, state, 450, rounds=9)
        seen, told = (await rows(store, "handled_count"))[0]["count"], list[tuple[int, float]]()
        assert seen == 450  # of the other group
        shop.broken = False
        async with running(build(store, state, shop.app)):
            assert await DeadLetters(store).replay(ALL, progress=_into(told)) == 450
            assert [count for count, _ in told] == [200, 400, 450]
            assert 0.0 < told[0][1] < told[1][1] < told[2][1] == 1.0
            await until(lambda: _nothing_left(store))
        assert shop.handled == Counter(ids)
        assert await rows(store, "messages") == []


async def test_replay_keeps_history_and_starts_attempts_again(state: Path) -> None:
    async with opened(state) as store:
        _, (event_id,) = await with_letters(store, state, 1)
        letters = DeadLetters(store)
        assert await letters.replay(Filter(event_id=event_id, group="t.two")) == 0
        assert await letters.replay(Filter(event_id=event_id, group="t.one")) == 1
        (message,) = await rows(store, "messages")
        assert (message["state"], message["attempts"]) == ("ready", 0)
        assert [one["attempt"] for one in json.loads(message["history"])] == [1]
        assert await letters.find(event_id) == []


async def test_letter_that_dies_again_is_not_replayed_twice(state: Path) -> None:
    async with opened(state) as store:
        shop, _ = await with_letters(store, state, 201)
        async with running(build(store, state, shop.app)):
            assert await DeadLetters(store).replay(ALL) == 201
            await until(lambda: _dead(store, 201))
        attempts = [json.loads(row["history"]) for row in await rows(store, "messages")]
        assert [len(one) for one in attempts] == [2] * 201


async def test_two_operators_share_the_letters_when_both_replay(state: Path) -> None:
    async with opened(state) as store, opened(state, migrate=False) as other:
        await with_letters(store, state, 300)
        async with asyncio.TaskGroup() as group:
            both = [
                group.create_task(act(ALL))
                for act in (DeadLetters(store).replay, DeadLetters(other).replay)
            ]
        assert sum(task.result() for task in both) == 300


async def test_pages_of_letters_hold_each_once_when_walked(state: Path) -> None:
    async with opened(state) as store:
        _, ids = await with_letters(store, state, 25)
        letters, found, after = DeadLetters(store), list[str](), None
        while True:
            page = await letters.page(ALL, limit=10, after=after)
            found += [letter.event_id for letter in page.items]
            if (after := page.next) is None:
                break
        assert sorted(found) == sorted(ids)
        deaths = [letter.dead_at for letter in (await letters.page(ALL, limit=25)).items]
        assert deaths == sorted(deaths, reverse=True)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Filter(group="t.one"), 3),
        (Filter(group="t.two"), 0),
        (Filter(type="thing.done"), 3),
        (Filter(type="other"), 0),
        (Filter(before=0), 0),
        (Filter(before=2**62), 3),
        (Filter(since=2**62), 0),
        (Filter(since=1, before=2**62), 3),
        (Filter(error="PermanentError"), 3),
        (Filter(error="Permanent"), 0),
    ],
)
async def test_letters_are_narrowed_down(state: Path, wanted: Filter, count: int) -> None:
    async with opened(state) as store:
        _, ids = await with_letters(store, state, 3)
        letters = DeadLetters(store)
        assert len((await letters.page(wanted, limit=10)).items) == count
        one = replace(wanted, event_id=ids[0])
        assert len((await letters.page(one, limit=10)).items) == min(count, 1)
        assert await letters.drop(wanted) == count


async def test_damaged_history_is_no_reason_to_show_nothing(state: Path) -> None:
    async with opened(state) as store:
        _, (event_id,) = await with_letters(store, state, 1)

        async def damage(tx: Tx) -> None:
            await raw(tx, "UPDATE message SET history = '[{'")
            await tx.execute("age_marks", at=1)  # counts as a write

        await store.run(damage)
        (letter,) = (await DeadLetters(store).page(ALL, limit=10)).items
        assert (letter.event_id, letter.error) == (event_id, None)
        assert (await DeadLetters(store).find(event_id))[0].history == []


async def test_retry_makes_a_delayed_event_due_and_wakes_the_workers(state: Path) -> None:
    shop = Shop()
    shop.broken = False
    async with opened(state) as store, running(build(store, state, shop.app)):
        (first,) = await publish(store, 1, delay_s=3600.0)
        await publish(store, 2, delay_s=3600.0)
        box = Outbox(store)
        waiting = Filter(state="pending")
        assert len((await box.page(waiting, limit=10)).items) == 3
        assert await box.retry(Filter(event_id=first)) == 2  # of each group
        await until(lambda: shop.handled[first] == 1)
        await until(lambda: _left(store, 4))
        assert await box.retry(Filter(event_id=first)) == 0  # handled
        assert await box.retry(Filter(type="thing.done")) == 4
        await until(lambda: _nothing_left(store))


async def test_retry_makes_a_failed_message_due_again(state: Path) -> None:
    shop, config = Shop(), EngineConfig(retry_first_s=3600.0, retry_max_s=3600.0)
    shop.error = ValueError("not yet")
    async with opened(state) as store, running(build(store, state, shop.app, config)):
        (event_id,) = await publish(store, 1)
        await until(lambda: _left(store, 1))
        await until(lambda: _states_are(store, ["scheduled"]))
        (entry,) = (await Outbox(store).page(Filter(state="pending"), limit=9)).items
        assert entry.due_at is not None and entry.due_at > store.now_us()
        shop.broken = False
        assert await Outbox(store).retry(Filter(event_id=event_id)) == 1
        await until(lambda: _nothing_left(store))
    assert shop.handled == Counter([event_id])


async def _states_are(store: Store, states: list[str]) -> bool:
    return [row["state"] for row in await rows(store, "messages")] == states


async def _left(store: Store, count: int) -> bool:
    (left,) = await rows(store, "messages_left")
    return bool(left["count"] == count)


async def test_purge_keeps_what_waits_and_what_a_group_has_in_hand(state: Path) -> None:
    async with opened(state) as store:
        shop, ids = await with_letters(store, state, 2)
        async with running(build(store, state, shop.app)):
            await publish(store, 450, type_="thing.other")
            await until(lambda: _nothing_left(store))
            (later,) = await publish(store, 1, delay_s=3600.0)
        box, told = Outbox(store), list[tuple[int, float]]()
        now = Filter(before=clock.now_us())
        assert await box.purge(Filter(before=0)) == 0
        assert await box.purge(replace(now, type="thing.else")) == 0
        assert await box.purge(now, progress=_into(told)) == 450
        counts = [count for count, _ in told]
        assert told[-1][1] == 1.0
        assert max(b - a for a, b in zip([0, *counts], counts, strict=False)) <= 200
        left = (await box.page(ALL, limit=10)).items
        assert [entry.event_id for entry in left] == [later, *reversed(ids)]


async def test_entries_are_narrowed_down_however_long_the_table_is(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordata.broker.inspection.outbox._WINDOW", 7)
    async with opened(state) as store:
        rare = await publish(store, 2, type_="rare")
        await publish(store, 50)
        box = Outbox(store)
        page = await box.page(Filter(type="rare"), limit=10)
        assert [entry.event_id for entry in page.items] == rare[::-1]
        first = await box.page(Filter(type="rare"), limit=1)
        last = await box.page(Filter(type="rare"), limit=1, after=first.next)
        assert ([e.event_id for e in last.items], last.next) == ([rare[0]], None)
        assert (await box.page(Filter(before=0), limit=10)).items == []
        assert (await box.page(Filter(state="pending"), limit=10)).items == []
        found = await box.page(Filter(event_id=rare[0]), limit=10)
        assert [entry.event_id for entry in found.items] == [rare[0]]
        with pytest.raises(BadPosition):
            await box.page(ALL, limit=1, after="x")


async def test_whole_entry_tells_what_became_of_it_in_each_group(state: Path) -> None:
    async with opened(state) as store:
        _, (event_id,) = await with_letters(store, state, 1)
        entry = await Outbox(store).get(event_id)
        assert entry is not None and json.loads(entry.payload) == {"n": 0}
        assert list(entry.groups) == [
            {"group": "t.one", "state": "dead", "attempts": 1},
            {"group": "t.two", "state": "handled", "attempts": 1},
        ]
        assert await Outbox(store).get("none") is None


async def test_empty_store_has_nothing(state: Path) -> None:
    async with opened(state) as store:
        assert (await Outbox(store).page(ALL, limit=1)).items == []
        assert (await DeadLetters(store).page(ALL, limit=1)).items == []
        assert await Outbox(store).retry(ALL) == 0
        assert await Outbox(store).purge(Filter(before=clock.now_us())) == 0
        assert await DeadLetters(store).drop(ALL) == 0


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("inspection.events", "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("inspection.below", "INTEGER PRIMARY KEY"),
        ("inspection.above", "INTEGER PRIMARY KEY"),
        ("inspection.first_death", "message_dead"),
        ("inspection.replay", "consumer_group_type"),
        ("inspection.forget", "PRIMARY KEY"),
        ("inspection.letters", "message_dead"),
        ("inspection.letters_of", "event_id=?"),
        ("inspection.groups", "event_id=?"),
        ("inspection.give_back", "sqlite_autoindex_message_1 (event_id=?"),
        ("inspection.drop", "sqlite_autoindex_message_1 (event_id=?"),
    ],
)
async def test_statement_uses_its_index(tmp_path: Path, name: str, index: str) -> None:
    query = queries_of("sqlite").by_name[name]

    async with opened(tmp_path) as store:

        async def unit(tx: Tx) -> list[Row]:
            explained = f"EXPLAIN QUERY PLAN {query.sql}"
            return await raw(tx, explained, query.values(dict.fromkeys(query.params)))

        plan: list[Any] = [row["detail"] for row in await store.read(unit)]
        assert any(index in step for step in plan), plan


def _into(told: list[tuple[int, float]]) -> Callable[[int, float], None]:
    return lambda count, share: told.append((count, share))
