"""A group gets what was published while it was registered, whoever is left to see to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.engine.parts import opened, rows
from tests.integration.engine.stores import use

from cordata.broker.group import Group, catch_up, register
from cordata.store import Store


async def lacking(store: Store, group: Group) -> bool:
    """Register the group; whether it may lack events."""
    return bool((await register(store, [group])).lacking)


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
        assert list(registered.lacking) == ["late"]
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
