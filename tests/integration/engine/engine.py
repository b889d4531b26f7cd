"""One worker's engine in this process, as wiring builds it; `python -m` runs it as a process."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvloop
from tests.integration.engine.parts import context_of, opened
from tests.integration.redis.stores import PREFIX, url_of

from cordata.app import App
from cordata.broker import Broker
from cordata.broker.factory import Passwords, is_store, make_redis_broker
from cordata.config.sections import BrokerConfig, EngineConfig
from cordata.context import Event, EventContext
from cordata.context_factory import groups_of, make_queue
from cordata.errors import PermanentError
from cordata.process import Process, ProcessLease, this_process
from cordata.services.consumer import ConsumerService
from cordata.services.idle_exit import IdleExitService
from cordata.services.process_lease import ProcessLeaseService
from cordata.store import Store, Tx

QUICK = EngineConfig(retry_first_s=0.05, retry_max_s=0.2)


@dataclass(slots=True)
class Engine:
    """The services of one worker."""

    process: Process
    broker: Broker
    consumer: ConsumerService
    process_lease: ProcessLeaseService
    idle_exit: IdleExitService


def build(
    store: Store,
    state: Path,
    app: App,
    config: EngineConfig = QUICK,
) -> Engine:
    """The engine of one worker."""
    process = this_process("worker-test")
    lease = ProcessLease(store, process, lease_s=config.process_lease_s)
    broker_config = BrokerConfig(url=url_of(state), prefix=PREFIX)
    queue = make_queue(store, app.handlers, config, owner=process.id)
    broker: Broker = queue
    prepare = None
    if not is_store(broker_config):
        redis = broker = make_redis_broker(
            broker_config, store, queue, process, passwords=Passwords()
        )
        streamed = {one.group: one.type for one in app.handlers if not one.key}
        prepare = partial(redis.prepare, streamed)
    consumer = ConsumerService(
        context_of(store),
        broker,
        app.handlers,
        config,
        owner=process.id,
    )
    process_lease = ProcessLeaseService(
        store,
        broker,
        lease,
        groups_of(broker_config, app.handlers),
        config,
        held=consumer.held_ids,
        prepare=prepare,
    )
    idle_exit = IdleExitService(store, app.handlers, consumer)
    return Engine(process, broker, consumer, process_lease, idle_exit)


@asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[None]:
    """Run the engine while inside; its ordered stop at the end."""
    stop, left = asyncio.Event(), asyncio.Event()
    try:
        async with asyncio.TaskGroup() as membership:
            membership.create_task(engine.process_lease.run(left))
            await engine.process_lease.ready.wait()
            async with asyncio.TaskGroup() as group:
                group.create_task(engine.consumer.run(stop))
                yield
                stop.set()
            left.set()
    finally:
        engine.broker.close()


async def be_slow(event: Event) -> None:
    """For the `slow_s` of the payload; only in the process `slow_in`, if it names one."""
    slow_in = event.payload.get("slow_in", os.getpid())
    await asyncio.sleep(event.payload.get("slow_s", 0.0) if slow_in == os.getpid() else 0.0)


app = App("t")


@app.on("thing.done", retries=3, concurrency=4)
async def record(event: Event, ctx: EventContext) -> None:
    """Insert one line per event; the payload says what goes wrong first."""
    if event.payload.get("hang") == os.getpid():
        await asyncio.sleep(3600)
    await be_slow(event)
    if event.payload.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)

    async def unit(tx: Tx) -> None:
        await tx.execute("add_effect", event_id=event.id, owner=str(os.getpid()), at=tx.now_us)

    await ctx.run(unit)
    if event.payload.get("die") and event.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@app.on("thing.keyed", retries=3, concurrency=4, key=True)
async def record_in_order(event: Event, ctx: EventContext) -> None:
    """Insert one line per event; says so when another one of its key is being handled."""
    assert event.key is not None
    with (Path(sys.argv[1]) / "deliveries").open("a") as file:
        file.write(f"{event.id}\n")
    lock = os.open(Path(sys.argv[1]) / f"key-{event.key}", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await be_slow(event)
        if event.payload.get("fail") and event.attempt <= event.payload["fail"]:
            raise PermanentError("told to") if event.payload.get("dead") else ValueError("told to")
        if event.payload.get("die") and event.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if event.payload.get("no_effect"):
            return

        async def unit(tx: Tx) -> None:
            await tx.execute("add_effect", event_id=event.id, owner=str(os.getpid()), at=tx.now_us)

        await ctx.run(unit)
        await asyncio.sleep(event.payload.get("slow_end_s", 0.0))
    except BlockingIOError:
        (Path(sys.argv[1]) / "two-at-once").write_text(event.key)
        raise
    finally:
        os.close(lock)


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
