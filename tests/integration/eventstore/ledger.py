"""A ledger built from the events of accounts, and the worker that builds it.

`python -m tests.integration.eventstore.ledger STATE [CLAIM_TIMEOUT_S]` is such a worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from tests.integration.engine import parts
from tests.integration.engine.parts import context_of, runtime_of

from cordata.app import App
from cordata.config.sections import EngineConfig
from cordata.context_factory import make_queue
from cordata.eventstore import EventStore, NewEvent, StoredEvent
from cordata.process import ProcessLease, this_process
from cordata.services.process_lease import ProcessLeaseService
from cordata.services.subscription import SubscriptionService
from cordata.store import Chain, Store, Tx
from cordata.subscription import SubscriptionContext

LEDGER = Chain("ledger", "tests.integration.eventstore.sql")
CHAINS = (LEDGER,)
QUICK = EngineConfig(retry_first_s=0.02, retry_max_s=0.1, poll_s=2.0)

opened, rows = partial(parts.opened, chain=LEDGER), parts.rows


async def deposit(store: Store, stream: str, *amounts: int, **more: Any) -> int:
    """Append one event for each amount; `more` says what goes wrong with them."""
    new = [NewEvent(type="deposited", payload={"amount": one, **more}) for one in amounts]

    async def unit(tx: Tx) -> int:
        return await EventStore(tx).append(stream, new, expected=None)

    return await store.run(unit)


async def deposit_many(store: Store, streams: int, each: int, **more: Any) -> int:
    """Events 1 to `each` in so many streams, interleaved. Returns how many."""
    for amount in range(1, each + 1):

        async def unit(tx: Tx, amount: int = amount) -> None:
            event = NewEvent(type="deposited", payload={"amount": amount, **more})
            for number in range(streams):
                await EventStore(tx).append(f"account-{number}", [event], expected=amount - 1)

        await store.run(unit)
    return streams * each


@asynccontextmanager
async def running(
    store: Store,
    state: Path,
    app: App,
    config: EngineConfig = QUICK,
    *,
    retry_at_once: bool = False,
) -> AsyncIterator[SubscriptionService]:
    """Run the subscriptions of an App while inside; the ordered stop at the end."""
    lease = ProcessLease(store, this_process("worker-test"), lease_s=config.process_lease_s)
    queue = make_queue(store, [], config, owner=lease.process.id)
    process_lease = ProcessLeaseService(store, queue, lease, [], config, held=set)
    service = SubscriptionService(
        context_of(store),
        lease,
        runtime_of(state),
        app.subscriptions,
        config,
        retry_at_once=retry_at_once,
    )
    stop, left = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as membership:
        membership.create_task(process_lease.run(left))
        async with asyncio.TaskGroup() as group:
            group.create_task(service.run(stop))
            try:
                yield service
            finally:
                stop.set()
        left.set()


app = App("t")


@app.subscribe("account", partitions=8, retries=3)
async def ledger(event: StoredEvent, ctx: SubscriptionContext) -> None:
    """Add up; the payload says what goes wrong first, `slow_in` in which process it is slow."""
    if event.payload.get("hang"):
        await asyncio.sleep(3600)
    if event.payload.get("slow_in", os.getpid()) == os.getpid():
        await asyncio.sleep(event.payload.get("slow_s", 0.0))
    if event.payload.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if event.payload.get("kill_once") and event.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if event.payload.get("stop"):
        # With a transaction open it would have the file to itself.
        while ctx.store.waiting:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.001)
        print("stopping", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)

    async def unit(tx: Tx) -> None:
        await tx.write("ledger.add", stream=event.stream, amount=event.payload["amount"])
        await tx.write(
            "ledger.note",
            position=event.position,
            stream=event.stream,
            version=event.version,
            owner=str(os.getpid()),
            at=tx.now_us,
        )

    await ctx.run(unit)


@ledger.reset
async def clear(tx: Tx) -> None:
    """As if nothing had ever been added up."""
    await tx.execute("ledger.clear")


async def main(state: Path, process_lease_s: float) -> None:
    """A worker process: says `up` on stdout, ends at SIGTERM."""
    config = EngineConfig(
        retry_first_s=0.02, retry_max_s=0.1, poll_s=2.0, process_lease_s=process_lease_s
    )
    async with opened(state, migrate=False) as store:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        async with running(store, state, app, config):
            print("up", flush=True)
            await stopped.wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 60.0))
