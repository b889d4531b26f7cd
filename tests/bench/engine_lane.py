"""Live events beside a long backfill: commit to handler start, with an empty queue and a full one.

python -m tests.bench.engine_lane [--store sqlite|postgres] [--backfill 50000]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import uvloop
from tests.integration.engine.children import child
from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import opened, rows
from tests.integration.engine.stores import STORES, use
from tests.servers.postgres import PostgresServer

from cordata import clock
from cordata.app import App
from cordata.broker import StoreBroker
from cordata.config.sections import EngineConfig
from cordata.context import EventContext
from cordata.core.event import Event
from cordata.store import Store, Tx

LIVE = 40
#: Between two live events.
PAUSE_S = 0.06
#: Name, concurrency, seconds that a handler of the backfill takes.
CASES = (("no-op", 16, 0.0), ("slow", 16, 0.2), ("slow, concurrency 1", 1, 0.2))


def make_app(concurrency: int) -> App:
    """One group for both lanes: they share its places."""
    app = App("bench")

    @app.on("bench.lane", concurrency=concurrency)
    async def handle(event: Event, ctx: EventContext) -> None:
        if "slow_s" not in event.payload:
            print(event.id, clock.now_us(), flush=True)
        elif event.payload["slow_s"]:
            await asyncio.sleep(event.payload["slow_s"])

    return app


async def work(state: Path, concurrency: int) -> None:
    """A worker process, until SIGTERM."""
    async with opened(state, migrate=False) as store:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        async with running(build(store, state, make_app(concurrency), EngineConfig())):
            print("up", flush=True)
            await stopped.wait()


async def fill(store: Store, count: int, slow_s: float) -> None:
    """So many events of the backfill, 500 per unit."""

    async def unit(tx: Tx) -> None:
        for _ in range(500):
            await tx.publish("bench.lane", {"slow_s": slow_s}, lane="backfill")

    for _ in range(0, count, 500):
        await store.run(unit)


async def measure(state: Path, concurrency: int, backfill: int, slow_s: float) -> list[float]:
    """Milliseconds from the commit of a live event to the start of its handler."""
    async with opened(state) as store:
        broker = StoreBroker(store, claim_timeout_s=60.0)
        await broker.register({"bench.handle": "bench.lane"})
        await fill(store, backfill, slow_s)
        async with child("tests.bench.engine_lane", "--worker", state, concurrency) as worker:
            assert await worker.line() == "up"
            await asyncio.sleep(0.2)
            times = []
            for _ in range(LIVE):
                event_id = await store.run(lambda tx: tx.publish("bench.lane", {}))
                committed = clock.now_us()
                name, at = (await worker.line(timeout_s=60.0)).split()
                assert name == event_id
                times.append((int(at) - committed) / 1000)
                await asyncio.sleep(PAUSE_S)
            left = len(await rows(store, "messages")) if backfill else 1
            await worker.stop(timeout_s=60.0)
            states = {row["state"]: row["count"] for row in await rows(store, "outbox_states")}
            assert left or states.get("pending"), "the backfill ended before the measurement"
    return sorted(times)


async def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", choices=STORES, default="sqlite")
    parser.add_argument("--backfill", type=int, default=50_000)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("BENCH_DIR"))
        name = stack.enter_context(folder)
        server = stack.enter_context(PostgresServer()) if options.store == "postgres" else None
        for number, (what, concurrency, slow_s) in enumerate(CASES):
            for backfill in (0, options.backfill):
                state = Path(name) / f"{number}-{backfill}"
                state.mkdir()
                if server is not None:
                    use(state, stack.enter_context(server.database()))
                times = await measure(state, concurrency, backfill, slow_s)
                p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
                print(f"{what}, {backfill:,} of backfill: live p50 {p50:.1f} ms, p99 {p99:.1f} ms")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        uvloop.run(work(Path(sys.argv[2]), int(sys.argv[3])))
    else:
        uvloop.run(main())
