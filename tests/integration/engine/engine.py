"""One worker's engine in this process, as wiring builds it; `python -m` runs it as a process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from tests.integration.engine.parts import context_of, opened, runtime_of

from cordata.app import App
from cordata.broker import Owner, Owners, StoreBroker
from cordata.config.sections import EngineConfig
from cordata.context import EventContext
from cordata.core.event import Event
from cordata.services.drain import DrainService
from cordata.services.reclaim import ReclaimService
from cordata.services.relay import RelayService
from cordata.services.subscription import SubscriptionService
from cordata.store import Store, Tx

QUICK = EngineConfig(retry_min_s=0.05, retry_max_s=0.2)


@dataclass(slots=True)
class Engine:
    """The services of one worker."""

    owner: Owner
    broker: StoreBroker
    relay: RelayService
    subscriptions: SubscriptionService
    reclaim: ReclaimService
    drain: DrainService


def build(
    store: Store, state: Path, app: App, config: EngineConfig = QUICK, *, hurried: bool = False
) -> Engine:
    """The engine of one worker."""
    runtime = runtime_of(state)
    owner = Owner.register(runtime, name="worker-test")
    broker = StoreBroker(store, claim_timeout_s=config.claim_timeout_s)
    subscriptions = SubscriptionService(
        context_of(store), broker, owner, app.subscriptions, config, hurried=hurried
    )
    return Engine(
        owner=owner,
        broker=broker,
        relay=RelayService(store, broker, app.subscriptions, config),
        subscriptions=subscriptions,
        reclaim=ReclaimService(store, broker, owner, Owners(runtime), app.subscriptions, config),
        drain=DrainService(store, broker, app.subscriptions, subscriptions),
    )


@asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[None]:
    """Run the engine while inside; its ordered stop at the end."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for service in (engine.relay, engine.subscriptions, engine.reclaim):
            group.create_task(service.run(stop))
        await engine.relay.ready.wait()
        try:
            yield
        finally:
            stop.set()
    engine.owner.close()


app = App("t")


@app.on("thing.done", retries=3, concurrency=4)
async def record(event: Event, ctx: EventContext) -> None:
    """Insert one line per event; the payload says what goes wrong first."""
    if event.payload.get("hang") and event.attempt == 1:
        await asyncio.sleep(3600)
    if event.payload.get("slow_s"):
        await asyncio.sleep(event.payload["slow_s"])
    if event.payload.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)

    async def unit(tx: Tx) -> None:
        await tx.execute("add_effect", event_id=event.id, owner=str(os.getpid()), at=tx.now_us)

    await ctx.run(unit)
    if event.payload.get("die") and event.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


async def main(state: Path) -> None:
    """A worker process: says `up` on stdout, ends at SIGTERM."""
    async with opened(state, migrate=False) as store:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        async with running(build(store, state, app)):
            print("up", flush=True)
            await stopped.wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
