"""Wake-ups within and between processes."""

from __future__ import annotations

import asyncio

from tests.contract.store.conftest import Opener

from cordata.store import Tx


async def test_wait_times_out_when_nothing_happens(opened: Opener) -> None:
    async with opened() as store:
        assert await store.wait("t", 0.02) is False


async def test_waiter_in_another_store_is_woken_when_a_topic_is_notified(
    opened: Opener,
) -> None:
    async with opened() as one, opened() as two:
        waiting = asyncio.ensure_future(two.wait("t", 60.0))
        other = asyncio.ensure_future(two.wait("other", 0.3))
        await asyncio.sleep(0.01)
        one.notify("t")
        assert await waiting is True
        assert await other is False


async def test_wake_up_is_kept_when_nobody_waits(opened: Opener) -> None:
    async with opened() as store:
        store.notify("t")
        store.notify("t")
        assert await store.wait("t", 60.0) is True
        assert await store.wait("t", 0.02) is False


async def test_every_waiter_is_woken_when_several_wait_for_one_topic(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        begun, counts = asyncio.Semaphore(0), [0, 0, 0]

        async def consume(number: int) -> None:
            for _ in range(10):
                begun.release()
                counts[number] += await two.wait("t", 60.0)

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(consume(number))
            for count in range(10):
                for _ in range(3):  # all of them wait, or are about to
                    await begun.acquire()
                assert counts == [count] * 3
                one.notify("t")
        assert counts == [10] * 3


async def test_last_wake_up_arrives_when_many_follow_each_other(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        seen = 0

        async def count(tx: Tx) -> int:
            return len(await tx.fetch_all("account.all"))

        async def watch() -> None:
            nonlocal seen
            while seen < 300:
                seen = await two.read(count)
                if seen < 300:
                    assert await two.wait("t", 60.0), f"lost the wake-up at {seen}"

        async def add(number: int) -> None:
            async def unit(tx: Tx) -> None:
                await tx.execute("account.add", id=str(number), balance=0)
                tx.notify("t")

            await one.run(unit)

        async with asyncio.TaskGroup() as group:
            group.create_task(watch())
            for number in range(300):
                await add(number)


async def test_wake_up_is_not_lost_when_the_woken_waiter_is_cancelled(opened: Opener) -> None:
    async with opened() as store:
        task = asyncio.ensure_future(store.wait("t", 60.0))
        await asyncio.sleep(0)
        store.notify("t")
        task.cancel()
        await asyncio.wait([task])
        assert await store.wait("t", 60.0) is True
