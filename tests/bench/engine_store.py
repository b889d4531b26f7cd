"""The engine on a store alone: consume with 1 and 4 workers, or writing; latency, idle cost.

python -m tests.bench.engine_store [--store sqlite|postgres] [--messages 20000] [--alone] [part ...]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

import uvloop
from tests.bench import engine_peers
from tests.bench.held import go, held
from tests.bench.servers import POSTGRES, ROOT, cpu_s, environment
from tests.integration.engine.parts import opened, registered
from tests.integration.engine.stores import STORES, url_of, use
from tests.servers.postgres import PostgresServer
from tests.servers.process import children
from tests.servers.reaper import watched

from cordata import clock
from cordata.store import Store, Tx

#: Handles what waits in PostgreSQL. What one of our workers is to be as much as, on each store.
PEER, TO_REACH = "procrastinate", {"sqlite": 15, "postgres": 25}
IDLE_S = 20.0
#: A transaction is in the server's counters after this long at most.
_COUNTED_S = 15.0


def worker(state: Path, number: int = 0) -> AbstractContextManager[subprocess.Popen[str]]:
    """A worker that waits for its start."""
    return held("tests.bench.engine_worker", state, number)


async def publish(store: Store, count: int, type_: str) -> list[str]:
    """Events of a typical size, 200 per unit."""

    async def unit(tx: Tx) -> list[str]:
        payload = {"n": 1, "text": "x" * 400}
        return [await tx.publish(type_, payload) for _ in range(min(count, 200))]

    return [event_id for _ in range(0, count, 200) for event_id in await store.run(unit)]


async def left(store: Store, group: str) -> bool:
    """Whether anything is not handled yet: two looks at indexes, which slow nobody down.

    Not `read_backlog`: it counts what waits, and 50 counts a second would be measured as well.
    """

    async def unit(tx: Tx) -> bool:
        ready = await tx.fetch_one("metrics.ready", group=group, limit=1)
        assert ready is not None
        return bool(ready["count"] or await tx.fetch_all("queue.owners"))

    return await store.read(unit)


async def consume(state: Path, workers: int, messages: int, type_: str = "bench.noop") -> float:
    """Messages per second of one type, pre-loaded; from the start to the last ack."""
    async with opened(state) as store:
        await registered(store, {type_: type_})
        await publish(store, messages, type_)
        with ExitStack() as stack:
            processes = [stack.enter_context(worker(state, n)) for n in range(workers)]
            begun = clock.monotonic()
            go(processes)
            while await left(store, type_):  # noqa: ASYNC110 - other processes empty it
                await asyncio.sleep(0.02)
            return messages / (clock.monotonic() - begun)


async def latency(state: Path, workers: int) -> list[float]:
    """Milliseconds from commit to the start of the handler, on an idle system."""
    async with opened(state) as store:
        committed: dict[str, int] = {}
        begun: dict[str, int] = {}
        with ExitStack() as stack:
            processes = [stack.enter_context(worker(state, n)) for n in range(workers)]
            go(processes)
            await asyncio.sleep(2.0)
            for _ in range(200):
                (event_id,) = await publish(store, 1, "bench.latency")
                committed[event_id] = clock.now_us()
                await asyncio.sleep(0.05)
            while await left(store, "bench.note"):  # noqa: ASYNC110 - other processes empty it
                await asyncio.sleep(0.02)
            for process in processes:
                process.send_signal(signal.SIGTERM)
                assert process.stdout is not None
                for line in process.stdout:
                    event_id, at = line.split()
                    begun[event_id] = int(at)
    return sorted((begun[one] - at) / 1000 for one, at in committed.items())


def idle(
    state: Path, *counters: Callable[[], int], broker: str = "store:", settle_s: float = _COUNTED_S
) -> tuple[float, ...]:
    """Of a primary and four workers: share of one core, then what each counter counts per second.

    Both after `settle_s` seconds.
    """
    for name in ("state", "run"):
        (state / name).mkdir()
    config = state / "cordata.toml"
    config.write_text(
        '[app]\nimport = "tests.bench.engine_worker:app"\n[worker]\nservices = ["engine"]\n'
        '[paths]\nstate = "state"\nruntime = "run"\ncredentials = "credentials"\n'
        f'[store]\nurl = "{url_of(state)}"\n[broker]\nurl = "{broker}"\n'
    )
    options = ["--workers", "4", "--listen", "127.0.0.1:0", "--config", str(config)]
    with watched(
        subprocess.Popen(
            [sys.executable, "-m", "cordata", "server", *options],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    ) as all_:
        try:
            time.sleep(settle_s)
            pids = [all_.pid, *children(all_.pid)]
            assert len(pids) == 6, "one of them has ended"
            busy_s, before = sum(map(cpu_s, pids)), [count() for count in counters]
            time.sleep(IDLE_S)
            used_s = sum(map(cpu_s, pids)) - busy_s
            counted = [count() - first for count, first in zip(counters, before, strict=True)]
        finally:
            all_.terminate()
    return used_s / IDLE_S, *(number / IDLE_S for number in counted)


def transactions(server: PostgresServer | None) -> int:
    """Transactions so far, those of this question left out."""
    if server is None:
        return 0
    count = "sum(xact_commit + xact_rollback)"
    (row,) = server.execute(f"SELECT {count} FROM pg_stat_database WHERE datname LIKE 'test_%'")
    return int(row[0] or 0)


async def measure(
    parts: set[str], fresh: Callable[[], Path], messages: int, *, to_reach: int
) -> None:
    """Print the figures. `to_reach`: how often as much as the peer; 0: it is not run."""
    rates: dict[int, float] = {}
    for workers in (1, 4):
        if "consume" in parts:
            rates[workers] = await consume(fresh(), workers, messages)
            print(f"consume, {workers} workers: {rates[workers]:,.0f} messages/s", flush=True)
    if rates and to_reach:
        theirs = (await asyncio.to_thread(engine_peers.run, (PEER,), (1,)))[PEER][1]
        often = f"{rates[1] / theirs:.0f}x" if theirs else "(it took too long)"
        print(f"  1 worker as much as {PEER}: {often} (to reach: {to_reach}x)", flush=True)
    for kind in ("ordinary", "batched"):
        if "write" in parts:
            rate = await consume(fresh(), 1, messages // 4, f"bench.{kind}")
            print(f"consume, {kind} handlers that write: {rate:,.0f} messages/s", flush=True)
    for workers in (1, 4):
        if "latency" in parts:
            times = await latency(fresh(), workers)
            p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
            told = f"commit to handler start, idle, {workers} workers"
            print(f"{told}: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


async def main() -> None:
    """Make a store per figure and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=STORES, default="sqlite")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--alone", action="store_true", help=f"without {PEER}")
    parser.add_argument("part", nargs="*", help="consume, write, latency, idle; default: all")
    args = parser.parse_args()
    parts = set(args.part or ("consume", "write", "latency", "idle"))
    with ExitStack() as stack:
        where = tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("BENCH_DIR"))
        name = stack.enter_context(where)
        server = None
        if args.store == "postgres":
            server = stack.enter_context(PostgresServer(durable=True, settings=POSTGRES))
        states = iter(range(100))

        def fresh() -> Path:
            state = Path(name) / str(next(states))
            state.mkdir()
            if server is not None:
                use(state, stack.enter_context(server.database()))
            return state

        to_reach = 0 if args.alone else TO_REACH[args.store]
        await measure(parts, fresh, args.messages, to_reach=to_reach)
        if "idle" in parts:
            settle_s = 5.0 if server is None else _COUNTED_S
            count = partial(transactions, server)
            share, asked = await asyncio.to_thread(idle, fresh(), count, settle_s=settle_s)
            told = f"{share * 100:.2f} % of one core, {asked:.1f} transactions/s"
            print(f"idle, primary and 4 workers: {told}")


if __name__ == "__main__":
    uvloop.run(main())
