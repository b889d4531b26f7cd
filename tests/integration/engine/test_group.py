"""A group gets what was published while it was registered, whoever is left to see to it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.engine.parts import opened, publish, rows, until
from tests.integration.engine.stores import use

from cordata.broker import group as broker_group
from cordata.broker.group import RELAY, Group, catch_up, register
from cordata.store import Store, Unit


async def lacking(store: Store, group: Group) -> bool:
    """Register the group; whether it may lack events."""
    return bool(await register(store, [group]))


@pytest.mark.parametrize("before", [None, Group("late", "thing.begun")])
async def test_group_lacks_events_until_some_process_has_caught_up(
    state: Path, before: Group | None
) -> None:
    group = Group("late", "thing.done")
    async with opened(state) as store:
        if before is not None:
            await catch_up(store, await register(store, [before]))
        assert await lacking(store, group)  # the process dies before it catches up
        registered = await register(store, [group])
        assert list(registered) == ["late"]
        await catch_up(store, registered)
        assert not await lacking(store, group)


async def test_group_lacks_events_when_it_comes_back_to_the_store(state: Path) -> None:
    """Not when it moves to Redis: it lacks nothing, and its whole history would be read."""
    group = Group("late", "thing.done")
    async with opened(state) as store:
        await catch_up(store, await register(store, [group]))
        group = group._replace(broker="redis")
        assert not await lacking(store, group)
        for _ in range(2):
            assert await lacking(store, group._replace(broker="store"))


async def test_group_that_comes_back_gets_its_events_in_many_small_units(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unit for a long history would take longer than a statement may."""
    monkeypatch.setattr(broker_group, "_PAGE", 2, raising=False)
    group = Group("late", "thing.done", broker="redis")
    async with opened(state) as store:
        await catch_up(store, await register(store, [Group(RELAY, "*"), group]))
        ids = await publish(store, 7)
        registered = await register(store, [group._replace(keyed=True, broker="store")])
        counts = list[object]()
        run = store.run

        async def noted(unit: Unit[Any], *, batch: bool = False) -> Any:
            counts.append(found := await run(unit, batch=batch))
            return found

        monkeypatch.setattr(store, "run", noted)
        assert await catch_up(store, registered) == 7
        assert [count for count in counts if isinstance(count, int)] == [2, 2, 2, 1]
        got = [row for row in await rows(store, "messages") if row["group"] == "late"]
        assert sorted(row["event_id"] for row in got) == sorted(ids)
        assert not await register(store, [group._replace(keyed=True, broker="store")])


async def test_group_still_lacks_events_when_it_was_changed_before_a_process_caught_up(
    state: Path,
) -> None:
    group = Group("late", "thing.done")
    async with opened(state) as store:
        registered = await register(store, [group])
        assert await lacking(store, group._replace(type="thing.begun"))
        assert await lacking(store, group)  # as it was at first
        await catch_up(store, registered)
        assert await lacking(store, group)


async def test_group_gets_no_events_from_before_its_type_was_changed_when_a_process_is_late(
    state: Path,
) -> None:
    group = Group("late", "thing.done")
    async with opened(state) as store:
        late = await register(store, [group])
        await catch_up(store, await register(store, [group]))  # another process
        await store.run(lambda tx: tx.publish("thing.begun", {}))
        await register(store, [group._replace(type="thing.begun")])
        assert await catch_up(store, late) == 0


@pytest.mark.parametrize("before", [None, Group("late", "thing.begun")])
async def test_event_of_an_older_transaction_reaches_a_group_when_the_primary_registered_it(
    tmp_path: Path, runtime_database: str, before: Group | None
) -> None:
    """The primary does not wait for the transaction; the next worker does."""
    use(tmp_path, runtime_database)
    group = Group("late", "thing.done")
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        if before is not None:
            await catch_up(store, await register(store, [before]))
        async with other.transaction() as tx:
            await tx.publish("unrelated", {})
            await tx.fetch_all("messages")  # its snapshot is that of its first write
            await register(store, [group])
            event_id = await tx.publish("thing.done", {})
        assert not await rows(store, "messages")
        await catch_up(store, await register(store, [group]))
        assert [row["event_id"] for row in await rows(store, "messages")] == [event_id]


async def test_event_of_a_batch_that_commits_late_reaches_a_group_that_is_registered_meanwhile(
    tmp_path: Path, runtime_database: str
) -> None:
    """It is READ COMMITTED: while it commits, it has no snapshot that shows that it is older."""
    use(tmp_path, runtime_database)
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await catch_up(store, await register(store, [Group("late", "thing.begun")]))
        with psycopg.connect(runtime_database) as batch:
            batch.execute("SELECT pg_current_xact_id()")
            async with asyncio.TaskGroup() as tasks, other.transaction() as holder:
                await holder.execute("queue.mark_present", groups='["late"]', now_us=0)
                group = [Group("late", "thing.done")]
                registering = tasks.create_task(register(store, group))
                await until(lambda: is_one_waiting(runtime_database))
                # What queue.publish does: no group has this type yet.
                batch.execute(
                    "INSERT INTO event (id, type, payload, due_at, created_at)"
                    " VALUES ('1', 'thing.done', '{}', 0, 0)"
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await catch_up(store, registering.result())
        await catch_up(store, await register(store, group))
        assert [row["event_id"] for row in await rows(store, "messages")] == ["1"]


def is_one_waiting(database: str) -> bool:
    """Whether a transaction waits for a lock."""
    with psycopg.connect(database) as connection:
        return bool(connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall())
