"""The event store on the embedded store: appends, subscriptions by 1 and 4 workers, idle cost.

python -m tests.bench.event_store [--events 20000]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import uvloop
from tests.bench.held import go, held
from tests.bench.servers import cpu_s
from tests.integration.eventstore.ledger import opened, running

from cordata import clock
from cordata.app import App
from cordata.config.sections import EngineConfig
from cordata.eventstore import EventLog, EventStore, NewEvent, StoredEvent
from cordata.eventstore.inspection import Subscriptions
from cordata.store import Store, Tx
from cordata.subscription import SubscriptionContext

STREAMS = 500
IDLE_S = 10.0
EVENT = NewEvent(type="deposited", payload={"amount": 1, "text": "x" * 200})

app = App("bench")


@app.subscribe("account", name="totals")
async def totals(event: StoredEvent, ctx: SubscriptionContext) -> None:
    """One row changed, in a unit with the position."""

    async def unit(tx: Tx) -> None:
        await tx.write("ledger.add", stream=event.stream, amount=1)

    await ctx.run(unit)


#: With `no-op` as its argument a worker runs this one instead.
passive = App("bench")


@passive.subscribe("account", name="passive")
async def look(event: StoredEvent, ctx: SubscriptionContext) -> None:
    """Nothing; the position is stored twice a second."""


async def append(store: Store, events: int, *, per_unit: int, flight: int, exact: bool) -> float:
    """Events per second, `flight` units at once, each to a stream of its own."""
    left = events // per_unit
    begun = clock.monotonic()

    async def one(number: int) -> None:
        nonlocal left
        version = 0
        while left > 0:
            left -= 1
            expected = version if exact else None

            async def unit(tx: Tx, expected: int | None = expected) -> int:
                new = [EVENT] * per_unit
                return await EventStore(tx).append(
                    f"flight-{begun}-{number}", new, expected=expected
                )

            version = await store.run(unit)

    async with asyncio.TaskGroup() as group:
        for number in range(flight):
            group.create_task(one(number))
    return events / (clock.monotonic() - begun)


async def fill(store: Store, events: int) -> None:
    """Events spread over STREAMS streams, 500 per unit."""

    async def unit(tx: Tx) -> None:
        for number in range(STREAMS):
            await EventStore(tx).append(f"account-{number}", [EVENT], expected=None)

    for _ in range(events // STREAMS):
        await store.run(unit)


async def read(store: Store, events: int) -> float:
    """Events per second, by category in pages of 500."""
    log, after, count, begun = EventLog(store), 0, 0, clock.monotonic()
    while True:
        page = await log.read("account", after=after, limit=500)
        count += len(page.events)
        after = page.next
        if not page.more:
            assert count == events
            return count / (clock.monotonic() - begun)


def worker(state: Path, kind: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """A worker that waits for its start."""
    return held("tests.bench.event_store", "--worker", state, kind)


async def work(state: Path, kind: str) -> None:
    """Be that worker."""
    async with opened(state, migrate=False) as store:
        print("up", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        async with running(store, state, passive if kind == "no-op" else app, EngineConfig()):
            await asyncio.Event().wait()


async def project(state: Path, events: int, workers: int, kind: str) -> float:
    """Events per second, pre-loaded, from the start to the last position."""
    name = "passive" if kind == "no-op" else "totals"
    async with opened(state) as store:
        await fill(store, events)
        with ExitStack() as stack:
            processes = [stack.enter_context(worker(state, kind)) for _ in range(workers)]
            begun = clock.monotonic()
            go(processes)
            while True:
                status = await Subscriptions(store).status(name)
                if status is not None and not status.behind:
                    return events / (clock.monotonic() - begun)
                await asyncio.sleep(0.05)


async def idle(state: Path) -> float:
    """Share of one core that four idle workers use."""
    async with opened(state) as store:
        await fill(store, STREAMS)
        with ExitStack() as stack:
            processes = [stack.enter_context(worker(state, "commit")) for _ in range(4)]
            go(processes)
            await asyncio.sleep(3.0)
            before_s = sum(cpu_s(process.pid) for process in processes)
            await asyncio.sleep(IDLE_S)
            return (sum(cpu_s(process.pid) for process in processes) - before_s) / IDLE_S


async def main(events: int) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("BENCH_DIR")) as name:
        states = iter(range(100))

        def fresh() -> Path:
            state = Path(name) / str(next(states))
            state.mkdir()
            return state

        async with opened(fresh()) as store:
            runs = ((1, 1, True), (1, 64, True), (1, 64, False), (10, 64, True))
            for per_unit, flight, exact in runs:
                rate = await append(store, events, per_unit=per_unit, flight=flight, exact=exact)
                expected = "expected version" if exact else "any version"
                print(
                    f"append, {flight} units at once of {per_unit} events, {expected}:"
                    f" {rate:,.0f} events/s"
                )
        async with opened(fresh()) as store:
            await fill(store, events)
            print(f"read a category, pages of 500: {await read(store, events):,.0f} events/s")
        for kind, times in (("commit", 1), ("no-op", 5)):
            for workers in (1, 4):
                rate = await project(fresh(), events * times, workers, kind)
                print(f"project, {workers} workers, {kind}: {rate:,.0f} events/s")
        print(f"idle, 4 workers: {await idle(fresh()) * 100:.2f} % of one core")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000, help="pre-loaded ones")
    parser.add_argument("--worker", nargs=2, metavar=("STATE", "KIND"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        uvloop.run(work(Path(given.worker[0]), given.worker[1]))
    else:
        uvloop.run(main(given.events))
