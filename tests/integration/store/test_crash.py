"""What was acknowledged is there exactly once, whoever dies when."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.integration.store.parts import child, deposit, notes_on_disk, opened

from cordata.clock import monotonic
from cordata.errors import StoreUnavailable

SECONDS = 6.0
#: A busy machine starts few writers in that time: then it goes on until there were enough of both.
MOST_SECONDS = 60.0
KILLS, SAID = 8, 500


async def test_acknowledged_units_are_there_once_when_writers_are_killed(tmp_path: Path) -> None:
    """Four writers, one of them killed -9 every 0.1 to 0.4 s, while a fold-back goes on."""
    chance = random.Random(7)
    said: list[str] = []
    kills = 0
    async with opened(tmp_path, wal_limit_bytes=1 << 20) as store:

        def over() -> bool:
            lasted = monotonic() - begun
            return lasted > (SECONDS if kills >= KILLS and len(said) >= SAID else MOST_SECONDS)

        async def life(slot: int) -> None:
            nonlocal kills
            for birth in range(1000):
                if over():
                    return
                async with child("write", tmp_path, f"{slot}.{birth}") as one:
                    said.append(await one.line())
                    await asyncio.sleep(chance.uniform(0.2, 1.4))
                    said.extend(await one.kill())
                    kills += 1

        async def fold() -> None:
            while not over():
                await store.checkpoint()
                await asyncio.sleep(0.05)

        begun = monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(fold())
            for slot in range(4):
                group.create_task(life(slot))
        await deposit(store, "the end")
        assert store.stats().state == "ok"
    found = notes_on_disk(tmp_path)
    assert len(found) == len(set(found))
    assert kills >= KILLS and len(said) >= SAID
    missing = set(said) - set(found)
    assert not missing
    print(f"{kills} kills, {len(said)} acknowledged, {len(found)} stored")


async def test_writers_go_on_at_once_when_the_lock_holder_is_killed(tmp_path: Path) -> None:
    async with opened(tmp_path) as store, child("hold", tmp_path) as holder:
        assert await holder.line() == "holding"
        waiting = asyncio.ensure_future(deposit(store, "after"))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        holder.process.kill()
        await waiting
        rows = await store.read(lambda tx: tx.fetch_all("account.all"))
        assert [row["id"] for row in rows] == ["a"]


async def test_writes_are_refused_in_time_when_the_lock_holder_is_stopped(tmp_path: Path) -> None:
    async with opened(tmp_path, write_timeout_s=0.3) as store:
        await deposit(store, "before")
        async with child("hold", tmp_path, "h") as holder:
            assert await holder.line() == "holding"
            os.kill(holder.pid, signal.SIGSTOP)
            results = await asyncio.gather(
                *(deposit(store, f"x{n}") for n in range(5)), return_exceptions=True
            )
            assert all(isinstance(result, StoreUnavailable) for result in results)
            with pytest.raises(StoreUnavailable, match=r"0\.3 s"):
                async with store.transaction() as tx:
                    await tx.execute("account.add", id="b", balance=0)
            assert store.waiting == 0
            assert store.stats().state == "ok"
            assert len(await store.read(lambda tx: tx.fetch_all("entry.notes"))) == 1
            await holder.kill()
        await deposit(store, "now")
    assert notes_on_disk(tmp_path) == ["before", "now"]


async def test_standby_takes_over_when_the_primary_is_killed(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(opened(tmp_path))
        first = await stack.enter_async_context(child("lead", tmp_path, "one"))
        assert [await first.line(), await first.line()] == ["ready", "1"]
        second = await stack.enter_async_context(child("lead", tmp_path, "two"))
        assert await second.line() == "ready"
        first.process.kill()
        assert await second.line() == "2"
