"""Who was answered together comes back together, and is waited for, but nobody else is kept."""

from __future__ import annotations

import asyncio

from tests.integration.postgres.parts import opened, until

from cordata.clock import monotonic
from cordata.store import Store, Tx

CLIENTS, TIMES = 16, 25


async def offer(store: Store, name: str) -> None:
    async def unit(tx: Tx) -> None:
        await tx.execute("account.add_once", id=name, balance=0)

    await store.run(unit)


async def client(store: Store, name: str, began: asyncio.Event | None = None) -> None:
    """Sends the next request as soon as it has an answer, which takes a moment."""
    if began is not None:
        await began.wait()
    for number in range(TIMES):
        await offer(store, f"{name}-{number}")
        for _ in range(5):
            await asyncio.sleep(0)


async def test_halves_that_would_wait_for_each_other_share_their_commits(database: str) -> None:
    async with opened(database) as store:
        await offer(store, "first")
        began, before = asyncio.Event(), store.stats().commits
        async with asyncio.TaskGroup() as clients:
            for number in range(CLIENTS):
                late = began if number % 2 else None
                clients.create_task(client(store, f"c{number}", late))
            await until(lambda: store.stats().commits > before)  # the first half is under way
            began.set()
        commits = store.stats().commits - before
    assert commits <= 1.6 * TIMES  # 2 * TIMES, were each half on its own


async def test_one_client_is_not_kept_waiting_after_many(database: str) -> None:
    async with opened(database) as store:
        await asyncio.gather(*(client(store, f"c{number}") for number in range(CLIENTS)))
        took: list[float] = []
        for number in range(20):
            begun = monotonic()
            await offer(store, f"later-{number}")
            took.append(monotonic() - begun)
        begun = monotonic()
        await asyncio.gather(offer(store, "a"), offer(store, "b"), offer(store, "c"))
        took.append(monotonic() - begun)
    assert sorted(took)[len(took) // 2] < 0.05
