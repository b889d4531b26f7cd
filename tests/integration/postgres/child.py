"""A process of its own with a store, for tests that kill it: says one line per thing it did."""

from __future__ import annotations

import asyncio
import sys
import time

from tests.integration.postgres.parts import deposit, opened

from cordata.errors import LeaseLost, StoreUnavailable


def say(*words: object) -> None:
    """A line for the test, with the time that all processes of a host share."""
    print(*words, f"{time.monotonic():.3f}", flush=True)


async def hold(url: str, name: str) -> None:
    """Take the lease when it is free; write with its term until it is over."""
    async with opened(url) as store:
        lease = store.lease(holder=name)
        say("up", name)
        while (fence := await lease.try_acquire()) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        say("held", fence.term)
        number = 0
        try:
            while lease.held:
                number += 1
                note = f"{fence.term:06d} {name} {number}"
                await store.run(
                    lambda tx, note=note: tx.execute(  # type: ignore[misc]
                        "entry.add", account_id="a", amount=fence.term, note=note
                    ),
                    fence=fence,
                )
                await asyncio.sleep(0.01)
        except (LeaseLost, StoreUnavailable) as error:
            say("refused", type(error).__name__)
        while lease.held:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        say("over", number)


async def migrate(url: str, name: str) -> None:
    """Migrate."""
    async with opened(url, migrate=False) as store:
        from tests.contract.store.stores import CHAINS

        say("up", name)
        sys.stdin.readline()
        say("applied", len(await store.migrate(CHAINS)))


async def put(url: str, name: str) -> None:
    """Deposit for ever; say each that returned."""
    async with opened(url) as store:
        say("up", name)
        number = 0
        while True:
            number += 1
            await deposit(store, f"{name}{number}")
            say("done", f"{name}{number}")


if __name__ == "__main__":
    mode, url, name = sys.argv[1:4]
    asyncio.run({"hold": hold, "migrate": migrate, "put": put}[mode](url, name))
