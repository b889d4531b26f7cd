"""A process of its own that uses the store: `python -m …child MODE STATE NAME`."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path

import uvloop
from tests.integration.store.parts import deposit, opened, refused
from tests.waiting import until_async

from cordata.errors import StoreUnavailable
from cordata.store import RuntimeStore, Store


def say(line: str) -> None:
    """One line to the parent; in one write, so that a kill leaves no half acknowledgement."""
    sys.stdout.buffer.write(f"{line}\n".encode())
    sys.stdout.buffer.flush()


async def write(store: Store, name: str) -> None:
    """Eight at a time, for ever; each is said after it was acknowledged."""
    numbers = itertools.count()

    async def one() -> None:
        for number in numbers:
            note = f"{name}-{number:06d}"
            if number % 7 == 3:
                async with store.transaction() as tx:
                    await tx.execute("account.add_once", id="a", balance=0)
                    await tx.execute("entry.add", account_id="a", amount=1, note=note)
            else:
                await deposit(store, note)
            say(note)

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(one())


async def hold(store: Store, name: str) -> None:
    """Take the write lock and keep it."""
    async with store.transaction() as tx:
        await tx.execute("account.add", id=name, balance=0)
        say("holding")
        await asyncio.sleep(60)


async def watch(store: Store, name: str) -> None:
    """Say each wake-up of a topic."""
    say("ready")
    while True:
        if await store.wait(name, 60.0):
            say("woken")


async def lead(store: RuntimeStore, name: str, state: Path) -> None:
    """Take the lease as soon as it is free, and say the term."""
    lease = store.lease(holder=name)
    say("ready")
    while (fence := await lease.try_acquire()) is None:  # noqa: ASYNC110 - as the primary does
        await asyncio.sleep(0.05)
    say(str(fence.term))
    await asyncio.sleep(60)


async def commit_in_stall(store: Store, name: str) -> None:
    """Commit while the sync of the log stalls (slow_sync.c); say what came of those that wait."""
    fault = Path(os.environ["SYNC_FAULT"])
    (fault / "stall").touch()
    committing = asyncio.create_task(refused(store, f"{name}-committing"))

    await until_async((fault / "stalled").exists)
    error = await refused(store, f"{name}-behind")
    say(f"behind it: {type(error).__name__}: {error} ({error.hint if error else ''})")
    say(f"committing: {committing.done()}")
    (fault / "stall").unlink()
    say(f"committed: {await committing!r}")


async def commit_in_vain(store: Store, name: str) -> None:
    """Commit while each sync of the log fails; say what is told, and wait to be killed."""
    await deposit(store, f"{name}-before")  # the sync of a new log's header is another one
    (Path(os.environ["SYNC_FAULT"]) / "fail").touch()
    error: StoreUnavailable | None = None
    if name == "unit":
        error = await refused(store, name)
    else:
        try:
            async with store.transaction() as tx:
                await tx.execute("entry.add", account_id="a", amount=1, note=name)
        except StoreUnavailable as caught:
            error = caught
    say(f"{type(error).__name__}: {error} ({error.hint if error else ''})")
    await asyncio.sleep(60)


async def write_in_vain(store: Store, name: str) -> None:
    """Write more than the cache holds while each sync of the log fails, so that the statement
    fails; say what is told, and wait to be killed.
    """
    (Path(os.environ["SYNC_FAULT"]) / "fail").touch()
    error = await refused(store, name + "." * 8_000_000)
    say(f"{type(error).__name__}: {error}")
    await asyncio.sleep(60)


async def commit_and_lose(store: Store, name: str, state: Path) -> None:
    """Two units share a COMMIT whose sync fails, and no other can begin, since the file is gone;
    say what both are told, and wait to be killed.
    """
    await deposit(store, "before-too")  # the sync of a new log's header is another one
    fault = Path(os.environ["SYNC_FAULT"])
    (fault / "stall").touch()
    both = [asyncio.create_task(refused(store, f"{name}{number}")) for number in range(2)]

    async def stalled() -> bool:
        return (fault / "stalled").exists()

    await until_async(stalled)
    (state / "cordata.db").rename(state / "elsewhere")
    (fault / "fail").touch()
    (fault / "stall").unlink()
    errors = await asyncio.gather(*both)
    say(" ".join(type(error).__name__ for error in errors))
    await asyncio.sleep(60)


async def main(mode: str, state: Path, name: str) -> None:
    """Do one thing until killed."""
    settings: dict[str, float] = {"transaction_timeout_s": 60.0}
    if mode == "write":
        settings["wal_limit_bytes"] = 32_768  # it is killed in checkpoints, too
    if mode == "stall":
        settings["write_timeout_s"] = 0.3
    async with opened(state, migrate=False, **settings) as store:
        if mode == "write":
            await write(store, name)
        elif mode == "hold":
            await hold(store, name)
        elif mode == "watch":
            await watch(store, name)
        elif mode == "lead":
            await lead(store, name, state)
        elif mode == "stall":
            await commit_in_stall(store, name)
        elif mode == "fail":
            await commit_in_vain(store, name)
        elif mode == "spill":
            await write_in_vain(store, name)
        elif mode == "lose":
            await commit_and_lose(store, name, state)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
