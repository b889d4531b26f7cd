"""The lease and the fence."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.store.conftest import Opener
from tests.contract.store.stores import balance

from cordata.errors import LeaseLost
from cordata.store import Tx


async def write(tx: Tx) -> None:
    await tx.execute("account.add_once", id="a", balance=1)


async def test_second_holder_waits_when_the_lease_is_held(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        first = one.lease(holder="one")
        second = two.lease(holder="two")
        fence = await first.try_acquire()
        assert fence is not None and first.held
        assert await second.try_acquire() is None and not second.held
        assert await first.try_acquire() == fence
        await first.check()
        await first.release()
        assert not first.held
        taken = await second.try_acquire()
        assert taken is not None and taken.term == fence.term + 1
        await second.release()
        await second.release()


async def test_stale_primary_cannot_write_when_another_took_over(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        first = one.lease(holder="one")
        stale = await first.try_acquire()
        assert stale is not None
        await one.run(write, fence=stale)
        await opened.end_lock(first)
        assert not first.held
        second = two.lease(holder="two")
        fresh = await second.try_acquire()
        assert fresh is not None and fresh.term > stale.term
        with pytest.raises(LeaseLost):
            await one.run(write, fence=stale)
        with pytest.raises(LeaseLost):
            async with one.transaction(fence=stale) as tx:
                await tx.execute("account.change", id="a", amount=5)
        with pytest.raises(LeaseLost):
            await first.check()
        await two.run(write, fence=fresh)
        assert await balance(one, "a") == 1
        await second.release()
        await first.release()


async def test_stale_write_fails_alone_when_its_batch_has_others(opened: Opener) -> None:
    async with opened() as store:
        lease = store.lease(holder="one")
        stale = await lease.try_acquire()
        assert stale is not None
        await lease.release()
        fresh = await lease.try_acquire()
        results = await asyncio.gather(
            store.run(write, fence=stale),
            store.run(write),
            store.run(write, fence=fresh),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [LeaseLost, type(None), type(None)]
        await lease.release()
