"""Who works on the same rows at once passes them over, or waits and then sees the truth."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.integration.dialect.database import Database, connect, run
from tests.integration.engine.parts import opened, publish, registered, rows
from tests.integration.engine.stores import use

from cordata.broker import ClaimLimit, Queue
from cordata.broker.inspection import Filter, Outbox, delete_done


@pytest.fixture
def two(database: str) -> Iterator[tuple[Database, Database]]:
    """Two sessions; ten messages are ready."""
    with ExitStack() as stack:
        one = stack.enter_context(connect(database))
        other = stack.enter_context(connect(database, fresh=False))
        other.execute("SET lock_timeout = '1ms'")
        one.execute(
            "INSERT INTO event (id, type, payload, due_at, created_at)"
            " SELECT n, 'a', '{}', n, n FROM generate_series(1, 10) AS n"
        )
        one.execute(
            'INSERT INTO message (event_id, "group", position, priority, state, next_at)'
            " SELECT id, 'g', position, 0, 'ready', 0 FROM event"
        )
        yield one, other


def claim(connection: Database, number: int) -> list[int]:
    """The positions of the four that were claimed."""
    limits = json.dumps([{"group": "g", "least": 0, "most": 9, "count": 4}])
    groups = {"limits": limits, "groups": '["g"]', "keyed": "[]"}
    mine = {"owner": "me", "claim": number, "now_us": 0}
    found, _ = run(connection, "queue.claim_all", **groups, **mine)
    return sorted(int(row["event_id"]) for row in found)


def test_process_takes_the_next_messages_when_another_has_the_first(
    two: tuple[Database, Database],
) -> None:
    one, other = two
    with one.transaction(), other.transaction():
        assert (claim(one, 1), claim(other, 2)) == ([1, 2, 3, 4], [5, 6, 7, 8])


async def test_event_that_is_replayed_at_this_moment_is_not_deleted(
    database: str, tmp_path: Path
) -> None:
    use(tmp_path, database)
    async with opened(tmp_path) as store, opened(tmp_path, migrate=False) as other:
        ids = await publish(store, 2)
        await registered(store, {"late": "thing.done"})
        async with store.transaction() as tx:
            await tx.fetch_all("retention.lock", event_ids=json.dumps(ids[:1]), lock=True)
            deleting = asyncio.create_task(other.run(lambda tx: delete_done(tx, ids)))
            await asyncio.sleep(0.2)
            assert not deleting.done()
            replayed = {"event_ids": json.dumps(ids[:1]), "group": "late"}
            assert await tx.execute("inspection.replay", **replayed, now_us=tx.now_us) == 1
        assert await deleting == 1
        (message,) = await rows(store, "messages")
        assert message["event_id"] == ids[0]


async def test_event_that_is_deleted_at_this_moment_is_not_replayed(
    database: str, tmp_path: Path
) -> None:
    use(tmp_path, database)
    async with opened(tmp_path) as store, opened(tmp_path, migrate=False) as other:
        ids = await publish(store, 3)
        await registered(store, {"late": "thing.done"})
        async with store.transaction() as tx:
            assert await delete_done(tx, ids[:2]) == 2
            replaying = asyncio.create_task(Outbox(other).replay(Filter(), group="late"))
            await asyncio.sleep(0.2)
            assert not replaying.done()  # it waits to learn whether they are gone
        assert (await replaying).messages == 1


async def test_nobody_claims_what_another_settles_at_this_moment(
    database: str, tmp_path: Path
) -> None:
    use(tmp_path, database)
    async with opened(tmp_path) as store, opened(tmp_path, migrate=False) as second:
        await registered(store, {"g": "thing.done"})
        await publish(store, 1)
        mine = Queue(store, owner="me", retries={"g": 5})
        other = Queue(second, owner="other", retries={"g": 5})
        wants = {"g": ClaimLimit(9, 9)}
        (message,) = (await mine.settle_and_claim([], wants)).messages
        async with store.transaction() as tx:
            params = {"event_id": message.event_id, "group": "g", "claim": message.claim}
            await tx.execute("queue.delete", **params)
            assert not (await other.settle_and_claim([], wants)).messages
        assert await rows(store, "messages") == []


async def test_claim_waits_for_no_other_when_no_message_with_a_key_is_ready(
    database: str, tmp_path: Path
) -> None:
    use(tmp_path, database)
    async with opened(tmp_path) as store, opened(tmp_path, migrate=False) as second:
        await registered(store, {"g": "thing.done", "k": "other.done"})
        await publish(store, 1)
        queue = Queue(second, owner="me", retries={"g": 5, "k": 5}, keyed=["k"])
        wants = {"g": ClaimLimit(9, 9), "k": ClaimLimit(9, 9)}
        async with store.transaction() as tx:
            await tx.fetch_one("queue.lock_group", group="k")
            claimed = await queue.settle_and_claim([], wants)
        assert [message.group for message in claimed.messages] == ["g"]
