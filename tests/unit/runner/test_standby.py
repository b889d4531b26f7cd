"""What only the primary runs waits for its lease: for as long as another has it."""

from __future__ import annotations

import asyncio

from cordata.broker.redis.reconciler import Reconciler
from cordata.services.leadership import Leadership
from cordata.services.reconciler import ReconcilerService
from cordata.store import Store


def nobody(store: Store) -> Reconciler:
    """A standby needs none."""
    raise AssertionError


async def test_keeper_has_no_beat_to_miss_while_another_leads() -> None:
    keeper = ReconcilerService(Leadership(), nobody)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(keeper.run(stop))
        for _ in range(3):
            await asyncio.sleep(0)
        assert keeper.heartbeat is None
        stop.set()
