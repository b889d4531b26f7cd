"""The outbox of a broker that is not the store: claimed, marked, refused, taken back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.engine.parts import opened, publish, rows
from tests.queries import queries_of
from tests.raw import raw

from cordata import clock
from cordata.broker import claim as outbox
from cordata.broker.claim import Entry, Refusal
from cordata.store import Row, Store, Tx

TIMEOUT_US = 60_000_000


async def claim(store: Store, owner: str = "me", *, limit: int = 100) -> list[Entry]:
    async def unit(tx: Tx) -> list[Entry]:
        return await outbox.claim(tx, owner=owner, limit=limit, claim_timeout_us=TIMEOUT_US)

    return await store.run(unit)


async def mark(store: Store, entries: list[Entry]) -> int:
    return await store.run(lambda tx: outbox.mark_published(tx, [e.id for e in entries]))


async def take_back(store: Store, *dead: str) -> int:
    return await store.run(lambda tx: outbox.take_back(tx, dead))


async def states(store: Store) -> dict[str, int]:
    return {row["state"]: row["count"] for row in await rows(store, "outbox_states")}


def ids(entries: list[Entry]) -> list[str]:
    return [entry.event_id for entry in entries]


async def keyed(store: Store, type_: str = "thing.done") -> None:
    async def unit(tx: Tx) -> None:
        await raw(tx, "INSERT INTO consumer_group VALUES ('g', ?, 1, 0, 0)", (type_,))

    await store.run(unit)


async def test_entry_goes_to_one_relay_only_when_two_claim(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        published = await publish(store, 10)
        one, two = await claim(store, "one", limit=4), await claim(store, "two")
        assert ids(one) + ids(two) == published
        assert await claim(store, "three") == []
        assert await states(store) == {"processing": 10}
        assert await mark(store, one) == 4
        assert await states(store) == {"processing": 6, "published": 4}


async def test_claim_takes_live_before_backfill_and_urgent_before_old(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        filling = await publish(store, 2, lane="backfill", priority=9)
        low = await publish(store, 2, priority=-1)
        normal = await publish(store, 2)
        high = await publish(store, 2, priority=5)
        await publish(store, 2, priority=7, delay_s=3600.0)
        assert ids(await claim(store, limit=5)) == high + normal + low[:1]
        assert ids(await claim(store)) == low[1:] + filling
        assert await claim(store) == []


async def test_refused_entry_is_due_again_at_its_time_and_dead_after_the_last(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        later, again, other = await publish(store, 3)

        async def refuse(tx: Tx) -> list[str]:
            refusals = [
                Refusal(entries[0].id, tx.now_us + 3_600_000_000, "OOM"),
                Refusal(entries[1].id, tx.now_us, "OOM"),
            ]
            return await outbox.put_back(tx, refusals, owner="me", max_attempts=3)

        entries = await claim(store)
        assert await store.run(refuse) == []
        await mark(store, entries[2:])
        assert await states(store) == {"failed": 2, "published": 1}
        (entry,) = await claim(store)
        assert (entry.event_id, entry.attempts) == (again, 1)
        await store.run(lambda tx: outbox.give_back(tx, [entry.id], owner="me"))
        assert (await claim(store))[0].attempts == 1  # it was not tried
        for dead in ([], [again]):
            entries[1] = entry
            found = await store.run(
                lambda tx: outbox.put_back(
                    tx, [Refusal(entry.id, tx.now_us, "OOM")], owner="me", max_attempts=3
                )
            )
            assert found == dead
            await claim(store)
        assert await states(store) == {"failed": 1, "published": 1, "dead": 1}
        assert later and other


async def test_claims_are_taken_back_when_they_expire_or_their_owner_is_dead(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        published = await publish(store, 6)
        await claim(store, "dead", limit=2)
        await claim(store, "slow", limit=2)
        await claim(store, "alive", limit=2)
        assert await take_back(store) == 0
        assert (await store.read(outbox.owners)).keys() == {"alive", "dead", "slow"}
        assert await take_back(store, "dead") == 2

        async def expire(tx: Tx) -> None:
            await tx.execute("expire_claims", owner="slow")

        await store.run(expire)
        assert await take_back(store) == 2
        assert sorted(ids(await claim(store))) == sorted(published[:4])


async def test_relay_that_was_taken_for_dead_changes_nothing_but_marks(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await publish(store, 2)
        slow = await claim(store, "slow")
        await take_back(store, "slow")
        await claim(store, "fast")
        refusals = [Refusal(entry.id, 0, "x") for entry in slow]
        await store.run(lambda tx: outbox.put_back(tx, refusals, owner="slow", max_attempts=1))
        await store.run(lambda tx: outbox.give_back(tx, [e.id for e in slow], owner="slow"))
        assert await states(store) == {"processing": 2}
        assert await mark(store, slow) == 2  # it did hand them over
        assert await mark(store, slow) == 0


async def test_earlier_entries_of_a_key_come_along_when_a_later_one_is_urgent(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        await keyed(store)
        first = await publish(store, 3, key="k", lane="backfill", priority=-5)
        waits = await publish(store, 1, key="k", delay_s=3600.0)
        others = await publish(store, 3, key="other")
        (urgent,) = await publish(store, 1, key="k", priority=9)
        got = await claim(store, limit=2)
        # As many as one batch: the urgent one waits, or it would overtake the third.
        assert sorted(ids(got)) == sorted(first[:2])
        assert sorted(ids(await claim(store, limit=3))) == sorted([first[2], urgent, *others[:2]])
        assert ids(await claim(store)) == others[2:] and waits


async def test_claim_ignores_keys_when_no_group_wants_their_order(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await keyed(store, "another.type")
        await publish(store, 3, key="k")
        (urgent,) = await publish(store, 1, key="k", priority=9)
        assert ids(await claim(store, limit=1)) == [urgent]


STEPS = ("claim", "send", "mark", "refuse", "back")


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_every_entry_reaches_the_broker_wherever_relays_die(
    tmp_path: Path, data: st.DataObject
) -> None:
    """Each relay does some steps, then it dies; the last one lives."""
    uvloop.run(_relays_that_die(tmp_path, data))


async def _relays_that_die(tmp_path: Path, data: st.DataObject) -> None:
    reached = Counter[str]()
    state = tmp_path / str(len(list(tmp_path.iterdir())))
    state.mkdir()
    async with opened(state) as store:
        published = await publish(store, 7)
        for relay in range(data.draw(st.integers(0, 4))):
            await _some_steps(store, f"relay-{relay}", data, reached)
            await take_back(store, f"relay-{relay}")
        while entries := await claim(store, "last"):
            reached.update(ids(entries))
            await mark(store, entries)
        assert reached.keys() == set(published)
        assert await states(store) == {"published": 7}


async def _some_steps(store: Store, owner: str, data: st.DataObject, reached: Counter[str]) -> None:
    entries: list[Entry] = []
    sent: list[Entry] = []
    for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=6)):
        if step == "claim":
            entries += await claim(store, owner, limit=data.draw(st.integers(1, 5)))
        elif step == "send" and entries:
            sent.append(entries.pop(data.draw(st.integers(0, len(entries) - 1))))
            reached[sent[-1].event_id] += 1
        elif step == "mark" and sent:
            await mark(store, sent)
            sent = []
        elif step in ("refuse", "back") and entries:
            await _return(store, owner, step, entries.pop())


async def _return(store: Store, owner: str, step: str, entry: Entry) -> None:
    async def unit(tx: Tx) -> None:
        if step == "refuse":
            refusal = Refusal(entry.id, tx.now_us, "x")
            await outbox.put_back(tx, [refusal], owner=owner, max_attempts=99)
        else:
            await outbox.give_back(tx, [entry.id], owner=owner)

    await store.run(unit)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("outbox.claim", "outbox_pending ((lane,priority)<(?,?))"),
        ("outbox.levels", "outbox_pending ((lane,priority)<(?,?))"),
        ("outbox.due", "outbox_pending (lane=? AND priority=? AND next_at<?)"),
        ("outbox.claim", "outbox_pending (lane=? AND priority=? AND next_at<?)"),
        ("outbox.ahead", "outbox_key (type=? AND key=? AND id<?)"),
        ("outbox.owners", "outbox_processing"),
        ("outbox.reclaim", "outbox_processing"),
        ("outbox.mark_published", "INTEGER PRIMARY KEY (rowid=?)"),
        ("outbox.again", "INTEGER PRIMARY KEY (rowid=?)"),
        ("outbox.give_back", "INTEGER PRIMARY KEY (rowid=?)"),
    ],
)
async def test_statement_uses_its_index(tmp_path: Path, name: str, index: str) -> None:
    plan = await _plan(tmp_path, name)
    assert any(index in step for step in plan), plan
    assert not any(step == "SCAN outbox" or "SCAN o " in step for step in plan), plan


async def _plan(state: Path, name: str) -> list[Any]:
    query = queries_of("sqlite").by_name[name]

    async def unit(tx: Tx) -> list[Row]:
        bound = query.bind(dict.fromkeys(query.params))
        return await raw(tx, f"EXPLAIN QUERY PLAN {query.sql}", bound)

    async with opened(state) as store:
        return [row["detail"] for row in await store.read(unit)]


async def test_claim_costs_the_same_whatever_waits_published_or_is_scheduled(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:

        async def fill(tx: Tx) -> None:
            await raw(tx, FILL)

        async def shortest_claim_s() -> float:
            times = []
            for _ in range(10):
                await publish(store, 5)
                begun = clock.monotonic()
                entries = await claim(store, limit=5)
                times.append(clock.monotonic() - begun)
                assert len(entries) == 5
            return min(times)

        alone_s = await shortest_claim_s()
        await store.run(fill)
        beside_s = await shortest_claim_s()
        print(f"claim beside 300,000 other entries: {beside_s / alone_s:.1f} of one without")
        assert beside_s < 10 * alone_s + 0.002


FILL = """
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)
    INSERT INTO outbox (event_id, type, lane, priority, payload, state, next_at, created_at)
    SELECT 'e' || i, 't', iif(i % 3 = 0, 'backfill', 'live'), 0, '{}',
           iif(i % 3 = 1, 'published', 'pending'), iif(i % 3 = 2, 1 << 60, 0), 0
    FROM n
"""
