"""What only the primary runs waits for its lease: for as long as another has it."""

from __future__ import annotations

import asyncio

from cordata.broker.redis.keeper import Keeper
from cordata.services.keeper import KeeperService
from cordata.services.primary import Leadership
from cordata.store import Store


def nobody(store: Store) -> Keeper:
    """A standby needs none."""
    raise AssertionError


async def test_keeper_has_no_beat_to_miss_while_another_leads() -> None:
    keeper = KeeperService(Leadership(), nobody)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(keeper.run(stop))
        for _ in range(3):
            await asyncio.sleep(0)
        assert keeper.heartbeat is None
        stop.set()
