"""The engine on PostgreSQL and Redis, beside other task queues and a bare loop.

python -m tests.bench.engine_redis [--messages 40000] [--old 1000000] [part ...]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvloop
from tests.bench import engine_peers, relay_protean
from tests.bench.engine_store import IDLE_S, idle, latency, publish, transactions, worker
from tests.bench.held import go, held
from tests.bench.servers import cpu_s
from tests.integration.engine import stores
from tests.integration.engine.parts import opened
from tests.integration.redis.parts import RedisParts, keeping, reconciler_of, relay_once
from tests.integration.redis.stores import PREFIX, use
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

from cordata import clock
from cordata.store import Store

PARTS = ("consume", "relay", "latency", "idle")
#: The quick ones among those that wait in Redis; engine_peers has them all.
PEERS = ("taskiq", "dramatiq", "huey")
GROUP = TYPE = "bench.noop"
KEY = f"{PREFIX}:stream:{TYPE}"
_SETTINGS = {"shared_buffers": "256MB", "max_wal_size": "4GB"}

#: Copies of one handled event, each a little older than the next.
_OLD = """
WITH old AS (
    INSERT INTO event (id, type, priority, payload, headers, due_at, created_at)
    SELECT md5(n::text), type, priority, payload, headers, due_at - n, created_at - n
    FROM (SELECT * FROM event LIMIT 1) AS one, generate_series(1, {}) AS n RETURNING id)
INSERT INTO handled (event_id, "group", attempts, handled_at) SELECT id, 'bench.noop', 1, 1 FROM old
"""

Process = AbstractContextManager[subprocess.Popen[str]]


@dataclass(slots=True)
class Place:
    """The servers, and a state directory for each measurement."""

    postgres: PostgresServer
    redis: RedisServer
    directory: Path
    stack: ExitStack
    database: str = ""
    count: int = 0

    def fresh(self) -> Path:
        """An empty store and an empty Redis."""
        self.redis.empty()
        self.count += 1
        state = self.directory / str(self.count)
        state.mkdir()
        url = self.stack.enter_context(self.postgres.database())
        self.database = url.rpartition("/")[2].partition("?")[0]
        stores.use(state, url)
        use(state, self.redis.url)
        return state

    def sql(self, statement: str) -> None:
        """One statement on the store's database."""
        self.postgres.execute(statement, database=self.database)


def loop(place: Place, state: Path, number: int) -> Process:
    """A bare loop that waits for its start."""
    words = (place.redis.port, KEY, GROUP, f"loop-{number}")
    return held("tests.bench.engine_redis_loop", *words)


def ready_worker(state: Path, number: int) -> Process:
    """A worker that waits for its start."""
    return worker(state, number)


async def relay(place: Place, store: Store, messages: int, old: int = 0) -> float:
    """Events per second through one relay, with so many old ones beside them."""
    parts = RedisParts(store, place.redis.url, reconciler_of(store, place.redis.url))
    try:
        await parts.register({GROUP: TYPE})
        relay = parts.broker("me").relay
        if old:
            await publish(store, 1, TYPE)
            await relay_once(relay)
            await asyncio.to_thread(place.sql, _OLD.format(old))
        await publish(store, messages, TYPE)
        await asyncio.to_thread(place.sql, "VACUUM ANALYZE event, message, handled")
        begun = clock.monotonic()
        count = 0
        while relayed := await relay_once(relay):
            count += relayed
        assert count == messages
        return count / (clock.monotonic() - begun)
    finally:
        parts.close()


async def relay_only(place: Place, messages: int, old: int) -> float:
    """As `relay`, on servers without anything."""
    async with opened(place.fresh()) as store, keeping(store, place.redis.url):
        return await relay(place, store, messages, old)


async def consume(
    place: Place, messages: int, make: Callable[[Path, int], Process], count: int
) -> tuple[float, float]:
    """Messages per second that `count` processes handle and acknowledge, pre-loaded.

    Also the processor time of each, in microseconds: on a busy machine that tells more.
    """
    state = place.fresh()
    async with opened(state) as store:
        async with keeping(store, place.redis.url):
            await relay(place, store, messages)
        # Nothing was read yet; from here on Redis counts what is.
        place.redis.execute("XGROUP", "SETID", KEY, GROUP, 0, "ENTRIESREAD", 0)
        with ExitStack() as stack:
            processes = [stack.enter_context(make(state, n)) for n in range(count)]
            before_s = sum(cpu_s(process.pid) for process in processes)
            go(processes)
            value = await asyncio.to_thread(rate, place.redis, messages, processes)
            used_s = sum(cpu_s(process.pid) for process in processes) - before_s
            return value, used_s / (messages * engine_peers.TO) * 1e6


def rate(server: RedisServer, messages: int, processes: Sequence[subprocess.Popen[str]]) -> float:
    """As the peers' rates: between two shares of the messages, without start and end."""
    marks: dict[float, tuple[int, float]] = {}
    with server.client() as client:
        while engine_peers.TO not in marks:
            (group,) = client.xinfo_groups(KEY)
            done, now = group["entries-read"] - group["pending"], clock.monotonic()
            for share in (engine_peers.FROM, engine_peers.TO):
                if done >= share * messages:
                    marks.setdefault(share, (done, now))
            died = [process for process in processes if process.poll()]
            assert not died, f"a process ended with {died[0].returncode}"
            time.sleep(0.005)
    (first, begun), (last, ended) = marks.values()
    return (last - first) / (ended - begun)


def commands(server: RedisServer) -> int:
    """Commands so far."""
    return sum(int(one["calls"]) for one in server.info("commandstats").values())


class Best(dict[int, float]):
    """The highest rate by number of processes, and the least processor time."""

    def __init__(self) -> None:
        super().__init__()
        self.cpu_us: dict[int, float] = {}

    def add(self, count: int, value: float, cpu_us: float = 0.0) -> None:
        """One more run."""
        self[count] = max(value, self.get(count, 0.0))
        self.cpu_us[count] = min(cpu_us, self.cpu_us.get(count, cpu_us))


async def measure_consume(place: Place, messages: int, peers: Sequence[str], runs: int) -> None:
    """The best of so many runs of each, in turns: what else the machine does only slows."""
    ours, bare, theirs = Best(), Best(), Best()
    for _ in range(runs):
        for rates in (await asyncio.to_thread(engine_peers.run, peers)).values() if peers else ():
            for count, value in rates.items():
                theirs.add(count, value)
        for count in (1, 4):
            ours.add(count, *await consume(place, messages, ready_worker, count))
            bare.add(count, *await consume(place, messages, partial(loop, place), count))
    print(f"{'messages/s, processes':24} {'1':>10} {'4':>10}")
    print(f"{'cordata':24} {ours[1]:10,.0f} {ours[4]:10,.0f}")
    print(f"{'  CPU per message, us':24} {ours.cpu_us[1]:10.1f} {ours.cpu_us[4]:10.1f}")
    print(f"{'bare loop':24} {bare[1]:10,.0f} {bare[4]:10,.0f}")
    print(f"{'  our share of it':24} {ours[1] / bare[1]:10.2f} {ours[4] / bare[4]:10.2f}")
    if theirs:
        print(f"{'best peer':24} {theirs[1]:10,.0f} {theirs[4]:10,.0f}")
        print(
            f"{'  our multiple of it':24} {ours[1] / theirs[1]:9.1f}x {ours[4] / theirs[4]:9.1f}x"
        )


async def measure(place: Place, args: argparse.Namespace) -> None:
    """Print the figures."""
    parts = set(args.part or PARTS)
    if "consume" in parts:
        await measure_consume(place, args.messages, args.peers, args.runs)
    if "relay" in parts:
        empty = await relay_only(place, args.messages, 0)
        full = await relay_only(place, args.messages, args.old)
        print(f"relay: {empty:,.0f} rows/s; {full:,.0f} beside {args.old:,} handled ones", end="")
        print(f" ({full / empty:.2f}x)", flush=True)
        if args.peers:
            theirs = (await asyncio.to_thread(relay_protean.run, 1_000, (0,)))[0]
            print(f"  as much as protean's: {empty / theirs:.0f}x", flush=True)
    for workers in (1, 4):
        if "latency" in parts:
            state = place.fresh()
            async with opened(state) as store, keeping(store, place.redis.url):
                times = await latency(state, workers)
            p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
            told = f"commit to handler start, idle, {workers} workers"
            print(f"{told}: p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True)
    if "idle" in parts:
        counters = partial(transactions, place.postgres), partial(commands, place.redis)
        share, asked, sent = await asyncio.to_thread(
            idle, place.fresh(), *counters, broker=place.redis.url
        )
        sent -= 2 / IDLE_S  # these questions'
        told = f"{share * 100:.2f} % of a core, {asked:.1f} transactions/s, {sent:.1f} commands/s"
        print(f"idle, primary and 4 workers: {told}")


async def main() -> None:
    """Start the servers and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--old", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=2, help="of consumption")
    parser.add_argument("--peers", nargs="*", default=PEERS, help="see engine_peers")
    parser.add_argument("part", nargs="*", help=f"{', '.join(PARTS)}; default: all")
    with ExitStack() as stack:
        where = tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("BENCH_DIR"))
        place = Place(
            postgres=stack.enter_context(PostgresServer(durable=True, settings=_SETTINGS)),
            redis=stack.enter_context(RedisServer()),
            directory=Path(stack.enter_context(where)),
            stack=stack,
        )
        await measure(place, parser.parse_args())


if __name__ == "__main__":
    uvloop.run(main())
