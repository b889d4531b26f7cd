"""A group gets what was published while it was registered, whoever is left to see to it."""

from __future__ import annotations

from pathlib import Path

from tests.integration.engine.parts import opened

from cordata.broker.group import Group, catch_up, register


async def test_group_is_fresh_until_some_process_has_caught_up(state: Path) -> None:
    group = Group("late", "thing.done")
    async with opened(state) as store:
        await register(store, [group])  # by a process that dies before it catches up
        registered = await register(store, [group])
        assert registered.fresh == ["late"]
        await catch_up(store, registered)
        assert (await register(store, [group])).fresh == []


async def test_group_is_fresh_again_when_it_comes_back_to_the_store(state: Path) -> None:
    """Not when it moves to Redis: it lacks nothing, and its whole history would be read."""
    group = Group("late", "thing.done")
    async with opened(state) as store:
        await catch_up(store, await register(store, [group]))
        group = group._replace(broker="redis")
        assert (await register(store, [group])).fresh == []
        for _ in range(2):
            registered = await register(store, [group._replace(broker="store")])
            assert registered.fresh == ["late"]
